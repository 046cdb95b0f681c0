"""
The memory of all that waits: bounded for the whole node, and the largest queues pay.
"""

import sys
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.sessions.limits import overload
from msgnode.sessions.limits.overload import MAX_SHED_FROM_MEMORY
from msgnode.sessions.routing import SUBSCRIBED
from tests.support.durable import DurableNode
from tests.support.fakes import Client, MemoryNode, directory

BIG, SMALL, SENDER = (f"runtime://example.org/{name}" for name in ("big", "small", "sender"))
LIMITS = {"message_bytes": 2000}
SESSION = {"queue_bytes": 200_000, "max_memory_bytes": 200_000}


class MemoryCase(SynchronousTestCase):
    node: Any
    sender: Client

    def away(self, *runtimes: str) -> None:
        """
        Sessions that have gone, and will come back.
        """
        self.sender = self.node.client(SENDER)
        for runtime in runtimes:
            client = self.node.client(runtime)
            self.node.sessions.get(runtime).used = True  # else it expires in a minute
            client.drop()

    def send(self, runtime: str, number: int, **fields: Any) -> None:
        for n in range(number):
            message = {"id": n, "type": "update", "from": SENDER, "to": runtime, "body": {"v": "x" * 1000}}
            self.sender.tell({**message, **fields})

    def waiting(self, runtime: str) -> int:
        return self.node.sessions.get(runtime).mailbox.queued

    def back(self, runtime: str) -> list[int]:
        """
        It comes back; the ids of what it is given.
        """
        client = self.node.client()
        client.reopen(runtime)
        return [message["id"] for message in client.got]


class WithoutDiskTests(MemoryCase):
    """
    A node that keeps nothing on disk.
    """

    def setUp(self) -> None:
        self.node = MemoryNode(limits=LIMITS, session=SESSION)
        self.away(BIG, SMALL)

    def test_largest_first(self) -> None:
        """
        Above the ceiling the largest queue gives up its oldest, and the small one nothing.
        """
        self.send(SMALL, 10)
        self.send(BIG, 170)

        self.assertLessEqual(self.node.sessions.journal.bytes_in_memory, 200_000)
        self.assertGreater(self.node.counts.shed, 0)
        self.assertEqual(list(range(10)), self.back(SMALL))
        left = self.back(BIG)
        self.assertEqual(list(range(170 - len(left), 170)), left)
        self.assertEqual(self.node.counts.shed, 170 - len(left))

    def test_who_asked_is_told_503_of_what_was_given_up(self) -> None:
        """
        Who asked is told 503 of what was given up.
        """
        self.send(BIG, 170, receipt=True)

        codes = [message["body"]["code"] for message in self.sender.take()]
        self.assertEqual([503] * self.node.counts.shed, codes)

    def test_some_a_turn(self) -> None:
        """
        Where very much must go, one turn takes some of it and the next ones the rest.
        """
        node, journal = self.node, self.node.sessions.journal
        journal.most = sys.maxsize
        for number in range(150):
            session = node.sessions.create(f"runtime://example.org/away/{number}")
            node.routes.bind("a:b", session, SUBSCRIBED)
        self.send("a:b", 250)
        while node.slices.at_work:
            node.clock.advance(0)
        journal.most = journal.bytes_in_memory // 10

        shed: list[int] = []
        while journal.bytes_in_memory > journal.most and len(shed) < 100:
            before = node.counts.shed
            self.send(BIG, 1)
            shed.append(node.counts.shed - before)

        self.assertLessEqual(journal.bytes_in_memory, journal.most)
        self.assertGreater(len(shed), 1)
        self.assertLessEqual(max(shed), MAX_SHED_FROM_MEMORY)

    def test_what_was_delivered_dropped_or_forgotten_takes(self) -> None:
        """
        What was delivered, dropped or forgotten takes no memory any more.
        """
        self.send(SMALL, 50)
        self.send(BIG, 50)
        self.back(SMALL)
        self.node.clock.advance(100_000)

        self.assertEqual(0, self.node.sessions.journal.bytes_in_memory)


class WithDiskTests(MemoryCase):
    """
    A node with a state directory.
    """

    def setUp(self) -> None:
        self.node = DurableNode(directory(self), limits=LIMITS, session=SESSION)
        self.addCleanup(lambda: (self.node.spool.close(), self.node.store.shut()))
        self.away(BIG, SMALL)

    def test_to_disk(self) -> None:
        """
        What does not fit into memory stays on disk, and nothing is given up.
        """
        self.send(BIG, 150)
        self.send(SMALL, 150)

        self.assertLess(self.node.sessions.journal.bytes_in_memory, 200_000)
        self.assertEqual(0, self.node.counts.shed)
        self.assertEqual(list(range(150)), self.back(BIG))
        self.assertEqual(list(range(150)), self.back(SMALL))
        self.assertEqual(0, self.node.spool.live)

    def test_to_disk_in_turns(self) -> None:
        """
        Where very much is to stay on disk only, that takes several turns, and nothing is given up meanwhile.
        """
        self.patch(overload, "MAX_PAGED", 10)
        journal, names = self.node.sessions.journal, [f"{BIG}/{number}" for number in range(20)]
        self.away(*names)
        journal.most = 800_000
        for name in names:
            self.send(name, 15)
        journal.most = int(journal.bytes_in_memory / 1.12)

        turns = 0
        while journal.bytes_in_memory > journal.most and turns < 100:
            self.send(SMALL, 1)
            turns += 1

        self.assertLessEqual(journal.bytes_in_memory, journal.most)
        self.assertGreater(turns, 1)
        self.assertEqual(0, self.node.counts.shed)
        self.assertEqual([list(range(15))] * 20, [self.back(name) for name in names])
