"""
What begins to come and does not end: bounded for a host and for the node, and in time.
"""

import json
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.loader import check
from msgnode.protocol.close_codes import OVER_CAPACITY, UNFINISHED, Closing
from msgnode.sessions.limits.memory_budget import Budget
from msgnode.sessions.limits.partial_input import FREE_BYTES, MAX_CUT_PER_TURN, PartialInput
from tests.support.fakes import Turns
from tests.support.http_client import HTTPClient
from tests.support.network import Network
from tests.support.runtimes import TCPRuntime, WebSocketRuntime
from tests.support.socketio_runtime import SocketWebSocketRuntime

RUNTIME = "runtime://example.org/"
HOST, OTHER = "192.0.2.1:1", "192.0.2.2:1"


class Receiver:
    """
    A place where something comes in.
    """

    def __init__(self) -> None:
        self.cut: list[Closing] = []

    def cut_short(self, why: Closing) -> None:
        self.cut.append(why)


class CountTests(SynchronousTestCase):
    """
    The counting itself.
    """

    def start(self, trusted: list[str] | None = None, **limits: Any) -> PartialInput:
        self.clock = Turns()
        config = check({"limits": limits, "trusted_proxies": trusted or []}, "test")
        self.budget = Budget(config, self.clock.seconds)
        return PartialInput(config, self.budget, self.clock)

    def test_partial_input_of_one_host_is_counted_together(self) -> None:
        """
        All that one host has begun is counted together; who would have too much is cut short, others are not.
        """
        partial_input = self.start(partial_bytes_per_ip=10_000)
        first, second, third = Receiver(), Receiver(), Receiver()

        found = [
            partial_input.grow(first, 5000 + FREE_BYTES, HOST),
            partial_input.grow(first, 9000 + FREE_BYTES, HOST),
        ]
        found += [
            partial_input.grow(second, 2000 + FREE_BYTES, HOST),
            partial_input.grow(third, 2000 + FREE_BYTES, OTHER),
        ]

        self.assertEqual([True, True, False, True], found)
        self.assertEqual([[], [OVER_CAPACITY], []], [one.cut for one in (first, second, third)])
        self.assertEqual((11_000, 9000), (partial_input.bytes, partial_input.most_of_one()))
        self.assertEqual({"partial_bytes_per_ip": 1}, dict(self.budget.refused))

    def test_so_is_all_that_hosts_and_proxies_have_begun(self) -> None:
        """
        So is all that hosts and proxies have begun together.
        """
        partial_input = self.start(partial_bytes=3000, trusted=["192.0.2.9"])

        found = [
            partial_input.grow(Receiver(), 1500 + FREE_BYTES, peer) for peer in (HOST, "192.0.2.9:1", "unix")
        ]

        self.assertEqual([True, True, False], found)
        self.assertEqual(3000, partial_input.bytes)

    def test_first_bytes_of_partial_input_are_free(self) -> None:
        """
        The first bytes of each are free, so that nobody is cut short over a small message.
        """
        partial_input = self.start(partial_bytes=1)

        found = [partial_input.grow(Receiver(), FREE_BYTES, HOST) for _ in range(100)]

        self.assertEqual(([True] * 100, 0), (found, partial_input.bytes))

    def test_ended_partial_input_counts_no_more(self) -> None:
        """
        What has ended counts no more.
        """
        partial_input = self.start()
        receiver, body = Receiver(), object()
        partial_input.grow(receiver, 100_000, HOST)
        partial_input.grow_untimed(body, 100_000, HOST)

        for one in (receiver, body, receiver):
            partial_input.done(one)

        self.assertEqual((0, 0, 0), (len(partial_input), partial_input.bytes, partial_input.most_of_one()))

    def test_each_has_so_much_time_from_its_first_byte(self) -> None:
        """
        Each has so much time from its first byte on, however often another comes.
        """
        partial_input = self.start(partial_seconds=60)
        first, second = Receiver(), Receiver()
        for second_of_all in range(65):
            if not first.cut:
                partial_input.grow(first, second_of_all + 1, HOST)
            if second_of_all == 30:
                partial_input.grow(second, 10, HOST)
            self.clock.advance(1)

        self.assertEqual([[UNFINISHED], []], [first.cut, second.cut])
        self.clock.advance(30)
        self.assertEqual([UNFINISHED], second.cut)
        self.assertEqual({"partial_seconds": 2}, dict(self.budget.refused))

    def test_time_of_the_next_partial_input_begins_anew(self) -> None:
        """
        The time of the next one begins anew.
        """
        partial_input = self.start(partial_seconds=60)
        receiver = Receiver()
        for _ in range(100):
            partial_input.grow(receiver, 10, HOST)
            self.clock.advance(10)
            partial_input.done(receiver)

        self.assertEqual([], receiver.cut)

    def test_very_many_whose_time_is_over_are_given_up(self) -> None:
        """
        Very many whose time is over are given up in several turns.
        """
        partial_input = self.start(partial_seconds=60)
        receivers = [Receiver() for _ in range(2 * MAX_CUT_PER_TURN + 1)]
        for receiver in receivers:
            partial_input.grow(receiver, 1, HOST)

        found = []
        self.clock.rightNow += 60
        for _ in range(4):
            self.clock.turn()
            found.append(sum(bool(receiver.cut) for receiver in receivers))

        self.assertEqual(
            [MAX_CUT_PER_TURN, 2 * MAX_CUT_PER_TURN, 2 * MAX_CUT_PER_TURN + 1, 2 * MAX_CUT_PER_TURN + 1],
            found,
        )
        self.assertEqual(0, len(partial_input))

    def test_no_limits(self) -> None:
        """
        0 is no limit of what has begun.
        """
        partial_input = self.start(partial_seconds=0, partial_bytes=0, partial_bytes_per_ip=0)
        receiver = Receiver()

        self.assertTrue(partial_input.grow(receiver, 10**9, HOST))
        self.clock.advance(1000)
        self.assertEqual([], receiver.cut)


class ConnectorTests(SynchronousTestCase):
    """
    Each connector: clients that begin 100 KB and do not end them, of which two fit.
    """

    limits = {"message_bytes": 1_000_000, "partial_bytes_per_ip": 200_000}

    def setUp(self) -> None:
        self.net = Network(limits=self.limits)

    def begin(self, runtime: Any) -> None:
        raise NotImplementedError

    def client(self, name: str) -> Any:
        raise NotImplementedError

    def assertBounded(self) -> None:
        clients = [self.client(str(n)) for n in range(3)]
        for client in clients:
            self.begin(client)
            self.net.pump()
        self.net.advance(6)

        self.assertEqual([None, None, 1013], [client.code for client in clients])
        self.assertEqual("full", clients[2].reason.partition(";")[0])
        self.assertIsNotNone(clients[2].retry_after)
        self.assertGreater(self.net.node.partial_input.bytes, 190_000)
        self.assertLess(self.net.node.partial_input.bytes, 200_000)
        clients[0].drop()
        self.net.pump()
        self.assertLess(self.net.node.partial_input.bytes, 100_000)

    def assertTimed(self) -> None:
        client = self.client("1")
        self.begin(client)

        self.net.advance(55)
        self.assertIsNone(client.code)
        self.net.advance(6)

        self.assertEqual((1013, "unfinished"), (client.code, client.reason.partition(";")[0]))
        self.net.advance(6)
        self.assertEqual((0, 0), (self.net.node.partial_input.bytes, len(self.net.node.partial_input)))


class LineTests(ConnectorTests):
    """
    A line without its end.
    """

    def client(self, name: str) -> Any:
        return TCPRuntime(self.net, RUNTIME + name).open()

    def begin(self, runtime: Any) -> None:
        runtime.transport.write(b"x" * 100_000)

    def test_all_unended_lines_of_one_host_are_bounded_together(self) -> None:
        """
        All unended lines of one host are bounded together; the one too many is closed with 1013 and a time.
        """
        self.assertBounded()

    def test_line_has_a_minute_to_end(self) -> None:
        """
        A line has a minute to end.
        """
        self.assertTimed()

    def test_client_whose_reads_end_within_a_line_stays(self) -> None:
        """
        A client whose reads always end within a line is not given up: lines end all the time.
        """
        client = self.client("1")
        line = json.dumps({"id": 1, "type": "ping", "from": client.url, "to": f"{client.url}/x"}).encode()
        client.transport.write(line[:5])
        for _ in range(200):
            client.transport.write(line[5:] + b"\n" + line[:5])
            self.net.advance(1)

        self.assertIsNone(client.code)
        self.assertEqual(200, len(client.take()))

    def test_another_host(self) -> None:
        """
        A client of another host is not concerned.
        """
        for n in range(2):
            self.begin(self.client(str(n)))
        other = TCPRuntime(self.net, RUNTIME + "other")
        other.drop()
        other.peer = IPv4Address("TCP", "192.0.2.2", 1)
        other.connect()
        self.begin(other)
        self.net.pump()

        self.assertIsNone(other.code)


class FragmentTests(ConnectorTests):
    """
    A WebSocket message in fragments, without the last.
    """

    def client(self, name: str) -> Any:
        return WebSocketRuntime(self.net, RUNTIME + name).open()

    def begin(self, runtime: Any) -> None:
        runtime.stub.beginMessage()
        for _ in range(10):
            runtime.stub.sendMessageFrame(b"x" * 10_000)

    def test_all_unended_messages_of_one_host_are_bounded(self) -> None:
        """
        All unended messages of one host are bounded together; the one too many is closed with 1013.
        """
        self.assertBounded()

    def test_message_has_a_minute_to_end_though_its_client(self) -> None:
        """
        A message has a minute to end, though its client answers pings between its fragments.
        """
        self.assertTimed()

    def test_message_that_ends_is_carried_and_counts_no_more(self) -> None:
        """
        A message that ends is carried, and counts no more.
        """
        client = self.client("1")
        message = {
            "id": 1,
            "type": "ping",
            "from": client.url,
            "to": f"{client.url}/x",
            "body": {"value": "x" * 50_000},
        }
        data = json.dumps(message).encode()
        client.stub.beginMessage()
        client.stub.sendMessageFrame(data[:20_000])
        self.net.pump()
        self.assertEqual(20_000 - FREE_BYTES, self.net.node.partial_input.bytes)

        client.stub.sendMessageFrame(data[20_000:])
        client.stub.endMessage()
        self.net.pump()

        self.assertEqual([message], client.take())
        self.assertEqual((0, 0), (self.net.node.partial_input.bytes, len(self.net.node.partial_input)))


class FrameTests(ConnectorTests):
    """
    A WebSocket frame that does not end.
    """

    def client(self, name: str) -> Any:
        return WebSocketRuntime(self.net, RUNTIME + name, options={"autoPingInterval": 0}).open()

    def begin(self, runtime: Any) -> None:
        runtime.stub.beginMessage()
        runtime.stub.beginMessageFrame(500_000)
        runtime.stub.sendMessageFrameData(b"x" * 100_000)

    def test_all_unended_frames_of_one_host_are_bounded_together(self) -> None:
        """
        All unended frames of one host are bounded together; the one too many is closed with 1013.
        """
        self.assertBounded()


class SocketTests(ConnectorTests):
    """
    The WebSockets of Socket.IO.
    """

    def client(self, name: str) -> Any:
        return SocketWebSocketRuntime(self.net, RUNTIME + name).open()

    def begin(self, runtime: Any) -> None:
        runtime.stub.beginMessage()
        runtime.stub.sendMessageFrame(b"4" + b"2" * 99_999)

    def test_they_count_as_any_other(self) -> None:
        """
        They count as any other; the client hears 1013.
        """
        self.assertBounded()


class BodyTests(SynchronousTestCase):
    """
    Bodies of requests under way, and those of requests that are not answered yet.
    """

    def setUp(self) -> None:
        self.net = Network(limits={"message_bytes": 1_000_000, "partial_bytes_per_ip": 200_000})

    def post(self, path: bytes = b"/poll", extra: bytes = b"", listener: str = "web") -> HTTPClient:
        client = HTTPClient(self.net, listener)
        head = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000\r\n" + extra
        client.transport.write(head + b"\r\n" + b"x" * 100_000)
        self.net.pump()
        return client

    def test_body_too_many_is_answered_503_with_retry_after(self) -> None:
        """
        The body too many is answered 503 with Retry-After before it has come, on whatever path.
        """
        for listener, path in (("web", b"/poll"), ("web", b"/message"), ("admin", b"/policy/policies")):
            with self.subTest(path=path):
                self.setUp()
                clients = [self.post(path, listener=listener) for _ in range(3)]

                self.assertEqual([b"", b""], [client.came for client in clients[:2]])
                self.assertTrue(clients[2].came.startswith(b"HTTP/1.1 503 "), clients[2].came)
                self.assertIn(b"\r\nRetry-After: 30\r\n", clients[2].came)
                self.assertLess(self.net.node.partial_input.bytes, 200_000)
                for client in clients:
                    client.transport.loseConnection()
                self.net.pump()
                self.assertEqual(0, self.net.node.partial_input.bytes)

    def test_once_it_is_answered_a_body_counts_no_more(self) -> None:
        """
        Once it is answered a body counts no more.
        """
        client = self.post()
        self.assertEqual(100_000 - FREE_BYTES, self.net.node.partial_input.bytes)

        client.transport.write(b"x" * 400_000)
        self.net.pump()

        self.assertTrue(client.came.startswith(b"HTTP/1.1 "), client.came[:100])
        self.assertEqual(0, self.net.node.partial_input.bytes)
