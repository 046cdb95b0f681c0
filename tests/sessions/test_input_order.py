"""
Input order: the frames of a connection that wait while one of them is worked on.
"""

import json
from typing import Any

from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from msgnode.connectors.lines import LineFactory
from msgnode.node import Node
from msgnode.protocol.close_codes import OVER_CAPACITY
from msgnode.sessions.input_order import (
    FRAME_OVERHEAD_BYTES,
    MAX_BUFFERED_BYTES,
    MAX_TURN_BYTES,
    MAX_UNSTOPPED_BYTES,
    Work,
)
from msgnode.sessions.routing import SUBSCRIBED
from msgnode.structures.time_slices import ADDRESSES
from msgnode.transport.cork import Cork
from tests.support.durable import SM
from tests.support.fakes import Client, MemoryNode
from tests.support.http_client import HTTPClient
from tests.support.network import Network
from tests.support.socketio_runtime import SocketWebSocketRuntime


class HoldingTests(SynchronousTestCase):
    """
    A client and somebody who listens to it.
    """

    def setUp(self) -> None:
        self.node = MemoryNode()
        self.input_order = self.node.input_order
        self.client, self.listener = Client(self.node), Client(self.node)
        self.client.open("runtime://example.org/a")
        self.listener.open("runtime://example.org/b")
        self.listener.subscribe("a:b")
        self.listener.take()

    def say(self, number: int, **body: Any) -> None:
        self.client.tell(
            {"id": number, "type": "update", "from": "runtime://example.org/a", "to": "a:b", "body": body}
        )

    def heard(self) -> list[int]:
        return [message["id"] for message in self.listener.take()]

    def test_what_comes_behind_a_message_that_is_worked(self) -> None:
        """
        What comes behind a message that is worked on is carried after it, in the order it came.
        """
        work = self.input_order.hold(self.client)
        self.say(1)
        self.say(2)
        self.assertEqual([], self.heard())

        self.assertTrue(self.input_order.release(work, lambda: self.say(0)))

        self.assertEqual([0, 1, 2], self.heard())
        self.assertFalse(self.input_order.pending)

    def test_newer_waits_for_the_last_frame_too(self) -> None:
        """
        A newer connection waits for the last frame of the older one, though that takes its time as well.
        """
        work, works = self.input_order.hold(self.client), []
        data = json.dumps({"id": 2, "type": "ping", "from": "", "to": "x:y"}).encode()
        self.input_order.buffer(data, self.client, lambda: works.append(self.input_order.hold(self.client)))
        newer = Client(self.node)
        newer.reopen(f"runtime://example.org/a/{self.client.token}")
        newer.tell({"id": 5, "type": "update", "from": "runtime://example.org/a", "to": "a:b"})

        self.input_order.release(work)
        self.node.clock.advance(0)
        self.assertEqual([], self.heard())
        self.input_order.release(works[0])
        self.node.clock.advance(0)

        self.assertEqual([5], self.heard())

    def test_what_waits_for_all_connections_of_a_host_is_bounded(self) -> None:
        """
        What waits for all connections of a host is bounded together; who brings too much is closed.
        """
        self.node.config.limits.partial_bytes_per_ip = 20_000
        other = Client(self.node)
        other.open("runtime://example.org/c")
        for client in (self.client, other):
            self.input_order.hold(client)
        self.say(1, value="x" * 15_000)
        self.assertGreater(self.node.partial_input.bytes, 10_000)

        other.post("a:b", "update", body={"value": "x" * 15_000})

        self.assertEqual([None, OVER_CAPACITY], [client.lost for client in (self.client, other)])
        self.client.drop()
        self.input_order.release(self.input_order.pending[self.client].works[0])
        self.assertEqual(0, self.node.partial_input.bytes)

    def test_other_connections_do_not_wait(self) -> None:
        """
        Other connections do not wait.
        """
        self.input_order.hold(self.client)
        other = self.node.client("runtime://example.org/c")

        other.tell({"id": 5, "type": "update", "from": "runtime://example.org/c", "to": "a:b"})

        self.assertEqual([5], self.heard())

    def test_one_by_which_the_same_session_client_came_back_does(self) -> None:
        """
        One by which the same session's client came back does: its messages are carried in order.
        """
        work = self.input_order.hold(self.client)
        newer = Client(self.node)
        newer.reopen(f"runtime://example.org/a/{self.client.token}")
        self.say(4)
        newer.tell({"id": 5, "type": "update", "from": "runtime://example.org/a", "to": "a:b"})
        newest = Client(self.node)
        newest.reopen(f"runtime://example.org/a/{self.client.token}")
        newest.tell({"id": 6, "type": "update", "from": "runtime://example.org/a", "to": "a:b"})
        self.assertEqual([], self.heard())

        self.input_order.release(work)
        self.node.clock.advance(0)

        self.assertEqual([4, 5, 6], self.heard())
        self.assertFalse(self.input_order.pending)

    def test_long_row(self) -> None:
        """
        However many times its client comes back meanwhile, one behind the other, all go on.
        """
        work = self.input_order.hold(self.client)
        numbers = range(5, 505)
        for number in numbers:
            newer = Client(self.node)
            newer.reopen(f"runtime://example.org/a/{self.client.token}")
            newer.tell({"id": number, "type": "update", "from": "runtime://example.org/a", "to": "a:b"})

        self.input_order.release(work)
        self.node.clock.advance(0)

        self.assertEqual([*numbers], self.heard())
        self.assertFalse(self.input_order.pending)

    def test_behind_each_other(self) -> None:
        """
        A client that comes back by two connections at once, each behind what the other sent, waits for ever
        on neither.
        """
        runtime = self.client.runtime
        newer = Client(self.node)
        many = [f"comm://example.org/{number}" for number in range(4 * ADDRESSES)]
        subscribe = {"id": 7, "type": "subscribe", "from": runtime, "to": SM}
        back = {"id": 7, "type": "re-open", "from": f"{runtime}/{self.client.token}", "to": "mn:/session"}

        self.client.tell({**subscribe, "body": {"resources": many}})
        self.client.tell(back)
        self.client.tell({**subscribe, "body": {"resources": ["a:c"]}})
        newer.tell(back)
        newer.tell({**subscribe, "body": {"resources": ["a:d"]}})
        self.node.clock.pump([0.001] * 50)

        heard = self.client.take() + newer.take()
        self.assertEqual([200] * 5, [message["body"]["code"] for message in heard])
        self.assertEqual({*many, "a:c", "a:d"}, set(self.node.sessions.get(runtime).bindings))
        self.assertFalse(self.input_order.pending)

    def test_where_two_messages_of_a_connection_are_worked(self) -> None:
        """
        Where two messages of a connection are worked on at once, what is behind waits for both.
        """
        one, other = self.input_order.hold(self.client), self.input_order.hold(self.client)
        self.say(1)

        self.input_order.release(one)
        self.assertEqual([], self.heard())
        self.input_order.release(other)

        self.assertEqual([1], self.heard())

    def test_in_sequence(self) -> None:
        """
        A frame that waited may take its time as well; what is behind it goes on waiting, in order.
        """
        first, works = self.input_order.hold(self.client), []
        self.say(1)
        data = json.dumps({"id": 2, "type": "ping", "from": "", "to": "x:y"}).encode()
        self.input_order.buffer(data, self.client, lambda: works.append(self.input_order.hold(self.client)))
        self.say(3)
        over = self.input_order.settled(self.client)

        self.input_order.release(first)
        self.assertEqual([1], self.heard())
        self.assertNoResult(over)
        self.assertFalse(self.client.reading)
        self.input_order.release(works[0])

        self.assertEqual([3], self.heard())
        self.successResultOf(over)
        self.assertTrue(self.client.reading)

    def test_unreadable_frames_wait_too(self) -> None:
        """
        A frame that is not even text is counted in its place among the others.
        """
        work = self.input_order.hold(self.client)
        self.say(1)
        self.node.reject_undecodable(b"\xff", "not UTF-8 at byte 0", self.client)
        self.assertEqual([], self.client.errors)

        self.input_order.release(work)

        self.assertEqual([1], self.heard())
        self.assertEqual([("not UTF-8 at byte 0", 400)], self.client.errors)

    def test_patience(self) -> None:
        """
        Work with a patience is given up after it, and what waited behind it is not carried.
        """
        given_up: list[int] = []
        work = self.input_order.hold(self.client, lambda: given_up.append(1), 2.5)
        self.say(1)

        self.node.clock.advance(2.5)

        self.assertEqual([1], given_up)
        self.assertFalse(self.input_order.release(work))
        self.assertEqual([], self.heard())
        self.say(2)
        self.assertEqual([2], self.heard())

    def test_behind_work_that_can_be_given_up_no_more_than_64(self) -> None:
        """
        Behind work that can be given up no more than 64 KiB wait.
        """
        given_up: list[int] = []
        self.input_order.hold(self.client, lambda: given_up.append(1))

        while not given_up:
            self.assertLessEqual(self.input_order.buffered_bytes, MAX_BUFFERED_BYTES)
            self.say(1, value="x" * 1000)

        self.assertEqual(0, self.input_order.buffered_bytes)

    def test_goes_on_sending(self) -> None:
        """
        A client that cannot be kept from sending is closed in the end, and may come back.
        """
        self.input_order.hold(self.client)

        while self.client.lost is None:
            self.assertLess(self.input_order.buffered_bytes, MAX_UNSTOPPED_BYTES + 70_000)
            self.say(1, value="x" * 60_000)

        self.assertEqual(1013, self.client.lost.code)
        self.assertIsNotNone(self.client.lost.retry_after)
        self.assertEqual(0, self.input_order.buffered_bytes)

    def test_thousands_of_small_frames_that_waited_are_taken(self) -> None:
        """
        Thousands of small frames that waited are taken some in a turn, before what comes meanwhile.
        """
        work = self.input_order.hold(self.client)
        for number in range(1000):
            self.say(number)
        self.input_order.release(work)
        most = MAX_TURN_BYTES // FRAME_OVERHEAD_BYTES
        heard = self.heard()
        self.assertLess(len(heard), most)
        self.say(1000)

        while self.input_order.pending:
            self.node.clock.turn()
            some = self.heard()
            self.assertLess(len(some), most)
            heard += some

        self.assertEqual(list(range(1001)), heard)

    def test_nothing_more_is_taken_from_a_client_that_is_gone(self) -> None:
        """
        Nothing more is taken from a client that is gone, and nothing is left of it.
        """
        work = self.input_order.hold(self.client)
        self.say(1)
        over = self.input_order.settled(self.client)
        self.client.drop()

        self.input_order.release(work)

        self.assertEqual([], self.heard())
        self.successResultOf(over)
        self.assertFalse(self.input_order.pending)

    def test_not_read(self) -> None:
        """
        Meanwhile nothing is read from a client's socket.
        """
        transport = StringTransport()
        transport.setTcpNoDelay = transport.setTcpKeepAlive = lambda on: None  # type: ignore[attr-defined]
        line = LineFactory(self.node, Cork(self.node.settle), self.node.clock).buildProtocol(None)
        line.makeConnection(transport)

        work = self.input_order.hold(line)
        self.assertEqual("paused", transport.producerState)
        self.input_order.release(work)

        self.assertEqual("producing", transport.producerState)


class Working(Client):
    """
    A recipient that lets the node be at work on what it is sent, until `release`.
    """

    work: Work

    def __init__(self, node: Node, connector: str) -> None:
        super().__init__(node)
        self.sender = connector

    def send(self, data: bytes) -> None:
        super().send(data)
        if self.session is not None and b"mn:/session" not in data:
            found = [each for each in self.node.sessions.connections if each.connector == self.sender]
            self.work = self.node.input_order.hold(found[0])


class AnswersTests(SynchronousTestCase):
    """
    What tells a client that its message was taken is not said before the node's work on it is done.
    """

    def listen(self, net: Network, connector: str) -> Working:
        listener = Working(net.node, connector)
        listener.open("runtime://example.org/b")
        net.node.routes.bind("a:b", listener.session, SUBSCRIBED)
        return listener

    def test_post_to_message_is_answered_202_then(self) -> None:
        """
        A POST to /message is answered 202 then.
        """
        net = Network()
        listener = self.listen(net, "rest")
        client = HTTPClient(net)
        client.start("POST", "/message", json.dumps({"id": 1, "type": "update", "to": "a:b"}).encode())
        net.pump()
        self.assertIsNone(client.response)

        net.node.input_order.release(listener.work)
        net.pump()

        self.assertEqual(202, client.response.status)

    def test_socketio(self) -> None:
        """
        An event of Socket.IO that asks for it is acknowledged then.
        """
        net = Network()
        listener = self.listen(net, "socketio")
        runtime = SocketWebSocketRuntime(net, "runtime://example.org/a").open()
        message = {"id": 1, "type": "update", "from": runtime.url, "to": "a:b"}
        runtime.packets.clear()
        runtime.say(b"427" + json.dumps(["message", message]).encode())
        net.pump()
        self.assertNotIn(b"437[]", runtime.packets)

        net.node.input_order.release(listener.work)
        net.pump()

        self.assertIn(b"437[]", runtime.packets)
