"""
Small values by key, on disk.
"""

from errno import ENOSPC
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, fail, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.protocol.errors import Rejected
from msgnode.storage.keyed_journal import OBSOLETE_LINES, RETRY_SECONDS, KeyedJournal
from tests.support.fakes import directory


class KeyedJournalTests(SynchronousTestCase):
    """
    A journal, and another that reads its file.
    """

    def setUp(self) -> None:
        self.path = directory(self) / "values.jsonl"
        self.clock = Clock()
        self.journal = KeyedJournal(self.path, self.clock)

    def again(self) -> dict[str, Any]:
        return KeyedJournal(self.path, self.clock).read()

    def test_what_was_put_last_is_read(self) -> None:
        """
        The last value of each key is read again, and nothing that was removed.
        """
        self.assertEqual({}, self.journal.read())
        for key, value in (("a", 1), ("b", {"x": [2]}), ("a", 3), ("c", 4)):
            self.successResultOf(self.journal.put(key, value))
        self.successResultOf(self.journal.remove("c"))
        self.successResultOf(self.journal.remove("never there"))

        self.assertEqual({"a": 3, "b": {"x": [2]}}, self.again())
        self.assertEqual(0o600, self.path.stat().st_mode & 0o777)

    def test_torn_and_damaged_lines_are_left_out(self) -> None:
        """
        A line that is cut off or damaged is left out, and the next write leaves a whole file.
        """
        self.path.write_bytes(b'["a",1]\nnonsense\n["b"]\n["c",2]\n["d",')
        journal = KeyedJournal(self.path, self.clock)
        self.assertEqual({"a": 1, "c": 2}, journal.read())
        journal.put("e", 5)

        self.assertEqual(b'["a",1]\n["c",2]\n["e",5]\n', self.path.read_bytes())

    def test_file_does_not_grow_with_changes(self) -> None:
        """
        However often a value changes, the file keeps a bounded number of obsolete lines.
        """
        for number in range(3 * OBSOLETE_LINES):
            self.journal.put("a", number)

        self.assertLess(len(self.path.read_bytes().splitlines()), OBSOLETE_LINES + 10)
        self.assertEqual({"a": 3 * OBSOLETE_LINES - 1}, self.again())

    def test_failed_write_is_told_and_made_good(self) -> None:
        """
        When the disk takes nothing, whoever waits is told 503; the next write has all values.
        """
        self.path.mkdir()
        why = self.failureResultOf(self.journal.put("a", 1), Rejected).value
        self.assertEqual((503, "disk"), (why.code, why.reason))
        self.assertTrue(self.journal.failing)
        self.path.rmdir()
        self.successResultOf(self.journal.put("b", 2))

        self.assertEqual({"a": 1, "b": 2}, self.again())
        self.assertEqual("", self.journal.failing)

    def test_removed_value_does_not_come_back(self) -> None:
        """
        A value that is removed while the disk takes nothing is removed there as soon as it does, without
        another change.
        """
        is_full = False

        def run(act: Any, *what: Any) -> Deferred[Any]:
            return fail(OSError(ENOSPC, "No space left on device")) if is_full else maybeDeferred(act, *what)

        journal = KeyedJournal(self.path, self.clock, run)
        journal.put("a", 1)
        is_full = True
        self.failureResultOf(journal.remove("a"), Rejected)
        self.clock.advance(RETRY_SECONDS)
        self.assertEqual({"a": 1}, self.again())
        is_full = False
        self.clock.advance(RETRY_SECONDS)

        self.assertEqual(({}, ""), (self.again(), journal.failing))
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_close_writes_what_failed(self) -> None:
        """
        What could not be written is tried once more at the end, and no more after that.
        """
        self.path.mkdir()
        self.failureResultOf(self.journal.put("a", 1), Rejected)
        self.successResultOf(self.journal.close())
        self.assertEqual([], self.clock.getDelayedCalls())
        self.path.rmdir()
        self.successResultOf(self.journal.close())

        self.assertEqual({"a": 1}, self.again())

    def test_changes_during_a_write_are_one_write(self) -> None:
        """
        What changes while the disk is slow is written together, in order, and each waits for its own write.
        """
        started: list[Deferred[None]] = []

        def slow(act: Any, *what: Any) -> Deferred[Any]:
            start: Deferred[None] = Deferred()
            started.append(start)
            return start.addCallback(lambda ready: maybeDeferred(act, *what))

        journal = KeyedJournal(self.path, self.clock, slow)
        first = journal.put("a", 1)
        rest = [journal.put("a", 2), journal.put("b", 3), journal.written()]
        started[0].callback(None)
        self.successResultOf(first)
        self.assertNoResult(rest[0])
        started[1].callback(None)

        for waiter in rest:
            self.successResultOf(waiter)
        self.assertEqual((2, {"a": 2, "b": 3}), (len(started), self.again()))

    def test_without_a_path_nothing_is_kept(self) -> None:
        """
        Without a state directory all succeeds, and nothing is kept.
        """
        journal = KeyedJournal(None, self.clock)
        self.successResultOf(journal.put("a", 1))
        self.successResultOf(journal.remove("a"))

        self.assertEqual({}, journal.read())
        self.assertFalse(Path(self.path).exists())
