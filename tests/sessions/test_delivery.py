"""
What waits: for a session that is away, for a client that does not read, for the node's end.
"""

from twisted.internet.testing import EventLoggingObserver
from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from msgnode.protocol.close_codes import SLOW, STOPPING
from tests.support.fakes import Client, MemoryNode

RUNTIME = "runtime://example.org/1"
OTHER = "runtime://example.org/2"


def update(n: int) -> dict:
    return {"id": n, "type": "update", "from": "comm://example.org/1", "to": f"{RUNTIME}/x"}


class DeliveryTests(SynchronousTestCase):
    """
    A node and a sender.
    """

    def setUp(self) -> None:
        self.restart()

    def restart(self, **sections: object) -> None:
        self.node = MemoryNode(**sections)
        self.sender = self.node.client(OTHER)


class AwayTests(DeliveryTests):
    """
    What is sent to a runtime that is away waits for it.
    """

    def away(self) -> Client:
        client = self.node.client(RUNTIME)
        client.subscribe("comm://d/1")
        client.drop()
        return client

    def back(self) -> list[int]:
        """
        The runtime comes back; the ids of what it is given behind the answer.
        """
        client = self.node.client()
        client.tell({"id": 0, "type": "open", "from": RUNTIME, "to": "mn:/session"})
        self.sender.tell(update(99))
        got = client.take()
        self.assertEqual((200, 99), (got[0]["body"]["code"], got[-1]["id"]))
        return [message["id"] for message in got[1:-1]]

    def test_it_comes_after_the_answer_to_open_in_order_before(self) -> None:
        """
        It comes after the answer to `open`, in order, before what is new, and once.
        """
        self.away()
        for n in range(5):
            self.sender.tell(update(n))

        self.assertEqual([0, 1, 2, 3, 4], self.back())
        self.assertEqual([], self.back())
        self.assertEqual(["waiting"] * 5, self.node.traffic_recorder.outcomes[-9:-4])
        self.assertEqual(5, self.node.counts.waited)

    def test_requests_are_dropped_after_15_s_responses_after_60(self) -> None:
        """
        Requests are dropped after 15 s, responses after 60 s, and counted; the rest is kept.
        """
        for seconds, left in ((14.9, [1, 0, 2, 3]), (15, [1, 2, 3]), (60, [2, 3]), (86_000, [2, 3])):
            self.restart()
            self.away()
            for n, (type, to) in enumerate(
                (("create", "x"), ("response", "x"), ("update", "x"), ("create", "children/"))
            ):
                self.sender.tell({"id": n, "type": type, "from": "a", "to": f"{RUNTIME}/{to}"})

            self.node.clock.advance(seconds)

            self.assertEqual(left, self.back())
            self.assertEqual(4 - len(left), self.node.counts.stale)

    def test_when_more_comes_than_may_wait_the_oldest_goes(self) -> None:
        """
        When more comes than may wait the oldest goes, and is counted; the session stays.
        """
        self.restart(session={"queue_messages": 3})
        self.away()
        for n in range(5):
            self.sender.tell(update(n))

        self.assertEqual([2, 3, 4], self.back())
        self.assertEqual(2, self.node.counts.overflowed)

    def test_overflow_of_bytes(self) -> None:
        """
        The bound in bytes holds like the one in messages.
        """
        big = {**update(1), "body": {"value": "x" * 1000}}
        self.restart(limits={"message_bytes": 2000}, session={"queue_bytes": 2500})
        self.away()
        for n in range(4):
            self.sender.tell({**big, "id": n})

        self.assertLessEqual(self.node.sessions.get(RUNTIME).mailbox.queued_bytes, 2500)
        self.assertEqual([2, 3], self.back())

    def test_gone_with_session(self) -> None:
        """
        What waits goes with its session.
        """
        self.away()
        self.sender.tell(update(1))

        self.node.clock.advance(86_400)

        self.assertEqual([], self.back())

    def test_mixed_recipients(self) -> None:
        """
        A message counts as delivered when one recipient has it, though another is away.
        """
        self.away()
        self.sender.subscribe("comm://d/1")

        self.sender.post("comm://d/1")

        line = self.node.traffic_recorder.messages[-1]
        self.assertEqual(("delivered", 1, 1), (line["outcome"], line["recipients"], line["waiting"]))


class SlowTests(DeliveryTests):
    """
    A client that does not read.
    """

    def test_messages_wait_while_the_transport_is_full(self) -> None:
        """
        While the transport takes no more, messages wait; then they come in order.
        """
        client = self.node.client(RUNTIME)
        self.node.sessions.connections.write_paused(client)

        for n in range(3):
            self.sender.tell(update(n))
        self.assertEqual(([], 3), (client.got, self.node.sessions.get(RUNTIME).mailbox.queued))
        self.node.sessions.connections.write_resumed(client)
        self.sender.tell(update(3))

        self.assertEqual([update(n) for n in range(4)], client.got)

    def test_transport_full_after_one_message_gets_one(self) -> None:
        """
        A transport that is full again after one message gets one; the rest keeps waiting, in order.
        """
        client = OneByOne(self.node)
        client.open(RUNTIME)
        self.node.sessions.connections.write_resumed(client)

        for n in range(3):
            self.sender.tell(update(n))
            self.assertEqual(1, len(client.got))
        for n in range(3):
            self.assertEqual(update(n), client.take()[-1])
            self.node.sessions.connections.write_resumed(client)

        self.assertEqual(0, self.node.sessions.get(RUNTIME).mailbox.queued)

    def test_slow_consumer(self) -> None:
        """
        A client that does not read until its queue is full is closed 4413; its session stays.
        """
        self.restart(session={"queue_messages": 3})
        client = self.node.client(RUNTIME)
        self.node.sessions.connections.write_paused(client)
        events = EventLoggingObserver.createWithCleanup(self, globalLogPublisher)

        for n in range(6):
            self.sender.tell(update(n))
        self.node.clock.advance(0)

        self.assertEqual((SLOW, "slow consumer; retry_after=5"), (client.lost, client.lost.reason))
        self.assertEqual([RUNTIME], [e["runtime"] for e in events if e.get("log_level") == LogLevel.warn])
        queued = self.node.sessions.get(RUNTIME).mailbox.queued
        self.assertEqual((3, 3), (self.node.counts.overflowed, queued))
        client.drop()
        self.assertEqual(1, self.node.traffic_recorder.events.count(("detached", RUNTIME)))
        back = self.node.client()
        back.open(RUNTIME)
        self.assertEqual(0, self.node.sessions.get(RUNTIME).mailbox.queued)

    def test_what_a_superseded_connection_transport_says_touches(self) -> None:
        """
        What a superseded connection's transport says touches nothing.
        """
        older, newer = self.node.client(RUNTIME), self.node.client(RUNTIME)

        self.node.sessions.connections.write_paused(older)
        self.sender.tell(update(1))
        self.node.sessions.connections.write_resumed(older)

        self.assertEqual(([], [update(1)]), (older.got, newer.got))

    def test_sender_unharmed(self) -> None:
        """
        A recipient that does not read holds up nobody else.
        """
        slow, quick = self.node.client(RUNTIME), self.node.client("runtime://example.org/3")
        for client in (slow, quick):
            client.subscribe("comm://d/1")
        self.node.sessions.connections.write_paused(slow)

        self.sender.post("comm://d/1")

        self.assertEqual((0, 1), (len(slow.got), len(quick.got)))


class OneByOne(Client):
    """
    A client whose transport is full after each message.
    """

    def send(self, data: bytes) -> None:
        super().send(data)
        self.node.sessions.connections.write_paused(self)


class StopTests(DeliveryTests):
    """
    The node stops.
    """

    def test_every_client_is_told_1001(self) -> None:
        """
        Every client is told 1001, with or without a session; no timer is left.
        """
        clients = [self.sender, self.node.client(RUNTIME), self.node.client()]
        self.node.client("runtime://example.org/3").drop()

        stopped = self.node.sessions.stopService()

        self.assertEqual([STOPPING] * 3, [client.lost for client in clients])
        self.assertNoResult(stopped)
        for client in clients:
            client.drop()
        self.successResultOf(stopped)
        self.assertEqual([], self.node.clock.getDelayedCalls())

    def test_stopping_node_waits_two_seconds_for_deaf_clients(self) -> None:
        """
        The node waits two seconds for clients that do not hear.
        """
        stopped = self.node.sessions.stopService()

        self.node.clock.advance(1.9)
        self.assertNoResult(stopped)
        self.node.clock.advance(0.1)
        self.successResultOf(stopped)

    def test_without_clients_it_stops_at_once(self) -> None:
        """
        Without clients it stops at once.
        """
        self.sender.drop()

        self.successResultOf(self.node.sessions.stopService())
