"""
The spool: what is owed survives any end of the process, and damage is never mistaken for it.
"""

import errno
import os
import shutil
from pathlib import Path
from typing import Any
from zlib import crc32

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from msgnode.storage import spool_end
from msgnode.storage.spool import MAX_BUFFERED_BYTES, Spool
from msgnode.storage.spool_records import SessionRecovery
from msgnode.storage.spool_recovery import (
    BATCH,
    INCOMPLETE,
    CorruptSegment,
    NewerSegment,
    examine,
    number_of,
    recover,
    repair,
    segments,
)
from tests.support.fakes import directory
from tests.support.fuzz import TIMES

FOREVER = float("inf")


class FullDisk:
    """
    The `write` of a disk that takes so many bytes and then nothing, until it has room again.
    """

    def __init__(self, room: int) -> None:
        self.room = room

    def __call__(self, file: int, parts: list[bytes]) -> None:
        data = b"".join(parts)
        taken = data[: max(0, self.room)]
        self.room -= len(taken)
        if taken:
            os.write(file, taken)
        if len(taken) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class SpoolCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = directory(self) / "spool"
        self.spool = self.opened()

    def opened(self, **how: Any) -> Spool:
        spool = Spool(self.directory, **how)
        self.found = spool.open()
        self.addCleanup(spool.close)
        return spool

    def again(self, **how: Any) -> dict[int, SessionRecovery]:
        """
        The process ended; what the next one finds.
        """
        self.spool.close()
        self.spool = self.opened(**how)
        return self.found

    def keep(self, sid: int, key: int, data: bytes = b"m", number: int = 0, **how: Any) -> int:
        rest = {"until": FOREVER, "priority": 5, "asker": 0, **how}
        return self.spool.append(sid, key, data, rest["until"], rest["priority"], rest["asker"], number)


class SpoolTests(SpoolCase):
    """
    What was settled is found again.
    """

    def test_message_is_found_with_all_that_was_noted(self) -> None:
        """
        A message is found with all that was noted of it, and its bytes at its place.
        """
        self.keep(7, 1, b"one", until=1000.5, priority=9, asker=3)
        self.keep(7, 2, b"two", number=1)
        self.spool.flush()

        found = self.again()[7]

        sent, waiting = found.kept
        self.assertEqual((2, 1, b"two"), (sent.key, sent.number, self.spool.read(sent.place, sent.size)))
        self.assertEqual(
            (1, 0, 1000.5, 9, 3, b"one"),
            (
                waiting.key,
                waiting.number,
                waiting.until,
                waiting.priority,
                waiting.asker,
                self.spool.read(waiting.place, waiting.size),
            ),
        )
        self.assertEqual((1, 2, 6), (found.sent, found.next_key, self.spool.live))

    def test_not_settled(self) -> None:
        """
        What was not settled was never there, though it can be read meanwhile.
        """
        place = self.keep(7, 1, b"one")

        self.assertEqual(b"one", self.spool.read(place, 3))

    def test_cut_while_running(self) -> None:
        """
        A message that is not there whole is an error, not another message.
        """
        place = self.spool.append(7, 1, b"one", FOREVER, 5, 0, 0)
        self.assertFalse(self.spool.holds(place, 3))
        self.spool.flush()
        self.assertTrue(self.spool.holds(place, 3))
        (path,) = segments(self.directory)
        os.truncate(path, path.stat().st_size - 1)

        why = self.assertRaises(OSError, self.spool.read, place, 3)

        self.assertIn("has only 2 of 3 bytes", str(why))
        self.assertEqual(str(path), why.filename)
        self.assertEqual({}, self.again())
        self.assertTrue(self.spool.incomplete)

    def test_what_was_taken_is_owed_no_more(self) -> None:
        """
        What was taken is owed no more; what was dropped is counted until the session is told.
        """
        for key in (1, 2, 3):
            self.keep(7, key)
        self.spool.removed(7, 1, missed=False)
        self.spool.removed(7, 2, missed=True)
        self.spool.flush()
        found = self.again()[7]

        self.assertEqual(([3], 1), ([note.key for note in found.kept], found.missed))
        self.spool.state(7, b"told")
        self.spool.flush()
        found = self.again()[7]
        self.assertEqual((0, b"told"), (found.missed, found.state))

    def test_left_and_acknowledged(self) -> None:
        """
        What waited and left is known by its number; numbers that were acknowledged are done with.
        """
        for key in (1, 2, 3):
            self.keep(7, key)
        self.spool.sent(7, 3, 1)
        self.spool.sent(7, 1, 2)
        self.spool.acknowledged(7, 1)
        self.spool.flush()

        found = self.again()[7]

        self.assertEqual([(1, 2), (2, 0)], [(note.key, note.number) for note in found.kept])
        self.assertEqual((1, 2), (found.acknowledged, found.sent))

    def test_clients_messages_and_unfinished_ones_are_found(self) -> None:
        """
        How far the client's messages have come, and which of them are not finished.
        """
        self.spool.received(7, 5, [])
        self.spool.received(7, 9, [3, 8])
        self.spool.flush()

        found = self.again()[7]

        self.assertEqual((9, [3, 8]), (found.received, found.pending))

    def test_fresh_state_voids_old_records(self) -> None:
        """
        A fresh state voids what was said before, but no key is given twice.
        """
        self.keep(7, 4, number=1)
        self.spool.acknowledged(7, 1)
        self.spool.received(7, 3, [])
        self.spool.state(7, b"new", fresh=True)
        self.spool.flush()

        found = self.again()[7]

        self.assertEqual(([], 0, 0, 4), (found.kept, found.received, found.acknowledged, found.next_key))

    def test_session_that_ended_is_not_found(self) -> None:
        """
        A session that ended is not found.
        """
        self.keep(7, 1)
        self.spool.forget(7)
        self.spool.flush()

        self.assertEqual({}, self.again())

    def test_to_many(self) -> None:
        """
        A message to many sessions is stored once.
        """
        data = b"x" * 10_000
        for sid in range(100):
            self.keep(sid, 1, data)
        self.spool.flush()

        self.assertLess(self.spool.size, 20_000)
        found = self.again()
        self.assertEqual({data}, {self.spool.read(f.kept[0].place, f.kept[0].size) for f in found.values()})

    def test_own_user_only(self) -> None:
        """
        Nobody else may read the files.
        """
        self.assertEqual([0o600], [path.stat().st_mode & 0o777 for path in segments(self.directory)])


class SegmentTests(SpoolCase):
    """
    Old files are deleted when nothing in them is needed.
    """

    def setUp(self) -> None:
        self.directory = directory(self) / "spool"
        self.spool = self.opened(segment_bytes=1000)

    def test_grows_in_files(self) -> None:
        """
        A file that is long enough is followed by another; what is in the older ones is found.
        """
        for key in range(1, 21):
            self.keep(7, key, b"x" * 200)
            self.spool.flush()

        self.assertGreater(len(segments(self.directory)), 4)
        self.assertEqual(list(range(1, 21)), [note.key for note in self.again()[7].kept])

    def test_record_kept_again_survives_the_oldest_file(self) -> None:
        """
        What is kept again elsewhere is not lost with the oldest file.
        """
        for key in range(1, 11):
            self.keep(7, key, b"%d" % key * 100)
            self.spool.flush()
        oldest = self.spool.oldest()
        before = self.spool.size

        for note in self.again()[7].kept:
            if note.place >> 40 == oldest:
                self.keep(7, note.key, self.spool.read(note.place, note.size))
        self.spool.flush()
        self.spool.drop_oldest()

        self.assertLess(self.spool.size, before + 2000)
        notes = self.again()[7].kept
        self.assertEqual(
            [b"%d" % key * 100 for key in range(1, 11)],
            [self.spool.read(note.place, note.size) for note in notes],
        )


class FullDiskTests(SpoolCase):
    """
    A disk that takes nothing.
    """

    def setUp(self) -> None:
        self.directory = directory(self) / "spool"
        self.disk = FullDisk(10**9)
        self.spool = self.opened(write=self.disk)

    def test_full_and_free_again(self) -> None:
        """
        What the disk does not take waits, and is there when it has room again; nothing is written in half.
        """
        self.keep(7, 1)
        self.assertTrue(self.spool.flush())
        self.disk.room = 20
        self.keep(7, 2, b"x" * 100)

        self.assertFalse(self.spool.flush())
        self.assertIn("No space left", self.spool.failing)
        self.assertEqual([1], [note.key for note in recover(self.directory)[7].kept])

        self.disk.room = 10**9
        self.keep(7, 3)
        self.assertTrue(self.spool.flush())
        self.assertIsNone(self.spool.failing)
        self.assertEqual([1, 2, 3], [note.key for note in self.again()[7].kept])

    def test_too_much_waits(self) -> None:
        """
        When too much waits it is given up, and the owner begins again.
        """
        self.disk.room = 0
        self.keep(7, 1, b"x" * (MAX_BUFFERED_BYTES + 1))

        self.assertFalse(self.spool.flush())
        self.assertTrue(self.spool.overrun)
        self.assertEqual(0, self.keep(7, 2))
        self.assertFalse(self.spool.start_over())

        self.disk.room = 10**9
        self.assertTrue(self.spool.start_over())
        self.keep(7, 2)
        self.assertFalse(self.spool.flush())  # it does not count yet
        self.assertTrue(self.spool.finish_over())
        self.assertTrue(self.spool.flush())
        self.spool.drop_oldest()
        self.assertEqual([2], [note.key for note in self.again()[7].kept])

    def test_killed_while_it_is_written_anew(self) -> None:
        """
        A file that was not finished does not count, and is gone after the next start.
        """
        self.keep(7, 1)
        self.spool.flush()
        self.disk.room = 0
        self.keep(7, 2, b"x" * (MAX_BUFFERED_BYTES + 1))
        self.spool.flush()
        self.disk.room = 10**9
        self.spool.start_over()
        self.keep(7, 3)
        self.spool.flush()

        self.assertEqual([1], [note.key for note in self.again()[7].kept])
        self.assertEqual([], list(self.directory.glob("*.anew")))

    def test_torn_and_given_up(self) -> None:
        """
        Half a batch that the disk took before it was given up is no damage, though another file follows.
        """
        self.keep(7, 1)
        self.spool.flush()
        self.disk.room = 20
        self.keep(7, 2, b"x" * (MAX_BUFFERED_BYTES + 1))
        self.spool.flush()
        self.disk.room = 10**9
        self.assertTrue(self.spool.start_over())

        self.assertEqual([1], [note.key for note in self.again()[7].kept])

    def test_no_other_file(self) -> None:
        """
        Where no file can be begun, but the one there is takes more, nothing fails.
        """
        self.spool.close()
        self.spool = self.opened(write=self.disk, segment_bytes=100)
        self.keep(7, 1, b"x" * 200)
        self.disk.room = 258  # not for the first bytes of another

        self.assertTrue(self.spool.flush())
        self.assertIsNone(self.spool.failing)
        self.disk.room = 10**9
        self.keep(7, 2)
        self.spool.flush()
        self.assertEqual([1, 2], [note.key for note in self.again()[7].kept])

    def test_cannot_be_cut(self) -> None:
        """
        A disk that does not even take away what was written in half is tried again like a full one.
        """
        self.keep(7, 1)
        file = self.spool._files[self.spool._number]
        self.spool._files[self.spool._number] = -1

        self.assertFalse(self.spool.flush())
        self.assertIn("Bad file descriptor", self.spool.failing)
        self.spool._files[self.spool._number] = file
        self.assertTrue(self.spool.flush())
        self.assertEqual([1], [note.key for note in self.again()[7].kept])


class DamageTests(SpoolCase):
    """
    What is not as it was written.
    """

    def setUp(self) -> None:
        super().setUp()
        for key in (1, 2, 3):
            self.keep(7, key, b"message %d" % key)
            self.spool.flush()
        self.spool.close()
        (self.path,) = segments(self.directory)
        self.whole = self.path.read_bytes()

    def test_cut_at_any_byte_where_nothing_says_how_long(self) -> None:
        """
        Cut at any byte, where nothing says how long it was, the last file gives every batch that is whole.
        """
        ends = []
        (self.directory / spool_end.NAME).unlink()
        for end in range(len(self.whole) + 1):
            self.path.write_bytes(self.whole[:end])
            found = recover(self.directory)
            ends.append(len(found[7].kept) if found else 0)

        self.assertEqual(sorted(ends), ends)
        self.assertEqual({0, 1, 2, 3}, set(ends))
        self.assertEqual(1, ends.count(3))

    def test_shorter_than_the_mark(self) -> None:
        """
        Cut at any byte, the last file is damaged: it was longer, and somebody may have been told of it.
        """
        for end in range(len(self.whole)):
            self.path.write_bytes(self.whole[:end])
            self.assertEqual(1, len(examine(self.directory)))

        os.truncate(self.path, self.whole.index(b"message 3"))
        self.assertEqual(2, len(recover(self.directory)[7].kept))
        self.assertEqual([INCOMPLETE], [path.name for path in self.directory.glob("inc*")])

    def test_behind_the_mark(self) -> None:
        """
        What lies behind the mark had not been told to anybody, whatever it is, and is cut off.
        """
        for junk in (b"x", bytes(50), b"\x03\0\0\0abcdxyz"):
            self.path.write_bytes(self.whole + junk)
            found = recover(self.directory)

            self.assertEqual(3, len(found[7].kept))
            self.assertEqual(self.whole, self.path.read_bytes())

    def test_not_torn(self) -> None:
        """
        A last batch that is all there and not as it was written is damage, also where there is no mark.
        """
        (self.directory / spool_end.NAME).unlink()
        for junk in (bytes(50), b"\x03\0\0\0abcdxyz"):
            self.path.write_bytes(self.whole + junk)

            self.assertIn("though", examine(self.directory)[0])

    def test_bad_mark(self) -> None:
        """
        A mark that is damaged itself proves nothing.
        """
        mark = self.directory / spool_end.NAME
        mark.write_bytes(mark.read_bytes()[:-1] + b"?")

        self.assertEqual(3, len(recover(self.directory)[7].kept))

    def test_mark_after_a_full_disk(self) -> None:
        """
        A mark for which there was no room is there again with the next batch that finds some.
        """
        spool = Spool(self.directory)
        spool.open()
        mark = self.directory / spool_end.NAME
        write = os.pwrite

        def refuse(*args: object) -> int:
            raise OSError(28, "No space left on device")

        for pwrite, expected in ((refuse, None), (write, True)):
            self.patch(os, "pwrite", pwrite)
            spool.acknowledged(7, 1)
            spool.flush()
            self.assertEqual(expected, mark.exists() or None)
        spool.close()

        last = segments(self.directory)[-1]
        self.assertEqual((number_of(last), last.stat().st_size), spool_end.read(self.directory))

    def test_any_byte_found_out(self) -> None:
        """
        One byte changed anywhere is damage.
        """
        for at in range(len(self.whole)):
            wrong = bytearray(self.whole)
            wrong[at] ^= 0x55
            self.path.write_bytes(wrong)

            self.assertEqual(1, len(examine(self.directory)))

    def test_any_byte(self) -> None:
        """
        Without the mark it is found out, or costs what comes from there on; never a wrong message.
        """
        (self.directory / spool_end.NAME).unlink()
        right = [b"message %d" % key for key in (1, 2, 3)]
        for at in range(len(self.whole)):
            wrong = bytearray(self.whole)
            wrong[at] ^= 0x55
            self.path.write_bytes(wrong)
            try:
                found = recover(self.directory)
            except CorruptSegment as why:
                self.assertIn(str(self.path), str(why))
                self.assertEqual(1, len(examine(self.directory)))
                continue
            kept = found[7].kept if found else []
            texts = [wrong[note.place & 0xFFFFFFFF :][: note.size] for note in kept]
            self.assertEqual(right[: len(texts)], texts)

    def test_earlier_file(self) -> None:
        """
        A file that is cut, and is not the last, is damage; the words name it.
        """
        self.path.write_bytes(self.whole[:-1])
        shutil.copy(self.path, self.path.with_name("spool-00000009.seg"))

        with self.assertRaisesRegex(CorruptSegment, f"{self.path}: is damaged at byte"):
            recover(self.directory)

    def test_another_version(self) -> None:
        """
        A file of another version is left alone.
        """
        self.path.write_bytes(self.whole[:7] + b"\x00" + self.whole[8:])

        with self.assertRaisesRegex(CorruptSegment, "another version"):
            recover(self.directory)

    def test_a_segment_of_a_newer_version_is_neither_read_nor_repaired(self) -> None:
        """
        After a downgrade the file stays as it is, and the text says what to do.
        """
        data = self.whole[:7] + b"\x09" + self.whole[8:]
        self.path.write_bytes(data)

        for act in (recover, repair):
            with self.assertRaisesRegex(
                NewerSegment, "newer msgnode .has version 9, .* 2.; start that version"
            ):
                act(self.directory)

        self.assertEqual(data, self.path.read_bytes())
        self.assertFalse((self.directory / "incomplete").exists())

    def test_segments_of_the_version_before_are_read(self) -> None:
        """
        A spool from before the version that keeps ids of copies has the same messages; new segments have a
        version that those releases refuse in words.
        """
        self.assertEqual(2, self.whole[7])
        self.path.write_bytes(self.whole[:7] + b"\x01" + self.whole[8:])

        found = recover(self.directory)

        self.assertEqual(3, len(found[7].kept))

    def test_damaged_spool_file_is_moved_aside(self) -> None:
        """
        A damaged file is moved aside, and what can be read of it is kept.
        """
        wrong = bytearray(self.whole)
        wrong[self.whole.index(b"message 2")] ^= 1
        self.path.write_bytes(wrong)

        (done,) = repair(self.directory)

        self.assertIn(".damaged-", done)
        notes = recover(self.directory)[7].kept
        data = self.path.read_bytes()
        texts = [data[note.place & 0xFFFFFFFF :][: note.size] for note in notes]
        self.assertEqual([b"message 1", b"message 3"], texts)
        self.assertEqual([], repair(self.directory))

    def test_whatever_is_damaged_if_a_whole_batch_follows(self) -> None:
        """
        Whatever is damaged, if a whole batch follows it the file is not cut: that was no torn end.
        """
        second = self.whole.index(b"message 2") - 60
        third = self.whole.index(b"message 3") - 60
        for first, last in ((second, second + 1), (second, third), (9, third)):
            wrong = bytearray(self.whole)
            wrong[first:last] = b"\xff" * (last - first)
            self.path.write_bytes(wrong)

            with self.assertRaisesRegex(CorruptSegment, "goes on after it"):
                recover(self.directory)
            self.assertEqual(len(self.whole), self.path.stat().st_size)

    def test_unreadable_batch(self) -> None:
        """
        A batch of records that mean nothing is damage to the check as to the start, and repair leaves it out.
        """
        batch = b"\x63" * 20
        self.path.write_bytes(self.whole + BATCH.pack(len(batch), crc32(batch)) + batch)

        with self.assertRaisesRegex(CorruptSegment, "cannot be read"):
            recover(self.directory)
        self.assertEqual(1, len(examine(self.directory)))
        self.assertEqual(1, len(repair(self.directory)))
        self.assertEqual(3, len(recover(self.directory)[7].kept))

    def test_repaired_is_private(self) -> None:
        """
        What was kept of a damaged file is nobody else's to read either, nor is a path with a colon a riddle.
        """
        where = self.directory.with_name("a: b")
        self.directory.rename(where)
        (path,) = segments(where)
        path.write_bytes(b"\xff" + self.whole[1:])

        self.assertEqual(1, len(repair(where)))

        self.assertEqual(0o600, path.stat().st_mode & 0o777)
        self.assertEqual(3, len(recover(where)[7].kept))

    def test_just_begun(self) -> None:
        """
        A file whose first bytes did not come is no damage.
        """
        self.path.with_name("spool-00000002.seg").write_bytes(self.whole[:3])

        self.assertEqual([], examine(self.directory))
        self.assertEqual(3, len(recover(self.directory)[7].kept))


# What may happen to two sessions, and the ends of batches.
_events = st.lists(
    st.one_of(
        st.tuples(st.just("keep"), st.integers(1, 2), st.binary(max_size=30)),
        st.tuples(st.just("gone"), st.integers(1, 2), st.integers(1, 12)),
        st.tuples(st.just("heard"), st.integers(1, 2), st.integers(0, 9)),
        st.tuples(st.just("forget"), st.integers(1, 2)),
        st.tuples(st.just("settle")),
    ),
    max_size=40,
)


class ModelTests(SynchronousTestCase):
    """
    Against a model that is only dictionaries.
    """

    @settings(max_examples=40 * TIMES, deadline=None)
    @given(_events, st.floats(0, 1))
    def test_whatever_happened_and_wherever_the_file_is_cut(
        self, events: list[tuple[Any, ...]], cut: float
    ) -> None:
        """
        Whatever happened, and wherever the file is cut: what is found is what held after some whole batch.
        """
        where = directory(self) / "spool"
        spool = Spool(where)
        spool.open()
        model: dict[int, dict[int, bytes]] = {}
        keys = {1: 0, 2: 0}
        after = [(len(segments(where)[0].read_bytes()), {})]
        for kind, *details in [*events, ("settle",)]:
            if kind == "keep":
                sid, data = details
                keys[sid] += 1
                spool.append(sid, keys[sid], data, FOREVER, 5, 0, 0)
                model.setdefault(sid, {})[keys[sid]] = data
            elif kind == "gone":
                sid, key = details
                spool.removed(sid, key, missed=False)
                model.setdefault(sid, {}).pop(key, None)
            elif kind == "heard":
                spool.received(details[0], details[1], [])
                model.setdefault(details[0], {})
            elif kind == "forget":
                spool.forget(details[0])
                model.pop(details[0], None)
            else:
                spool.flush()
                size = segments(where)[0].stat().st_size
                after.append((size, {sid: dict(kept) for sid, kept in model.items()}))
        spool.close()
        (path,) = segments(where)
        end = int(path.stat().st_size * cut)
        os.truncate(path, end)
        (where / spool_end.NAME).unlink()

        found = recover(where)

        data = path.read_bytes() if Path(path).exists() else b""
        texts = {
            sid: {n.key: data[n.place & 0xFFFFFFFF :][: n.size] for n in owed.kept}
            for sid, owed in found.items()
        }
        expected = [state for size, state in after if size <= end]
        self.assertEqual(expected[-1] if expected else {}, texts)
