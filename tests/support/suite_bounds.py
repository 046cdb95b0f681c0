"""
Bounds, on every connector: long messages, slow readers, connections that end in the middle of something.
"""

from typing import Any

from tests.support.runtimes import Runtime, dumps
from tests.support.suite import Suite

LIMIT = 20_000


def of_size(size: int, to: str) -> bytes:
    """
    An update of that many bytes.
    """
    data = dumps({"id": 1, "type": "update", "from": "x", "to": to, "body": {"value": "VALUE"}})
    return data.replace(b"VALUE", b"v" * (size - len(data) + 5))


class Limits(Suite):
    """
    How long a message may be.
    """

    closes = False  # is the connection closed over a message that is too long

    def test_limit_is_exact(self: Any) -> None:
        """
        A message of the configured size passes, also with others in one read; one more byte is refused.
        """
        self.restart(limits={"message_bytes": LIMIT})
        sender, receiver, other = self.client(), self.client("b"), self.client("c")
        for size in (LIMIT - 1, LIMIT):
            data, small = of_size(size, receiver.url), of_size(200, receiver.url)
            sender.send(data, small)
            self.net.pump()

            self.assertEqual([data, small], receiver.raw)
            receiver.take()
        self.assertTooLong(sender, receiver, other, LIMIT + 1)

    def test_much_too_long(self: Any) -> None:
        """
        Nor does one of many times the size pass.
        """
        self.restart(limits={"message_bytes": LIMIT})
        sender, receiver, other = self.client(), self.client("b"), self.client("c")

        self.assertTooLong(sender, receiver, other, 2 * LIMIT)
        sender.come_back()
        self.assertTooLong(sender, receiver, other, 100 * LIMIT)

    def assertTooLong(self: Any, sender: Runtime, receiver: Runtime, other: Runtime, size: int) -> None:
        """
        Refused with 1009 on WebSocket and 413 elsewhere; what follows works where the connection lives.
        """
        reply = sender.attempt(of_size(size, receiver.url))

        self.assertEqual([], receiver.take())
        if self.closes:
            self.assertIsNone(reply)
            self.assertClosed(sender, 1009)
        else:
            self.assertRefused(reply, 413)
            self.assertReaches(sender, receiver)
        self.assertReaches(other, receiver)


class DefaultLimit(Suite):
    """
    The limit an operator gets without asking; once for each way to send.
    """

    def test_default_limit(self: Any) -> None:
        """
        Exactly 8,388,608 bytes pass.
        """
        sender, receiver = self.client(), self.client("b")
        data = of_size(8_388_608, receiver.url)

        sender.send(data)
        self.net.pump()

        self.assertTrue([data] == receiver.raw)
        receiver.raw.clear()
        self.assertReaches(sender, receiver)

    def test_above_default_limit(self: Any) -> None:
        """
        One byte more does not.
        """
        sender, receiver = self.client(), self.client("b")

        sender.attempt(of_size(8_388_609, receiver.url))

        self.assertEqual([], receiver.take())


class Slow(Suite):
    """
    Clients that do not read, and connections that end in the middle.
    """

    reached = 1  # who reads is at the same node as who does not

    def test_never_reads(self: Any) -> None:
        """
        For a client that does not read as much waits as may; then it is cut off 4413. Others are well.
        """
        self.restart(session={"queue_messages": 20})
        deaf, other, sender = self.client(), self.client("b"), self.client("c")
        self.subscribe(deaf, "comm://d/1/changes")
        self.subscribe(other, "comm://d/1/changes")
        deaf.stop_reading()
        body = {"value": "v" * 5000}
        updates = [
            {"id": n, "type": "update", "from": "x", "to": "comm://d/1/changes", "body": body}
            for n in range(100)
        ]

        for number, message in enumerate(updates):
            sender.send(message)
            self.assertEqual([message], other.take(), number)

        session = self.net.node.sessions.get(deaf.url)
        self.assertLessEqual(session.mailbox.queued, 20)
        self.assertGreater(self.net.node.counts.overflowed, 0)
        last = self.net.traffic_recorder.messages[-1]
        self.assertEqual((self.reached, 1), (last["recipients"], last["waiting"]))
        self.assertIsNone(session.connection)
        deaf.read_again()
        self.assertTold(deaf)

    def assertTold(self: Any, deaf: Runtime) -> None:
        self.assertClosed(deaf, 4413)
        self.assertEqual(5, deaf.retry_after)

    def test_newest_after_overflow(self: Any) -> None:
        """
        When it comes back the newest messages are there, in order.
        """
        self.restart(session={"queue_messages": 20})
        deaf, sender = self.client(), self.client("b")
        deaf.stop_reading()
        for n in range(100):
            body = {"value": "v" * 5000}
            sender.send({"id": n, "type": "update", "from": "x", "to": deaf.url, "body": body})

        deaf.drop()
        deaf.take()
        deaf.come_back()

        got = [message["id"] for message in deaf.take() if message["type"] == "update"]
        self.assertEqual(list(range(80, 100)), got[-20:])
        self.assertEqual(sorted(got), got)

    def test_gone_for_good(self: Any) -> None:
        """
        A client that was cut off and never reads again is disconnected all the same.
        """
        self.restart(session={"queue_messages": 20})
        deaf, sender = self.client(), self.client("b")
        deaf.stop_reading()
        for n in range(50):
            body = {"value": "v" * 5000}
            sender.send({"id": n, "type": "update", "from": "x", "to": deaf.url, "body": body})

        self.net.advance(125)

        self.assertEqual(1, len(self.net.node.sessions.connections))
        self.assertTrue(deaf.link.over)

    def test_slow_for_a_while(self: Any) -> None:
        """
        A client that reads again before too much waits misses nothing.
        """
        deaf, sender = self.client(), self.client("b")
        updates = [
            {"id": n, "type": "update", "from": "x", "to": deaf.url, "body": {"value": "v" * 2000}}
            for n in range(100)
        ]
        deaf.stop_reading()

        for message in updates[:90]:
            sender.send(message)
        self.assertGreater(self.net.node.sessions.get(deaf.url).mailbox.queued, 30)
        deaf.read_again()
        sender.send(*updates[90:])

        self.assertEqual(updates, deaf.take())
        self.assertEqual(0, self.net.node.counts.overflowed)

    def test_deaf_asker(self: Any) -> None:
        """
        A client that asks and asks and reads no answer is bounded like any other.
        """
        self.restart(session={"queue_messages": 20})
        deaf, other = self.client(), self.client("b")
        deaf.stop_reading()
        read = {"id": "i" * 1000, "type": "read", "from": "f" * 1000, "to": "domain://registry.example.org"}

        for _ in range(200):
            deaf.send(read)

        self.assertIsNone(self.net.node.sessions.get(deaf.url).connection)
        self.assertReaches(other, other)

    def assertBounded(self: Any, deaf: Runtime, *messages: Any) -> None:
        """
        However often it asks, little is held for a client that does not read, and it is cut off.
        """
        other = self.client("b")
        deaf.stop_reading()

        for _ in range(8):
            deaf.send(*messages)
            self.assertLess(deaf.link.serverIO.size, 300_000)
        self.net.advance(60)

        self.assertTrue(deaf.link.over)
        self.assertReaches(other, other)

    def test_dropped_in_the_middle(self: Any) -> None:
        """
        A message whose connection ends before it has come whole is not carried; the session stays.
        """
        runtime, other = self.client(), self.client("b")
        message = {"id": 1, "type": "ping", "from": "x", "to": other.url, "body": {"value": "v" * 300}}

        runtime.send_half(message)
        runtime.drop()

        self.assertEqual([], other.take())
        runtime.come_back()
        self.assertReaches(runtime, other)
        self.assertReaches(other, runtime)


class Deaf(Slow):
    """
    Clients that do not read what is answered past their session.
    """

    def test_deaf_opener(self: Any) -> None:
        """
        A client that opens its session without end, and reads no answer, is cut off.
        """
        deaf = self.client()
        message = {"id": 1, "type": "open", "from": deaf.url, "to": "mn:/session"}

        self.assertBounded(deaf, *[message] * 300)

    def ping(self, number: int) -> dict[str, Any]:
        return {"id": f"{number:0>500}", "type": "ping", "from": "f" * 500, "to": "mn:/session"}

    def test_deaf_pinger(self: Any) -> None:
        """
        Who pings without end, and reads no answer, is not read from; once it reads, it gets all of them.
        """
        deaf, other = self.client(), self.client("b")
        wire = deaf.link.serverIO
        deaf.stop_reading()

        for turn in range(6):
            deaf.send(*[self.ping(n) for n in range(100 * turn, 100 * turn + 100)])

        self.assertLess(wire.size, 350_000)
        self.assertTrue(wire.deaf)
        self.assertEqual(1, self.net.node.counts.unread_answers)
        self.assertReaches(other, other)
        deaf.read_again()
        self.assertEqual([f"{n:0>500}" for n in range(600)], [answer["id"] for answer in deaf.take()])
        self.assertFalse(wire.deaf)

    def test_deaf_pinger_goes(self: Any) -> None:
        """
        If it goes without having read, nothing of it is left, and its session can be opened again.
        """
        deaf = self.client()
        deaf.stop_reading()
        deaf.send(*[self.ping(n) for n in range(600)])

        deaf.drop()
        self.net.advance(1)

        self.assertTrue(deaf.link.over)
        self.assertEqual(0, self.net.node.slices.at_work)
        deaf.come_back()
        self.assertReaches(deaf, deaf)

    def test_deaf_sender(self: Any) -> None:
        """
        Who does not read what others send it may go on sending.
        """
        deaf, other = self.client(), self.client("b")
        deaf.stop_reading()
        for n in range(40):
            other.send(
                {"id": n, "type": "update", "from": "x", "to": deaf.url, "body": {"value": "v" * 9000}}
            )

        deaf.send(*[{"id": n, "type": "update", "from": "x", "to": other.url} for n in range(1000)])

        self.assertEqual(list(range(1000)), [message["id"] for message in other.take()])

    def test_deaf_stranger(self: Any) -> None:
        """
        So is one that never opens a session and sends all the same.
        """
        message = {"id": "i" * 500, "type": "create", "from": "f" * 500, "to": "x"}

        self.assertBounded(self.arrive(), *[message] * 50)
