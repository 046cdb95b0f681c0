"""
The network of a stub: what it may connect to, how often, and how much.
"""

import json
from base64 import b64encode
from hashlib import sha1
from typing import Any

from msgspec.structs import replace
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from msgnode.foreign.proxy.websocket import MAX_FRAMES, PIECE_BYTES
from tests.support.stub_processes import LIMITS, World, a_start

HOSTS = ("203.0.113.7:80", "127.0.0.1:9000")


class StubNetworkTests(SynchronousTestCase):
    """
    A process that asks for connections.
    """

    def setUp(self) -> None:
        self.world = World(a_start(hosts=HOSTS), listed=("203.0.113.0/24",))

    def tell(self, **line: Any) -> list[dict[str, Any]]:
        self.world.say(json.dumps(line))
        self.world.reactor.advance(0)
        return self.heard()

    def heard(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.world.heard()]
        return [line for line in lines if line["k"] not in ("start", "ping")]

    def open(self, number: int, url: str = "ws://203.0.113.7/x") -> list[dict[str, Any]]:
        return self.tell(k="open", s=number, url=url, protocols=[])

    def test_a_host_that_is_not_listed_is_refused(self) -> None:
        """
        Another host, port, scheme; a URL that is none.
        """
        for url, why in (
            ("ws://203.0.113.8/", "203.0.113.8:80 is not among the hosts"),
            ("wss://203.0.113.7/", "203.0.113.7:443 is not among the hosts"),
            ("file:///etc/passwd", "expected a URL with ws or wss"),
            ("ws://[::1/", "Invalid IPv6 URL"),
            ("ws://203.0.113.7:99999/", "Port out of range"),
            ("ws://203.0.113.7/" + "x" * 10_000, "at most 8192"),
            ("ws://user@203.0.113.7/", "without a user"),
            ("ws://203.0.113.8\\@203.0.113.7/", "without a backslash"),
            ("ws://203.0.113.7\\@203.0.113.8/", "without a backslash"),
        ):
            (closed,) = self.open(1, url)
            self.assertEqual(("closed", 1006, False), (closed["k"], closed["code"], closed["clean"]))
            self.assertIn(why, closed["reason"])
        self.assertEqual([], self.world.reactor.tcpClients)

    def test_a_listed_host_with_a_private_address_is_refused(self) -> None:
        """
        The operator permitted the host to the stub, not the address to the node.
        """
        (closed,) = self.open(1, "ws://127.0.0.1:9000/")

        self.assertIn("127.0.0.1, which is not public and not listed", closed["reason"])

    def test_a_stub_that_connects_without_end_is_slowed_down(self) -> None:
        """
        Five connections at once, then one in a second.
        """
        for number in range(20):
            self.open(number)
            self.tell(k="close", s=number, code=1000, reason="")
        self.assertEqual(5, len(self.world.reactor.tcpClients))
        self.open(99)
        self.world.reactor.advance(20)

        self.assertEqual(6, len(self.world.reactor.tcpClients))

    def test_a_sub_protocol_with_a_line_feed_is_refused(self) -> None:
        """
        It would be a header, or another request, to the host.
        """
        (closed,) = self.tell(k="open", s=1, url="ws://203.0.113.7/", protocols=["x\r\n\r\nPOST / HTTP/1.1"])

        self.assertIn("a sub-protocol has letters", closed["reason"])
        (closed,) = self.open(1, "ws://203.0.113.7/ HTTP/1.1")
        self.assertIn("visible ASCII", closed["reason"])
        self.assertEqual([], self.world.reactor.tcpClients)

    def test_requests_in_a_second_are_bounded(self) -> None:
        """
        Each is a connection, and a name that is looked up.
        """
        limits = replace(LIMITS, messages_per_second=100_000)
        self.world = World(a_start(hosts=HOSTS, limits=limits), listed=("203.0.113.0/24",))
        said: list[dict[str, Any]] = []
        for number in range(60):
            said += self.tell(
                k="fetch", s=number, method="GET", url="http://203.0.113.7/", headers=[], body=""
            )
            self.tell(k="abort", s=number)

        self.assertEqual(40, len(said))
        self.assertEqual("a stub may make 20 requests in a second", said[0]["error"])

    def test_a_stub_has_few_sockets_at_once(self) -> None:
        """
        The ninth is closed at once.
        """
        for number in range(8):
            self.assertEqual([], self.open(number))

        (closed,) = self.open(8)

        self.assertEqual("a stub has at most 8 WebSockets at once", closed["reason"])

    def test_a_message_travels_both_ways_with_its_bytes_counted(self) -> None:
        """
        A text out; a text and bytes in; what was sent is reported.
        """
        server = _Server(self.world, self.open)
        self.assertEqual([{"k": "opened", "s": 1, "protocol": ""}], self.heard())

        sent = self.tell(k="send", s=1, text="grün")
        server.send(1, "für".encode())
        server.send(2, b"\x00\xff")

        self.assertEqual([{"k": "sent", "s": 1, "n": 5}], sent)
        self.assertEqual(b"gr\xc3\xbcn", server.received())
        self.assertEqual(
            [{"k": "message", "s": 1, "text": "für"}, {"k": "message", "s": 1, "base64": "AP8="}],
            self.heard(),
        )

    def test_nothing_is_read_for_a_process_that_does_not_read(self) -> None:
        """
        The other end of its WebSocket has to wait, too.
        """
        server = _Server(self.world, self.open)

        self.world.transport.producer.pauseProducing()
        self.assertEqual("paused", server.transport.producerState)
        self.world.transport.producer.resumeProducing()
        self.assertEqual("producing", server.transport.producerState)

    def test_what_the_other_end_does_not_read_is_not_reported_as_sent(self) -> None:
        """
        So `bufferedAmount` grows, as it does in a browser; and a host that ignores it is ended.
        """
        server = _Server(self.world, self.open)
        self.heard()
        server.transport.producer.pauseProducing()
        self.assertEqual([], self.tell(k="send", s=1, text="x" * 1000))
        server.transport.producer.resumeProducing()

        self.assertEqual([{"k": "sent", "s": 1, "n": 1000}], self.heard())

    def test_the_end_of_the_process_ends_its_connections(self) -> None:
        """
        Those under way, too.
        """
        server = _Server(self.world, self.open)
        self.open(2)
        self.world.transport.exit(signal=9)

        self.assertTrue(server.transport.disconnecting or server.transport.disconnected)
        self.assertEqual([], self.world.reactor.getDelayedCalls())

    def test_a_lost_connection_is_a_close_without_code(self) -> None:
        """
        As browsers report it.
        """
        server = _Server(self.world, self.open)
        self.heard()
        server.lose()

        (closed,) = self.heard()
        self.assertEqual(("closed", 1006, False), (closed["k"], closed["code"], closed["clean"]))

    def test_a_node_that_sends_frames_without_end_is_left(self) -> None:
        """
        A read full of empty frames would hold the node's other work for more than half a second.
        """
        for frame in (b"\x89\x00", b"\x8a\x00", b"\x81\x01x"):
            self.setUp()
            server = _Server(self.world, self.open)
            self.heard()
            server.protocol.dataReceived(frame * (65_536 // len(frame)))

            self.assertLessEqual(len(self.heard()), MAX_FRAMES)
            self.assertTrue(server.transport.disconnected or server.transport.disconnecting)
            server.lose()
            self.assertIn(f"more than {MAX_FRAMES} frames in {PIECE_BYTES}", self.heard()[-1]["reason"])
            self.assertEqual(1, self.world.told.limits["frames"])

    def test_what_comes_is_handled_in_turns_and_at_the_permitted_rate(self) -> None:
        """
        Whatever the other end sends, the node's other work goes on, and nothing is lost.
        """
        server = _Server(self.world, self.open)
        self.heard()
        server.protocol.dataReceived(
            b"\x81\x7a" + b"x" * 122 + b"\x81\x01y" * 250 + b"\x81\x7e\x1f\x40" + b"z" * 8000
        )
        first = len(self.heard())
        paused = server.transport.producerState
        self.world.reactor.advance(1.5)  # of 251 messages, 100 may come in a second
        second = len(self.heard())
        self.world.reactor.advance(0.1)

        self.assertEqual((251, "paused", 0), (first, paused, second))
        self.assertEqual(8000, len(self.heard()[0]["text"]))
        self.assertEqual("producing", server.transport.producerState)
        self.assertLess(0, self.world.told.limits["incoming"])

    def test_what_comes_with_the_handshake_is_handled(self) -> None:
        """
        More than one turn's worth, in one read: once, in order, and no turn is left over.
        """
        server = _Server(self.world, self.open, b"\x81\x7e\x1f\x40" + b"z" * 8000 + b"\x81\x01y")
        for _ in range(5):
            self.world.reactor.advance(0.01)
        said = self.heard()
        server.lose()
        self.world.process.kill("over")
        self.world.transport.exit(signal=9)

        self.assertEqual(["opened", "message", "message"], [each["k"] for each in said])
        self.assertEqual((8000, "y"), (len(said[1]["text"]), said[2]["text"]))
        self.assertEqual([], self.world.reactor.getDelayedCalls())

    def test_what_came_with_the_end_is_handled(self) -> None:
        """
        A connection that ends has no later turns.
        """
        server = _Server(self.world, self.open)
        server.protocol.dataReceived(b"\x81\x7e\x1f\x40" + b"z" * 8000)
        server.lose()

        self.assertEqual(["opened", "message", "closed"], [each["k"] for each in self.heard()])

    def test_pings_are_not_answered_to_a_node_that_does_not_read(self) -> None:
        """
        The answers would wait in this node.
        """
        server = _Server(self.world, self.open)
        server.transport.clear()
        server.send(9, b"1")
        answered = server.transport.value()
        server.transport.producer.pauseProducing()
        for _ in range(100):
            server.send(9, b"1")

        self.assertNotEqual(b"", answered)
        self.assertEqual(answered, server.transport.value())

    def test_a_handshake_without_end_is_left(self) -> None:
        """
        It would be kept, and searched from its beginning at each read.
        """
        self.open(1)
        protocol = self.world.reactor.tcpClients[0][2].buildProtocol(None)
        transport = _Transport()
        protocol.makeConnection(transport)
        protocol.dataReceived(b"HTTP/1.1 101 Switching Protocols\r\n")
        for _ in range(3):
            protocol.dataReceived(b"X-Header: " + b"x" * 65_000 + b"\r\n")

        self.assertTrue(transport.disconnected or transport.disconnecting)

    def test_a_request_to_another_host_is_refused(self) -> None:
        """
        With the reason, as the exception of fetch.
        """
        line = {"k": "fetch", "s": 1, "method": "GET", "headers": [], "body": ""}
        (answer,) = self.tell(url="http://198.51.100.1/", **line)

        self.assertIn("198.51.100.1:80 is not among the hosts", answer["error"])
        self.assertEqual([], self.world.reactor.tcpClients)


class _Transport(StringTransport):
    """
    A transport with the options of TCP that Autobahn sets.
    """

    def setTcpNoDelay(self, enabled: bool) -> None:
        pass

    def unregisterProducer(self) -> None:
        pass


def _accepting(key: str) -> bytes:
    digest = sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
    accept = b64encode(digest).decode()
    lines = ("HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade")
    return "\r\n".join((*lines, f"Sec-WebSocket-Accept: {accept}", "", "")).encode()


class _Server:
    """
    The other end of the stub's first WebSocket, which accepts it.
    """

    def __init__(self, world: World, open_: Any, more: bytes = b"") -> None:
        open_(1)
        factory = world.reactor.tcpClients[0][2]
        self.protocol = factory.buildProtocol(None)
        self.transport = _Transport()
        self.protocol.makeConnection(self.transport)
        key = self._header("Sec-WebSocket-Key")
        self.transport.clear()
        self.protocol.dataReceived(_accepting(key) + more)

    def _header(self, name: str) -> str:
        lines = self.transport.value().decode().split("\r\n")
        return next(line.partition(": ")[2] for line in lines if line.lower().startswith(name.lower()))

    def send(self, opcode: int, payload: bytes) -> None:
        self.protocol.dataReceived(bytes((0x80 | opcode, len(payload))) + payload)

    def received(self) -> bytes:
        """
        The payload of the short frame that came.
        """
        frame = self.transport.value()
        mask, masked = frame[2:6], frame[6:]
        return bytes(byte ^ mask[at % 4] for at, byte in enumerate(masked))

    def lose(self) -> None:
        self.protocol.connectionLost(Failure(ConnectionDone()))
