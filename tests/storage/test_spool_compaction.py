"""
The spool's broom: what is owed survives it, and what is not goes from the disk.
"""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.storage import spool
from msgnode.storage.spool_compaction import SpoolCompactor
from msgnode.storage.spool_recovery import segments
from tests.support.durable import Counting, DurableNode
from tests.support.fakes import directory

ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"


class SweepTests(SynchronousTestCase):
    """
    A node with short files, and little that may be dead.
    """

    def setUp(self) -> None:
        self.node: Any = DurableNode(
            directory(self), segment_bytes=2000, session={"unused_expiry_seconds": 3600}
        )
        self.addCleanup(lambda: (self.node.spool.close(), self.node.store.shut()))
        self.ann = self.node.client(ANN)
        self.bob = Counting(self.node, BOB)
        self.bob.connect()
        self.short()

    def short(self) -> None:
        sweep = SpoolCompactor(self.node.spool, self.node.sessions, self.node.clock, slack=4000)
        sweep.startService()

    def send(self, *numbers: int) -> None:
        for number in numbers:
            self.ann.tell({"id": number, "type": "update", "from": ANN, "to": BOB, "body": {"v": "x" * 200}})

    def files(self) -> int:
        return len(segments(self.node.directory / "spool"))

    def test_acknowledged_messages_leave_little_on_disk(self) -> None:
        """
        Of what was acknowledged nothing is left on disk but a little.
        """
        for number in range(1, 301):
            self.send(number)
            self.bob.arrive()
            self.bob.acknowledge()
        before = self.files()

        for _ in range(100):
            self.node.clock.advance(2)

        self.assertGreater(before, 30)
        self.assertLess(self.files(), 6)

    def test_owed_messages_are_moved_on(self) -> None:
        """
        What is owed, sent or waiting, is moved on, and is there after a restart.
        """
        self.send(1, 2)
        self.bob.lose()
        self.send(3, 4)
        away = self.node.client("runtime://example.org/away")
        away.drop()
        self.ann.post("runtime://example.org/away", type="update")
        cleo = Counting(self.node, "runtime://example.org/cleo")
        cleo.connect()
        for number in range(100):
            self.ann.post("runtime://example.org/cleo", n=number, body={"v": "x" * 300})
            cleo.arrive()
            cleo.acknowledge()
        first = segments(self.node.directory / "spool")[0]
        for _ in range(40):
            self.node.clock.advance(1)
        self.assertFalse(first.exists())

        self.node = self.node.killed()
        self.bob.node = self.node
        self.bob.connect()
        self.bob.arrive()

        self.assertEqual([1, 2, 3, 4], [message["id"] for message in self.bob.got])
        back = self.node.client()
        back.reopen("runtime://example.org/away")
        self.assertEqual(1, len(back.got))

    def test_many_files(self) -> None:
        """
        A node that is started again and again does not keep a file of each start.
        """
        for _ in range(15):
            self.node = self.node.killed()
        self.short()

        for _ in range(30):
            self.node.clock.advance(2)

        self.assertLess(self.files(), 10)

    def test_disk_fills_up(self) -> None:
        """
        A sweep that the disk interrupts loses nothing, and is made up for when there is room again.
        """
        disk = self.node.disk
        self.send(*range(1, 31))
        for number in range(100):
            self.ann.post("runtime://example.org/ann", n=number, body={"v": "x" * 300})
        first = segments(self.node.directory / "spool")[0]
        sweep = SpoolCompactor(self.node.spool, self.node.sessions, self.node.clock)
        sweep._cooperator.start()
        sweep._begin(lambda place: True)
        disk.full = True
        for _ in range(5):
            self.node.clock.advance(1)
        self.assertTrue(first.exists())
        for kept in self.bob_session().mailbox.undelivered():
            self.node.sessions.journal.page_out(kept)

        disk.full = False
        for _ in range(60):
            self.node.clock.advance(1)
        self.node = self.node.killed()
        self.bob.node, self.bob.wire = self.node, None
        self.bob.connect()
        self.bob.arrive()

        self.assertEqual(list(range(1, 31)), [message["id"] for message in self.bob.got])

    def test_spool_begins_again(self) -> None:
        """
        When too much was held back everything is written anew, also if the disk fails once more meanwhile.
        """
        disk = self.node.disk
        self.patch(spool, "MAX_BUFFERED_BYTES", 10_000)
        self.send(*range(1, 21))
        disk.full = True
        for number in range(21, 101):
            self.send(number)
            self.node.clock.advance(1)
        self.assertTrue(self.node.spool.overrun)
        disk.full = False
        self.assertTrue(self.node.spool.start_over())
        for kept in self.bob_session().mailbox.undelivered():
            self.node.sessions.journal.page_out(kept)  # most of it is nowhere on disk
        self.node.spool.overrun = True
        disk.room = 3  # then it is full again
        for _ in range(10):
            self.node.clock.advance(1)
        disk.full, disk.room = False, None
        for _ in range(60):
            self.node.clock.advance(1)

        self.node = self.node.killed()
        self.bob.node, self.bob.wire = self.node, None
        self.bob.connect()
        self.bob.arrive()

        self.assertEqual(list(range(1, 101)), [message["id"] for message in self.bob.got])

    def bob_session(self) -> Any:
        return self.node.sessions.get(BOB)
