"""
Connections with TLS: Twisted reads and decrypts, the plane carries, and the TLS transport sends.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet import tcp

native = pytest.importorskip("msgnode_native", reason="msgnode_native is not built")

from msgnode.protocol.close_codes import STOPPING  # noqa: E402
from msgnode.transport.cork import CHUNK_BYTES  # noqa: E402
from msgnode.transport.native_plane import NativePlane  # noqa: E402
from tests.support.plane_world import PlaneWorld, SocketClient, is_readable  # noqa: E402

from .test_plane_flows import Owner, World, update  # noqa: E402

ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"
BUFFER = 16 * 1024  # bytes
SENDERS = 30
MANY = 500  # more than are given to Python in one round


def numbered(number: int, filler: str = "") -> dict[str, Any]:
    return {"id": number, "type": "update", "from": ANN, "to": BOB, "body": {"value": filler}}


@pytest.fixture
def fed() -> World:
    return World()


def test_what_is_left_over_makes_the_poller_readable(fed: World):
    """
    What one round leaves over is told to who feeds, who feeds again after a later round; the reactor in
    which the poller is nested finds its descriptor readable, once.
    """
    lines = b"".join(update(number) + b"\n" for number in range(200))

    assert fed.plane.feed(fed.from_ann, lines)
    assert 0 < len(fed.ann.messages) < 200
    assert is_readable(fed.plane)
    fed.plane.round()

    assert fed.ann.messages == [update(number) for number in range(200)]
    assert fed.ann.goes_on == 1
    assert not is_readable(fed.plane)
    assert not fed.plane.feed(fed.from_ann, update() + b"\n")


def test_all_that_one_turn_feeds_is_one_round(fed: World):
    """
    The records of one read are fed one by one: together they are carried for no longer than a round, what
    is left over comes in the next rounds, in order, and what is fed then is carried at once.
    """
    owners = [Owner() for _ in range(1000)]
    ports = [fed.add(owner) for owner in owners]
    for port in ports:
        fed.plane.set_ready(port, True)
    fed.install(*ports)
    messages = [update(number) for number in range(40)]
    fed.plane.round()

    left_over = [fed.plane.feed(fed.from_ann, message + b"\n") for message in messages]
    first = owners[0].sent.count(b"\n")
    rounds = 1
    while fed.plane.round():
        rounds += 1
    again = fed.plane.feed(fed.from_ann, update() + b"\n")

    assert 0 < first < 20
    assert left_over == [False] * first + [True] * (40 - first)
    assert rounds > 2
    assert not again
    assert {owner.sent for owner in owners} == {b"".join(each + b"\n" for each in [*messages, update()])}


def test_what_comes_for_a_paused_port_waits(fed: World):
    """
    What is fed while nothing is wanted is carried in a round once it is wanted again, before what comes then.
    """
    fed.install()
    fed.plane.pause(fed.from_ann)

    assert fed.plane.feed(fed.from_ann, update(1) + b"\n")
    fed.plane.round()
    before = fed.bob.sent
    fed.plane.resume(fed.from_ann)
    readable = is_readable(fed.plane)
    fed.plane.round()
    fed.send(update(2))

    assert (before, readable) == (b"", True)
    assert fed.bob.sent == update(1) + b"\n" + update(2) + b"\n"
    assert fed.ann.goes_on == 1


def test_what_is_fed_is_traffic(fed: World):
    """
    An owner that waits for a sign of the client hears of the next bytes that it feeds, once.
    """
    fed.install()
    fed.plane.watch(fed.from_ann)

    fed.send(update(1))
    fed.send(update(2))

    assert fed.ann.seen == 1


class Node:
    """
    A node, and its clients Ann and Bob.
    """

    def __init__(self, directory: Path) -> None:
        self.world = PlaneWorld(native, directory)

    def client(self, name: str, kind: str = "lines", has_tls: bool = True) -> SocketClient:
        client = self.world.connect(kind, has_tls)
        self.send(client, {"id": 1, "type": "open", "from": name, "to": "mn:/session"})
        return client

    def send(self, client: SocketClient, *messages: dict[str, Any]) -> None:
        client.write(client.encode(*messages))
        self.world.pump()

    def is_read(self, client: SocketClient) -> bool:
        """
        Does the node read the client's socket?
        """
        return client.protocol.transport.transport in self.world.reactor.readers

    def carried(self) -> int:
        self.world.plane.update_counts()
        return self.world.plane.carried

    def numbers(self, client: SocketClient) -> list[int]:
        """
        The ids of messages that the client has received from Ann, as lines.
        """
        parts = client.came.split(b'{"id":')[1:]
        return [int(part.partition(b",")[0]) for part in parts if b'"type":"update"' in part]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.world.end()


@pytest.mark.parametrize("kind", ["lines", "websocket"])
@pytest.mark.parametrize("has_tls", [True, False])
def test_carries_what_was_encrypted(node: Node, kind: str, has_tls: bool):
    """
    Messages of a client with TLS are carried to clients with and without it, in order.
    """
    ann, bob = node.client(ANN, kind), node.client(BOB, kind, has_tls)

    for start in range(0, 100, 10):
        node.send(ann, *(numbered(number) for number in range(start, start + 10)))

    assert node.numbers(bob) == [*range(100)]
    assert node.carried() >= 90


def test_carries_to_a_client_with_tls(node: Node):
    """
    What comes by a plain socket leaves encrypted.
    """
    ann, bob = node.client(ANN, has_tls=False), node.client(BOB, "websocket")

    node.send(ann, *map(numbered, range(50)))

    assert node.numbers(bob) == [*range(50)]
    assert node.carried() >= 49


def test_does_not_read_while_the_connection_wants_nothing(node: Node):
    """
    A connection that is paused is not read; afterwards everything comes, in order.
    """
    ann, bob = node.client(ANN), node.client(BOB)
    node.send(ann, numbered(0))
    ann.protocol.pause_reading()

    node.send(ann, *map(numbered, range(1, MANY)))
    was_read, before = node.is_read(ann), node.numbers(bob)
    ann.protocol.resume_reading()
    node.world.pump()

    assert (was_read, before) == (False, [0])
    assert node.numbers(bob) == [*range(MANY)]
    assert node.is_read(ann)


def test_does_not_read_while_something_is_left_over(node: Node):
    """
    A client that sends more than one round takes is read again when that is done.
    """
    ann, bob = node.client(ANN), node.client(BOB)
    data = ann.encode(*map(numbered, range(MANY)))

    ann.protocol.port.stop()
    ann.protocol.dataReceived(data[:5000])
    ann.protocol.port.go_on()
    was_read = node.is_read(ann)
    node.world.pump()

    assert not was_read
    assert node.is_read(ann)
    assert node.numbers(bob)[:10] == [*range(10)]


def test_a_client_that_reads_nothing_is_sent_nothing_more(node: Node):
    """
    Where the TLS transport takes no more, the session waits, and little is held for the connection.
    """
    ann, bob = node.client(ANN), node.client(BOB)
    node.send(ann, numbered(0))
    node.world.clients.remove(bob)  # nobody reads it
    transport = bob.protocol.transport
    assert isinstance(transport.transport, tcp.Server)
    transport.transport.bufferSize = BUFFER

    for number in range(1, MANY):
        node.send(ann, numbered(number, "x" * 2000))
    session = node.world.node.sessions.get(BOB)
    unsent = len(transport.dataBuffer) + transport._tempDataLen
    was_ready, queued = session.ready, session.mailbox.queued
    node.world.clients.append(bob)
    node.world.pump()

    assert not was_ready
    assert queued > 0
    assert 0 < unsent < 2 * BUFFER
    assert node.numbers(bob) == [*range(MANY)]
    assert session.ready


def test_encrypts_a_chunk_at_a_time(node: Node):
    """
    Of what one round brings for a client with TLS, no more is encrypted at once than a chunk beyond what the
    transport takes; all of it leaves.
    """
    plane = node.world.plane
    assert isinstance(plane, NativePlane)
    senders = [node.client(f"{ANN}{number}", has_tls=False) for number in range(SENDERS)]
    bob = node.client(BOB)
    bob.protocol.transport.transport.bufferSize = BUFFER
    for number, sender in enumerate(senders):
        node.send(sender, numbered(number) | {"from": f"{ANN}{number}"})
    before = node.carried()

    for number, sender in enumerate(senders):
        message = numbered(100 + number, "x" * 14_000) | {"from": f"{ANN}{number}"}
        sender.write(sender.encode(message))
    plane.poller.round()
    transport = bob.protocol.transport
    unsent = len(transport.dataBuffer) + transport._tempDataLen
    node.world.pump()

    assert unsent < 2 * CHUNK_BYTES
    assert {*node.numbers(bob)} >= {*range(100, 100 + SENDERS)}
    assert node.carried() - before == SENDERS


@pytest.mark.parametrize("kind", ["lines", "websocket"])
def test_closes_with_the_end_of_tls(node: Node, kind: str):
    """
    A connection that the node closes ends at once, with its last word, and its port is gone.
    """
    ann = node.client(ANN, kind)
    had_port = node.world.plane.port(ann.protocol)

    node.world.node.sessions.connections.close(ann.protocol, STOPPING)
    node.world.pump()
    if kind == "websocket":
        ann.write(b"\x88\x82\x00\x00\x00\x00\x03\xe8")
        node.world.pump()

    assert had_port
    assert ann.is_over
    assert node.world.plane.port(ann.protocol) == 0


def test_what_came_before_the_end_is_carried(node: Node):
    """
    What a client sent before it left arrives, though it was left over when the connection ended.
    """
    ann, bob = node.client(ANN), node.client(BOB)
    ann.write(ann.encode(*map(numbered, range(MANY))))

    ann.close()
    node.world.pump()

    assert node.numbers(bob) == [*range(MANY)]
    assert node.world.plane.port(ann.protocol) == 0


def test_a_failed_handshake_leaves_nothing(node: Node):
    """
    A client that does not speak TLS is disconnected, and its port is gone.
    """
    client = node.world.connect("lines", has_tls=True)

    client.socket.send(b"GET / HTTP/1.1\r\n\r\n" * 10)
    node.world.pump()

    assert client.is_over
    assert node.world.plane.port(client.protocol) == 0
