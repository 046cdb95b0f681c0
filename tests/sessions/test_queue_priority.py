"""
Priority: what leaves first when something waits.
"""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.durable import SM, Counting, DurableNode
from tests.support.fakes import MemoryNode, directory

ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"


class PriorityCase(SynchronousTestCase):
    node: Any

    def setUp(self) -> None:
        self.start()

    def start(self, **session: Any) -> None:
        self.node = MemoryNode(session=session)
        self.ann = self.node.client(ANN)
        self.bob = self.node.client(BOB)
        self.bob.subscribe("comm://x")

    def send(self, id: Any, priority: int | None = None, **fields: Any) -> None:
        message = {"id": id, "type": "update", "from": ANN, "to": f"{BOB}/x", **fields}
        self.ann.tell(message if priority is None else {**message, "priority": priority})

    def back(self) -> list[Any]:
        """
        Bob comes back; what he is given, in order.
        """
        client = self.node.client()
        client.reopen(BOB)
        return [message["id"] for message in client.got]


class AwayTests(PriorityCase):
    """
    The recipient is away.
    """

    def setUp(self) -> None:
        super().setUp()
        self.bob.drop()

    def test_urgent_first(self) -> None:
        """
        From 9 to 0; within a priority the order is kept.
        """
        for id, priority in enumerate((0, 9, 5, 9, 1, 0, 5)):
            self.send(id, priority)

        self.assertEqual([1, 3, 2, 6, 4, 0, 5], self.back())

    def test_logs_last(self) -> None:
        """
        What is only logged leaves last, however its type is written, unless it says another priority.
        """
        self.send(1, type="log")
        self.send(2, type="LOG")
        self.send(3, type="log", priority=6)
        self.send(4)

        self.assertEqual([3, 4, 1, 2], self.back())

    def test_bulk_last(self) -> None:
        """
        The pieces of a file leave last and in their order, also as responses, unless they say a priority.
        """
        self.send(1, bulk=True)
        self.send(2, bulk=True, type="response")
        self.send(3, bulk=True, priority=9)
        self.send(4, bulk=False)
        self.send(5, type="response")

        self.assertEqual([3, 5, 4, 1, 2], self.back())

    def test_nothing_in_bodies(self) -> None:
        """
        A body says nothing of when its message leaves.
        """
        self.send(1, body={"bulk": True, "type": "log", "priority": 0})
        self.send(2)

        self.assertEqual([1, 2], self.back())

    def test_each_copy_of_a_message_to_a_list_leaves_as_late(self) -> None:
        """
        Each copy of a message to a list leaves as late as the message would.
        """
        self.send(1, to=[f"{BOB}/x", f"{BOB}/y"], bulk=True)
        self.send(2)

        self.assertEqual([2, 1, 1], self.back())

    def test_response_has_priority_7_and_all_else_5(self) -> None:
        """
        A response that does not say has 7, however its type is written; everything else has 5.
        """
        for id, priority in (("six", 6), ("seven", 7), ("eight", 8), ("five", 5)):
            self.send(id, priority)
        self.send("update")
        self.send("response", type="response")
        self.send("RESPONSE", type="RESPONSE")

        self.assertEqual(["eight", "seven", "response", "RESPONSE", "six", "five", "update"], self.back())

    def test_response_that_says(self) -> None:
        """
        A response that gives its own priority has that one.
        """
        self.send(1)
        self.send(2, 1, type="response")

        self.assertEqual([1, 2], self.back())

    def test_log_traffic(self) -> None:
        """
        What a client marks 1 leaves after all the rest, which came later.
        """
        self.send("log", 1)
        self.send("news")

        self.assertEqual(["news", "log"], self.back())

    def test_waiting_message_is_sent_after_nine_others(self) -> None:
        """
        After nine that overtook it the oldest leaves, and the count begins anew.
        """
        self.send("a", 0)
        self.send("b", 0)
        for id in range(20):
            self.send(id, 9)

        back = self.back()

        self.assertEqual((9, 19), (back.index("a"), back.index("b")))
        self.assertEqual(list(range(20)), [id for id in back if isinstance(id, int)])

    def test_bytes_unchanged(self) -> None:
        """
        The field is passed on as it came.
        """
        data = b'{ "priority":9, "id":1,"type":"x","from":"%s","to":"%s"}' % (ANN.encode(), BOB.encode())
        self.ann.tell(data)
        client = self.node.client()
        client.reopen(BOB)

        self.assertEqual([data], client.raw)

    def test_oldest_of_the_least_urgent_goes_however_early(self) -> None:
        """
        The oldest of the least urgent goes, however early or late it came.
        """
        self.start(queue_messages=3)
        self.bob.drop()
        for id, priority in enumerate((5, 1, 9, 1, 5)):
            self.send(id, priority)

        self.assertEqual([2, 0, 4], self.back())
        self.assertEqual(2, self.node.counts.overflowed)


class PresentTests(PriorityCase):
    """
    The recipient is there.
    """

    def test_no_queue(self) -> None:
        """
        While nothing waits everything leaves as it comes.
        """
        for id, priority in enumerate((0, 9, 5)):
            self.send(id, priority)

        self.assertEqual([0, 1, 2], [message["id"] for message in self.bob.take()])

    def test_to_a_client_that_reads_again_what_is_urgent_leaves(self) -> None:
        """
        To a client that reads again, what is urgent leaves first.
        """
        self.node.sessions.connections.write_paused(self.bob)
        for id, priority in enumerate((0, 9, 5)):
            self.send(id, priority)

        self.node.sessions.connections.write_resumed(self.bob)

        self.assertEqual([1, 2, 0], [message["id"] for message in self.bob.take()])

    def test_behind_what_waits(self) -> None:
        """
        What comes while something waits does not pass it, unless it is more urgent.
        """
        for id, priority, expected in ((2, 5, [1, 2]), (3, 6, [3, 1])):
            self.start()
            self.node.sessions.connections.write_paused(self.bob)
            self.send(1)
            self.send(id, priority)
            self.node.sessions.connections.write_resumed(self.bob)
            self.assertEqual(expected, [message["id"] for message in self.bob.take()])

    def test_priority_out_of_range_is_400(self) -> None:
        """
        Anything but an integer from 0 to 9 is answered 400 in words, and goes nowhere.
        """
        for priority in (-1, 10, 1e300, 1.5, "3", True, [], {}):
            self.ann.tell({"id": 1, "type": "x", "from": ANN, "to": BOB, "priority": priority})
            (refusal,) = self.ann.take()
            self.assertEqual(400, refusal["body"]["code"], priority)
            self.assertIn("'priority' must be an integer from 0 to 9", refusal["body"]["desc"])

        self.assertEqual([], self.bob.take())

    def test_null_is_no_priority(self) -> None:
        """
        null is no priority.
        """
        self.ann.tell({"id": 1, "type": "x", "from": ANN, "to": BOB, "priority": None})

        self.assertEqual(1, len(self.bob.take()))


class CountedTests(PriorityCase):
    """
    The recipient's client acknowledges.
    """

    def test_numbers_follow(self) -> None:
        """
        What was sent keeps its number; of what waits the urgent leaves first, and gets the next.
        """
        self.start(queue_messages=2)
        bob = Counting(self.node, BOB)
        bob.connect()
        for id, priority in (("a", 0), ("b", 0), ("c", 1), ("d", 9)):
            self.send(id, priority)
        bob.lose(arrives=1)

        bob.connect()
        bob.arrive()
        bob.acknowledge()
        bob.arrive()

        self.assertEqual((["a", "b", "d", "c"], 0), ([m["id"] for m in bob.got], bob.missed))

    def test_after_a_restart_too(self) -> None:
        """
        After a restart, too.
        """
        self.node = DurableNode(directory(self))
        self.addCleanup(lambda: (self.node.spool.close(), self.node.store.shut()))
        self.ann = self.node.client(ANN)
        self.bob = Counting(self.node, BOB)
        self.bob.connect()
        self.bob.send(id="s", type="subscribe", to=SM, body={"resources": ["comm://x"]})
        self.node.clock.advance(1)
        self.bob.arrive()
        self.bob.lose()
        for id, priority in enumerate((0, 9, 5, 9)):
            self.send(id, priority)

        self.node = self.bob.node = self.node.killed()
        self.bob.got.clear()
        self.bob.connect()
        self.bob.arrive()

        self.assertEqual([1, 3, 2, 0], [message["id"] for message in self.bob.got])
