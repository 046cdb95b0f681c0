"""
A NATS server in memory, on a clock, and the carriers of nodes that use it.

As NATS core, it delivers at most once, and in order from one client to another.
"""

import random
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from msgnode.cluster.carrier.nats_carrier import NatsCarrier
from msgnode.cluster.carrier.packets import KEY_BYTES
from msgnode.config.cluster import ClusterOptions
from msgnode.links.carrier.link import Link
from msgnode.links.wire.datagram import Datagram
from msgnode.links.wire.entries import Data
from msgnode.links.wire.node_name import NodeName
from msgnode.nats.errors import BufferFull, ConnectionLost
from msgnode.nats.options import Listener
from msgnode.nats.wire.commands import ServerInfo
from msgnode.nats.wire.message import Message

DELAY_SECONDS = 0.001


class MemoryNats:
    """
    The server. `lose` says of each publication whether it is lost; `published` has all of them.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.clients: list[MemoryClient] = []
        self.is_up = True
        self.lose: Callable[[str, bytes], bool] = lambda subject, payload: False
        self.published: list[tuple[str, bytes]] = []

    def client(self, listener: Listener) -> "MemoryClient":
        self.clients.append(MemoryClient(self, listener))
        return self.clients[-1]

    def kill(self) -> None:
        """
        The server is gone, and with it what is under way.
        """
        self.is_up = False
        for client in self.clients:
            client.disconnect()

    def restart(self) -> None:
        self.is_up = True
        for client in self.clients:
            client.reconnect()

    def publish(self, sender: "MemoryClient | None", subject: str, payload: bytes) -> None:
        self.published.append((subject, payload))
        if not self.lose(subject, payload):
            for client in self.clients:
                if client is not sender and client.is_up:
                    self.clock.callLater(DELAY_SECONDS, client.deliver, client.life, subject, payload)


class MemoryClient:
    """
    A client of the server, true to what the carrier uses of NatsClient; `is_full` makes it refuse.
    """

    def __init__(self, nats: MemoryNats, listener: Listener) -> None:
        self._nats = nats
        self._listener = listener
        self._subscribed: dict[str, Callable[[Message], object]] = {}
        self.is_up = self.is_full = self._is_killed = False
        self.life = 0

    def connect(self, retry: bool = False) -> Deferred[ServerInfo]:
        self.reconnect()
        return succeed(ServerInfo())

    def close(self) -> Deferred[None]:
        self.is_up = False
        self._nats.clients.remove(self)
        return succeed(None)

    def subscribe(self, subject: str, callback: Callable[[Message], object]) -> None:
        self._subscribed[subject] = callback

    def publish(self, subject: str, payload: bytes = b"") -> None:
        if self.is_full:
            raise BufferFull("it is full")
        if not self._is_killed:
            self._nats.publish(self, subject, payload)

    def deliver(self, life: int, subject: str, payload: bytes) -> None:
        callback = self._subscribed.get(subject)
        if self.is_up and life == self.life and callback is not None:
            callback(Message(subject, "", payload))

    def disconnect(self) -> None:
        if self.is_up:
            self.is_up = False
            self.life += 1
            self._listener.disconnected(ConnectionLost("the server is gone"))

    def reconnect(self) -> None:
        if self._nats.is_up and not self.is_up:
            self.is_up = True
            self._listener.connected(ServerInfo(server_name="memory", max_payload=1024 * 1024))

    def kill(self) -> None:
        """
        The process is gone, as after kill -9: nothing comes from it or gets there.
        """
        self.is_up, self._is_killed = False, True

    def fill(self) -> None:
        self.is_full = True

    def drain(self) -> None:
        self.is_full = False
        self._listener.has_room()


class HeardOf:
    """
    A listener that notes what it hears of links (LinkListener) and of members (MembersListener).
    """

    def __init__(self) -> None:
        self.links: dict[str, Link] = {}
        self.datagrams: list[bytes] = []
        self.had_room: list[str] = []
        self.members: list[tuple[Any, ...]] = []

    def link_up(self, link: Link) -> None:
        self.links[link.node] = link

    def link_down(self, link: Link, reason: str) -> None:
        del self.links[link.node]

    def received(self, link: Link, entry: Any) -> None:
        self.datagrams.append(entry.datagram.payload)

    def round_trip_changed(self, link: Link) -> None:
        """
        Does nothing.
        """

    def member_up(self, node: str, epoch: tuple[bytes, int]) -> None:
        self.members.append(("up", node, epoch[1]))

    def member_down(self, node: str) -> None:
        self.members.append(("down", node))

    def member_heard(self, node: str, payload: bytes) -> None:
        self.members.append(("heard", node, payload))

    def has_room(self, link: Any) -> None:
        self.had_room.append(link if isinstance(link, str) else link.node)


class CarrierCase:
    """
    Carriers of nodes of example.com, by name, and what each one's listener has heard.
    """

    def __init__(self) -> None:
        self.clock = Clock()
        self.nats = MemoryNats(self.clock)
        self.conflicts: list[str] = []

    def start(
        self, node: str, counter: int = 1, start: bytes = b"", **options: Any
    ) -> tuple[NatsCarrier, HeardOf]:
        heard = HeardOf()
        carrier = NatsCarrier(
            NodeName("example.com", node),
            ClusterOptions(**options),
            "0.1.0",
            (node.encode().ljust(16, b"-"), counter),
            bytes([counter]) * KEY_BYTES,
            start or node.encode().rjust(15, b"-") + bytes([counter]),
            self.nats.client,
            heard,
            lambda members: heard,
            self.conflicts.append,
            self.clock,
            random.Random(1),
        )
        carrier.startService()
        return carrier, heard

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            self.clock.advance(0.05)


def name(node: str) -> str:
    return f"mn://example.com/{node}"


def data(payload: bytes, priority: int = 5) -> Data:
    return Data(Datagram(name("n1"), name("n2"), 32, [], priority, "", 0, b"", b"", payload))
