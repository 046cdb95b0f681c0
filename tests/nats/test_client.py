"""
The client: messages, subscriptions, requests, flush, drain and close, over a connection in memory.
"""

from typing import Any

from twisted.internet.defer import CancelledError
from twisted.logger import globalLogPublisher

from msgnode.nats.errors import (
    BufferFull,
    Closed,
    ConnectionLost,
    NoResponders,
    PayloadTooLarge,
    RequestTimeout,
    SubjectError,
)
from msgnode.nats.link import MAX_PINGS
from msgnode.nats.wire.message import Message
from tests.support.nats_network import NatsCase


class MessageTests(NatsCase):
    """
    A client that is connected.
    """

    def setUp(self) -> None:
        super().setUp()
        self.client = self.connected()
        self.found: list[Message] = []

    def sent(self) -> bytes:
        """
        The bytes that the server got by the end of this turn.
        """
        self.turn()
        return self.end.taken()

    def test_publish(self) -> None:
        """
        Publications leave in their order, with headers as HPUB.
        """
        self.client.publish("a")
        self.client.publish("a.b", b"hi", reply="r")
        self.client.publish("a", b"hi", headers={"K": "v"})

        expected = b"PUB a 0\r\n\r\nPUB a.b r 2\r\nhi\r\nHPUB a 18 20\r\nNATS/1.0\r\nK: v\r\n\r\nhi\r\n"
        self.assertEqual(expected, self.sent())

    def test_wrong_publications(self) -> None:
        """
        A publication that cannot be sent is refused, and nothing of it leaves.
        """
        self.end.info(max_payload=10)
        self.assertRaises(SubjectError, self.client.publish, "a b")
        self.assertRaises(SubjectError, self.client.publish, "a", reply="*")
        self.assertRaises(PayloadTooLarge, self.client.publish, "a", b"x" * 11)
        self.assertRaises(PayloadTooLarge, self.client.publish, "a", b"", headers={"a": "b"})
        self.client.publish("a", b"x" * 10)

        self.assertEqual(b"PUB a 10\r\nxxxxxxxxxx\r\n", self.sent())

    def test_server_without_headers(self) -> None:
        """
        Headers are refused where the server does not support them.
        """
        self.end.info(headers=False)
        self.assertRaises(SubjectError, self.client.publish, "a", b"", headers={"a": "b"})

    def test_full(self) -> None:
        """
        When too much waits, a publication is refused, and the listener hears of it and of the room later.
        """
        client = self.connected(max_pending_bytes=100)
        client.publish("a", b"x" * 80)
        self.assertRaises(BufferFull, client.publish, "a", b"x" * 80)
        self.turn()

        self.assertEqual(["full", "has_room"], self.heard.names()[-2:])
        self.assertEqual(0, client.pending_bytes)

    def test_subscription(self) -> None:
        """
        A callback gets the messages of its subscription, until that ends.
        """
        subscription = self.client.subscribe("a.*", self.found.append, queue="q")
        self.assertEqual(b"SUB a.* q 1\r\n", self.sent())
        self.end.send(b"MSG a.b 1 r 2\r\nhi\r\nMSG a.b 2 2\r\nno\r\nHMSG a.c 1 12 12\r\nNATS/1.0\r\n\r\n\r\n")
        self.assertEqual(
            [Message("a.b", "r", b"hi"), Message("a.c", "", b"", b"NATS/1.0\r\n\r\n")], self.found
        )
        subscription.unsubscribe()
        subscription.unsubscribe()
        self.assertEqual(b"UNSUB 1\r\n", self.sent())
        self.end.send(b"MSG a.b 1 2\r\nhi\r\n")

        self.assertEqual((2, 2), (len(self.found), subscription.received))

    def test_subject_that_is_not_utf_8(self) -> None:
        """
        A subject that is not UTF-8 can be answered.
        """
        self.client.subscribe(">", lambda message: self.client.publish(message.reply, b""))
        self.sent()
        self.end.send(b"MSG \xff 1 r.\xfe 0\r\n\r\n")

        self.assertEqual(b"PUB r.\xfe 0\r\n\r\n", self.sent())

    def test_maximum(self) -> None:
        """
        A subscription ends after so many messages in all, even if some came before.
        """
        subscription = self.client.subscribe("a", self.found.append)
        self.sent()
        message = b"MSG a 1 0\r\n\r\n"
        self.end.send(message)
        subscription.unsubscribe(3)
        self.assertEqual(b"UNSUB 1 3\r\n", self.sent())
        self.end.send(message * 4)
        self.assertEqual(3, len(self.found))

        late = self.client.subscribe("b", self.found.append)
        self.end.send(b"MSG b 2 0\r\n\r\n")
        late.unsubscribe(1)
        self.assertFalse(late.is_open)

    def test_failing_callback(self) -> None:
        """
        A callback that raises is logged, and the next messages are delivered.
        """
        logged: list[Any] = []
        globalLogPublisher.addObserver(logged.append)
        self.addCleanup(globalLogPublisher.removeObserver, logged.append)
        self.client.subscribe("a", lambda message: 1 / 0)
        self.client.subscribe("a", self.found.append)
        self.end.send(b"MSG a 1 0\r\n\r\nMSG a 2 0\r\n\r\n")

        self.assertEqual(1, len(self.flushLoggedErrors(ZeroDivisionError)))
        self.assertEqual(1, len(self.found))
        self.assertIn("a", [event.get("subject") for event in logged])

    def test_flush(self) -> None:
        """
        A flush is answered by the server after all that was sent before it.
        """
        self.client.publish("a")
        flushed = self.client.flush()
        self.assertEqual(b"PUB a 0\r\n\r\nPING\r\n", self.sent())
        self.assertNoResult(flushed)
        self.end.send(b"PONG\r\n")

        self.assertIsNone(self.successResultOf(flushed))

    def test_flushes(self) -> None:
        """
        Each of several flushes has its own answer; one that is too late does not take that of the next.
        """
        first, second = self.client.flush(1.0), self.client.flush(9.0)
        self.turn(1)
        self.failureResultOf(first, RequestTimeout)
        self.end.send(b"PONG\r\n")
        self.assertNoResult(second)
        self.end.send(b"PONG\r\n")

        self.successResultOf(second)

    def test_too_many_flushes(self) -> None:
        """
        Only so many flushes wait at once.
        """
        waiting = [self.client.flush() for _ in range(MAX_PINGS)]
        self.failureResultOf(self.client.flush(), BufferFull)
        self.client.close()

        for each in waiting:
            self.failureResultOf(each, ConnectionLost)

    def test_drain_of_a_subscription(self) -> None:
        """
        A subscription that is drained hears what was under way, then ends.
        """
        subscription = self.client.subscribe("a", self.found.append)
        drained = subscription.drain()
        self.assertEqual(b"SUB a 1\r\nUNSUB 1\r\nPING\r\n", self.sent())
        self.end.send(b"MSG a 1 0\r\n\r\nPONG\r\nMSG a 1 0\r\n\r\n")

        self.successResultOf(drained)
        self.assertEqual((1, False), (len(self.found), subscription.is_open))

    def test_drain(self) -> None:
        """
        A client that is drained delivers, sends what its callbacks publish, and closes; it takes nothing new.
        """
        self.client.subscribe("a", lambda message: self.client.publish("done"))
        self.sent()
        drained = self.client.drain()
        self.assertIs(drained, self.client.drain())
        self.assertRaises(Closed, self.client.subscribe, "b", print)
        self.failureResultOf(self.client.request("b"), Closed)
        self.assertEqual(b"UNSUB 1\r\nPING\r\n", self.sent())
        self.end.send(b"MSG a 1 0\r\n\r\nPONG\r\n")
        self.assertEqual(b"PUB done 0\r\n\r\nPING\r\n", self.sent())
        self.end.send(b"PONG\r\n")
        self.turn()

        self.successResultOf(drained)
        self.assertTrue(self.end.is_closed)

    def test_drain_without_answer(self) -> None:
        """
        A drain that the server does not answer in time fails, and the client is closed.
        """
        drained = self.client.drain(3.0)
        self.turn(3)
        self.turn()

        self.failureResultOf(drained, RequestTimeout)
        self.assertTrue(self.end.is_closed)

    def test_close(self) -> None:
        """
        A client that is closed has sent what it had, and leaves no timer and no connection.
        """
        self.client.subscribe("a", self.found.append)
        waiting, flushed = self.client.request("b"), self.client.flush()
        self.client.publish("c")
        closed = self.client.close()
        self.turn()

        self.successResultOf(closed)
        self.failureResultOf(waiting, Closed)
        self.failureResultOf(flushed, ConnectionLost)
        self.assertIn(b"PUB c 0\r\n\r\n", self.end.taken())
        self.assertTrue(self.end.is_closed)
        self.assertEqual([], self.clock.getDelayedCalls())
        self.assertRaises(Closed, self.client.publish, "a")
        self.assertRaises(Closed, self.client.subscribe, "a", print)
        self.failureResultOf(self.client.flush(), Closed)
        self.failureResultOf(self.client.connect(), Closed)

    def test_close_within_a_callback(self) -> None:
        """
        A callback may close the client; later messages of the same read are dropped.
        """
        self.client.subscribe("a", lambda message: (self.found.append(message), self.client.close()))
        self.sent()
        self.end.send(b"MSG a 1 0\r\n\r\nMSG a 1 0\r\n\r\n")
        self.turn()

        self.assertEqual(1, len(self.found))
        self.assertEqual([], self.clock.getDelayedCalls())


class RequestTests(NatsCase):
    """
    Requests and their answers.
    """

    def setUp(self) -> None:
        super().setUp()
        self.client = self.connected()

    def ask(self, **options: Any) -> Any:
        answer = self.client.request("a", b"?", **options)
        self.turn()
        return answer

    def test_answers(self) -> None:
        """
        One subscription serves all requests, and each gets its own answer.
        """
        first, second = self.ask(), self.ask()
        sent = b"SUB _INBOX.me.* 1\r\nPUB a _INBOX.me.1 1\r\n?\r\nPUB a _INBOX.me.2 1\r\n?\r\n"
        self.assertEqual(sent, self.end.taken())
        self.end.send(b"MSG _INBOX.me.2 1 1\r\n2\r\nMSG _INBOX.me.1 1 1\r\n1\r\nMSG _INBOX.me.1 1 1\r\n3\r\n")

        self.assertEqual([b"1", b"2"], [self.successResultOf(each).payload for each in (first, second)])

    def test_headers(self) -> None:
        """
        A request may have headers.
        """
        self.ask(headers={"a": "b"})

        self.assertIn(b"HPUB a _INBOX.me.1 18 19\r\n", self.end.taken())

    def test_no_responders(self) -> None:
        """
        A request without responders fails; an answer with another status does not.
        """
        first, second = self.ask(), self.ask()
        self.end.send(b"HMSG _INBOX.me.1 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n")
        self.end.send(b"HMSG _INBOX.me.2 1 16 16\r\nNATS/1.0 404\r\n\r\n\r\n")

        self.failureResultOf(first, NoResponders)
        self.assertEqual(404, self.successResultOf(second).status)

    def test_timeout(self) -> None:
        """
        A request fails after its time; a late answer is ignored.
        """
        answer = self.ask(timeout=2.0)
        self.turn(2)
        self.failureResultOf(answer, RequestTimeout)
        self.end.send(b"MSG _INBOX.me.1 1 1\r\n2\r\n")

    def test_cancelled(self) -> None:
        """
        A request that is cancelled waits no more, and leaves no timer.
        """
        before = len(self.clock.getDelayedCalls())
        answer = self.ask()
        answer.cancel()

        self.failureResultOf(answer)
        self.assertEqual(before, len(self.clock.getDelayedCalls()))

    def test_too_many(self) -> None:
        """
        Only so many requests wait at once; one that is cancelled waits no more.
        """
        self.client = self.connected(max_requests=1)
        first, second = self.ask(), self.ask()

        self.assertNoResult(first)
        self.failureResultOf(second, BufferFull)
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.assertNoResult(self.ask())

    def test_wrong(self) -> None:
        """
        A request that cannot be published fails, and does not wait.
        """
        self.failureResultOf(self.client.request("a b"), SubjectError)
        self.failureResultOf(self.client.request("a", b"x" * 2**21), PayloadTooLarge)
