"""
The journal of objects: what is on disk, what is missing, and what a restart finds.
"""

import errno
import os
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.objects import ObjectsOptions
from msgnode.storage.objects.journal import DAY, JUMP, ObjectJournal
from msgnode.storage.objects.object_index import Gap, ObjectIndex
from msgnode.storage.objects.records import ENTRY, packed, scan
from msgnode.storage.objects.reduction import ReducedObject
from msgnode.storage.objects.segments import Segments
from msgnode.storage.spool import write_all
from tests.support.fakes import directory
from tests.support.openid import NOW

OBJECT, OTHER = "comm://example.org/1", "comm://example.org/2"


class Disk:
    """
    The `write` of a disk that is full while `is_full`.
    """

    is_full = False

    def __call__(self, file: int, parts: list[bytes]) -> None:
        if self.is_full:
            os.write(file, b"".join(parts)[:7])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_all(file, parts)


class JournalCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = directory(self)
        self.disk = Disk()
        self.now = NOW
        self.low = False
        self.options = ObjectsOptions(keep=["comm://example.org/*"])
        self.open()

    def open(self, segment_bytes: int = 8 * 1024 * 1024) -> ObjectJournal:
        segments = Segments(self.directory, segment_bytes=segment_bytes, write=self.disk)
        self.journal = ObjectJournal(
            self.directory,
            self.options,
            wall=lambda: self.now,
            segments=segments,
            is_low=lambda: self.low,
        )
        self.journal.open()
        self.addCleanup(segments.close)
        return self.journal

    def reopen(self, **how: Any) -> None:
        """
        Kill the process, and start again.
        """
        self.journal.segments.close()
        self.open(**how)

    def index(self, object: str = OBJECT, creator: str = "") -> ObjectIndex:
        index = self.journal.index(object)
        if index is None:
            index = self.journal.begin(object, creator)
        assert index is not None
        return index

    def write(self, value: Any, object: str = OBJECT, type: str = "update") -> int:
        data = b'{"id":1,"type":"%b","from":"a","to":"%b/changes","body":{"value":%b}}'
        data = data % (type.encode(), object.encode(), repr(value).encode())
        self.journal.add(self.index(object), data, type, False)
        self.journal.flush()
        self.now += 1
        return self.journal.index(object).version

    def state(self, version: int, object: str = OBJECT) -> ReducedObject | None:
        made: list[Any] = []
        for _ in self.journal.reduce(self.journal.index(object), version, made):
            pass
        return made[0].state if made else None

    def value(self, version: int, object: str = OBJECT) -> Any:
        state = self.state(version, object)
        return state.value if state is not None else "gone"

    def segment(self, number: int = 1) -> Any:
        return sorted(self.directory.glob("objects-*"))[number - 1]

    def damage(self, was: bytes) -> None:
        data = self.segment().read_bytes()
        self.assertIn(was, data)
        self.segment().write_bytes(data.replace(was, bytes(len(was))))

    def gaps(self) -> list[Gap]:
        return self.journal.index(OBJECT).gaps

    def expire(self) -> None:
        for _ in self.journal.expire():
            pass


class RestartTests(JournalCase):
    """
    After a kill.
    """

    def test_all_is_there(self) -> None:
        """
        What was flushed is there after a kill, and versions go on.
        """
        for number in range(5):
            self.write(number)
            self.write(-number, OTHER)

        self.reopen()

        self.assertEqual([0, 1, 2, 3, 4], [self.value(version) for version in range(1, 6)])
        self.assertEqual(-2, self.value(3, OTHER))
        self.assertEqual(6, self.write(5))

    def test_torn_end(self) -> None:
        """
        A record that was cut off by a kill is dropped, wherever it was cut.
        """
        self.write(1)
        before = self.segment().stat().st_size
        self.write(2)
        whole = self.segment().read_bytes()
        for end in range(before, len(whole), 7):
            self.segment().write_bytes(whole[:end])
            for later in sorted(self.directory.glob("objects-*"))[1:]:
                later.unlink()

            self.reopen()

            self.assertEqual(1, self.journal.index(OBJECT).version, end)
            self.assertEqual(1, self.value(1))
            self.assertEqual([], self.gaps())

    def test_damaged_record(self) -> None:
        """
        A damaged record is missing, by its version, and what is around it is there.
        """
        for number in range(1, 4):
            self.write(number * 11111)
        data = self.segment().read_bytes()
        self.segment().write_bytes(data.replace(b"22222", b"22322"))

        self.reopen()

        self.assertEqual([Gap(2, 2, "damaged")], self.gaps())
        self.assertEqual([Gap(2, 2, "damaged")], self.state(3).missing)
        self.assertEqual(33333, self.value(3))

    def test_damage_while_it_runs(self) -> None:
        """
        A record that is damaged after the start is missing, too.
        """
        for number in range(1, 4):
            self.write(number * 11111)
        data = self.segment().read_bytes()
        with self.segment().open("r+b") as file:
            file.write(data.replace(b"22222", b"22322"))

        self.assertEqual([Gap(2, 2, "damaged")], self.state(3).missing)
        self.assertEqual(33333, self.value(3))

    def test_damage_behind_the_last_entry(self) -> None:
        """
        Where it is not known how many versions an object had, some are left out: none is given twice.
        """
        self.write(11111)
        self.write(22222)
        self.reopen()
        self.write(3, OTHER)
        data = self.segment().read_bytes()
        self.segment().write_bytes(data.replace(b"22222", b"22322"))

        self.reopen()

        self.assertEqual(JUMP + 2, self.write(4))
        self.assertEqual([Gap(2, JUMP + 1, "damaged")], self.gaps())

    def test_object_of_which_nothing_is_left(self) -> None:
        """
        After damage an object that nobody knows any more does not begin with versions that it may have given;
        the next start leaves out no more.
        """
        self.write(11111)
        self.write(2, OTHER)
        self.write(3, OTHER)
        data = bytearray(self.segment().read_bytes())
        data[1] ^= 1
        self.segment().write_bytes(data)

        self.reopen()
        first = self.write(4, OTHER)
        self.reopen()

        self.assertGreater(first, JUMP)
        self.assertEqual(first, self.write(5, "comm://example.org/rooms/3"))

    def test_object_lost_in_an_older_segment(self) -> None:
        """
        What follows was written before the damage, and does not excuse it; the next start leaves out no more.
        """
        self.write(11111)
        self.reopen()
        self.write(22222, OTHER)
        self.damage(OBJECT.encode())

        self.reopen()
        first = self.write(33333)
        self.reopen()
        self.reopen()

        self.assertGreater(first, JUMP)
        self.assertEqual(first, self.write(5, "comm://example.org/rooms/3"))

    def test_second_damage_of_a_segment(self) -> None:
        """
        Damage that was seen does not excuse what is damaged later, next to it.
        """
        self.write(11111)
        self.write(22222, OTHER)
        self.write(33333, OTHER)
        self.damage(OBJECT.encode())
        self.reopen()
        self.write(44444)
        self.damage(OTHER.encode())

        self.reopen()

        self.assertGreater(self.write(55555, OTHER), 2 * JUMP)

    def test_damage_seen_while_no_segment_could_begin(self) -> None:
        """
        What is written into the damaged segment then does not hide that more of it is damaged later.
        """
        self.write(11111)
        self.write(22222, OTHER)
        self.damage(OBJECT.encode())
        self.disk.is_full = True
        self.reopen(segment_bytes=1)
        self.disk.is_full = False
        first = self.write(33333)
        self.damage(OBJECT.encode())

        self.reopen()

        self.assertGreater(self.write(44444), first)

    def test_damaged_length(self) -> None:
        """
        A record whose length is damaged hides nothing behind it, however long it seems to be.
        """
        for number in range(1, 4):
            self.write(number * 11111)
        data = bytearray(self.segment().read_bytes())
        second = list(scan(bytes(data), True))[3]
        for at in range(second.offset, second.offset + 4):
            for flipped in (1, 0x80, 0xFF):
                damaged = data.copy()
                damaged[at] ^= flipped
                self.segment().write_bytes(damaged)

                self.reopen()

                self.assertEqual([Gap(2, 2, "damaged")], self.gaps())
                self.assertEqual(33333, self.value(3))
                for later in sorted(self.directory.glob("objects-*"))[1:]:
                    later.unlink()

    def last_record(self) -> tuple[bytearray, int]:
        """
        The segment after two messages, and where its last record begins.
        """
        self.write(11111)
        self.write(22222)
        data = bytearray(self.segment().read_bytes())
        return data, list(scan(bytes(data), True))[-1].offset

    def restart_with(self, data: bytes) -> int:
        """
        Start with this segment only; the next version.
        """
        for segment in self.directory.glob("objects-*"):
            segment.unlink()
        self.directory.joinpath("objects-00000001.seg").write_bytes(data)
        self.reopen()
        return self.index().version + 1

    def test_any_bit_of_the_last_record(self) -> None:
        """
        Whichever bit of the last record has changed, it is damaged, not cut off: no version is given twice.
        """
        data, last = self.last_record()
        for bit in range(8 * last, 8 * len(data)):
            data[bit // 8] ^= 1 << bit % 8

            self.assertEqual(JUMP + 2, self.restart_with(data), bit)

            data[bit // 8] ^= 1 << bit % 8

    def test_damaged_length_before_a_torn_end(self) -> None:
        """
        A damaged length is told from a record that is cut off also where one follows, wherever it was cut.
        """
        whole, last = self.last_record()
        damaged = whole.copy()
        damaged[last + 1] ^= 1
        for end in range(len(whole) - last):
            self.assertEqual(JUMP + 2, self.restart_with(damaged + whole[last:][:end]), end)
            self.assertEqual(3, self.restart_with(whole + whole[last:][:end]), end)

    def test_killed_before_the_damage_is_noted(self) -> None:
        """
        A start that was killed after it had read the journal takes nothing away from what the next one sees.
        """
        data, last = self.last_record()
        data[last + 1] ^= 1
        self.segment().write_bytes(data)
        killed = Segments(self.directory)
        list(killed.open())
        killed.close()

        self.assertEqual(JUMP + 2, self.restart_with(self.segment().read_bytes()))

    def test_older_segment_is_cut_off(self) -> None:
        """
        An older segment that has lost its end is damaged: no version is given twice.
        """
        self.write(1)
        self.write(2)
        self.reopen()
        self.write(3, OTHER)
        data = self.segment().read_bytes()
        self.segment().write_bytes(data[:-9])

        self.reopen()

        self.assertEqual(JUMP + 2, self.write(4))

    def test_clock_is_set_back(self) -> None:
        """
        Times do not go back, also over a restart: the object as it was is found by them.
        """
        for value in (1, 2):
            self.write(value)
        self.now -= 3600
        self.reopen()
        for value in (3, 4):
            self.write(value)

        index = self.journal.index(OBJECT)
        times = [self.journal.read(index, number).micros for number in range(4)]
        self.assertEqual(sorted(times), times)
        self.assertEqual([1, 2, 3, 4], [self.journal.version_at(index, micros) for micros in times])

    def test_other_files(self) -> None:
        """
        A file that is no segment, such as a copy, is left alone.
        """
        self.write(1)
        copy = self.directory / "objects-0000001a.seg"
        copy.write_bytes(b"mine")

        self.reopen()

        self.assertEqual((1, b"mine"), (self.value(1), copy.read_bytes()))

    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def test_any_damage(self, data: st.DataObject) -> None:
        """
        Whatever bytes of a segment change, the node starts, and gives no message for another one.
        """
        self.setUp()
        for number in range(1, 8):
            self.write(number * 1111)
        whole = bytearray(self.segment().read_bytes())
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] ^= data.draw(st.integers(1, 255))
        self.segment().write_bytes(whole)

        self.reopen()

        index = self.journal.index(OBJECT)
        for number in range(len(index) if index is not None else 0):
            entry = self.journal.read(index, number)
            if entry is not None:
                self.assertIn(b"%d}" % (entry.version * 1111), entry.data)
        self.write(1)
        self.doCleanups()


class FullDiskTests(JournalCase):
    """
    A disk that takes no more.
    """

    def test_messages_are_missing(self) -> None:
        """
        While the disk is full messages get versions, are missing in the journal, and a restart knows that.
        """
        self.write(1)
        self.disk.is_full = True
        self.write(2)
        self.write(3)
        self.assertIn("No space left", self.journal.failing)
        self.disk.is_full = False
        self.assertEqual(4, self.write(4))
        self.assertEqual("", self.journal.failing)

        for _ in range(2):
            self.assertEqual([Gap(2, 3, "disk")], self.gaps())
            self.assertEqual([Gap(2, 3, "disk")], self.state(4).missing)
            self.assertEqual((1, 4), (self.value(3), self.value(4)))
            self.reopen()
        self.assertEqual(5, self.write(5))

    def test_killed_with_a_nearly_full_disk(self) -> None:
        """
        Below the reserve of the disk nothing is written but that: after a kill no version is given twice.
        """
        self.write(1)
        self.low = True
        for value in (2, 3, 4):
            self.write(value)
        self.low = False
        self.reopen()

        self.assertGreater(self.write(5), 4)
        self.assertEqual(2, self.gaps()[0].first)

    def test_killed_with_a_full_disk(self) -> None:
        """
        After a kill while the disk takes no byte, no version is given twice; after the next one none is left
        out.
        """
        self.write(1)
        self.disk.is_full = True
        self.write(2)
        self.write(3)
        self.disk.is_full = False
        self.reopen()

        self.assertEqual(JUMP + 2, self.write(4))
        self.assertEqual([Gap(2, JUMP + 1, "disk")], self.gaps())
        self.reopen()
        self.assertEqual(JUMP + 3, self.write(5))

    def test_missing_before_a_snapshot(self) -> None:
        """
        What is missing right before a snapshot is named once.
        """
        self.write(1)
        self.low = True
        self.write(2)
        self.low = False
        self.write(3, OTHER)
        for _ in self.journal.snapshot(self.journal.index(OBJECT), 2):
            pass
        self.write(4)

        self.assertEqual([Gap(2, 2, "disk")], self.state(3).missing)

    def test_create_ends_what_is_missing(self) -> None:
        """
        An object that is created again lacks nothing of before.
        """
        self.write(1)
        self.low = True
        self.write(2)
        self.low = False
        self.write(3, type="create")

        self.assertEqual([], self.state(3).missing)


class RetentionTests(JournalCase):
    """
    What is kept for how long.
    """

    def fill(self, number: int, object: str = OBJECT) -> None:
        for value in range(number):
            self.write(value, object)

    def test_oldest_segments_are_removed(self) -> None:
        """
        Beyond the bytes that are kept, the oldest segments go; the versions behind are reduced as before.
        """
        self.reopen(segment_bytes=2000)
        self.options.keep_bytes = 6000
        self.fill(100)
        expected = self.value(90)

        self.expire()

        index = self.journal.index(OBJECT)
        self.assertLess(self.journal.segments.size, 9000)
        self.assertGreater(index.oldest, 40)
        self.assertEqual("gone", self.value(index.oldest - 2))
        self.assertEqual(index.oldest - 2, self.value(index.oldest - 1))
        self.assertEqual(expected, self.value(90))
        self.reopen(segment_bytes=2000)
        self.assertEqual(index.oldest, self.journal.index(OBJECT).oldest)
        self.assertEqual([], self.gaps())
        self.assertEqual(expected, self.value(90))
        self.assertEqual(101, self.write(5))

    def test_damage_before_a_carried_snapshot(self) -> None:
        """
        A snapshot may be older than what was lost before it: it does not say which version was the last.
        """
        self.write(11111)
        self.reopen()
        self.now += 31 * DAY / 1_000_000
        self.write(22222)
        self.reopen()
        self.expire()
        self.assertEqual([1], [each.version for each in self.journal.index(OBJECT).snapshots])
        self.damage(b"22222")

        self.reopen()
        first = self.write(33333)
        self.reopen()

        self.assertGreater(first, JUMP)
        self.assertEqual(first + 1, self.write(44444))

    def test_old_segments_are_removed(self) -> None:
        """
        Segments whose last record is older than the days that are kept go; an object that still is stays.
        """
        self.fill(3)
        self.fill(2, OTHER)
        self.write(0, OTHER, "delete")
        self.reopen()
        self.now += 31 * DAY / 1_000_000
        self.write(1, "comm://example.org/3")

        self.expire()

        self.assertEqual(2, self.value(3))
        self.assertEqual("gone", self.value(2))
        self.assertIsNone(self.journal.index(OTHER))

    def age(self) -> None:
        """
        Remove all segments but the current one.
        """
        self.reopen()
        self.now += 31 * DAY / 1_000_000
        self.write(1, OTHER)
        self.expire()

    def test_deleted_object_does_not_come_back(self) -> None:
        """
        A snapshot that carried it is not its last word, and goes in the end.
        """
        self.write(1)
        self.reopen()
        self.write(0, type="delete")
        self.age()

        self.reopen()

        self.assertFalse(self.state(2).exists)
        self.age()
        self.reopen()
        self.assertIsNone(self.journal.index(OBJECT))
        self.assertEqual(3, self.write(5))

    def test_forgotten_objects_begin_above(self) -> None:
        """
        An object of which nothing was left goes on above all its versions of before, after a restart too.
        """
        self.fill(5)
        self.write(0, type="delete")
        self.reopen()
        self.now += 31 * DAY / 1_000_000
        self.write(1, OTHER)
        self.expire()
        self.assertIsNone(self.journal.index(OBJECT))

        self.reopen()

        self.assertEqual(7, self.write(1))

    def test_nothing_is_removed_while_the_disk_fails(self) -> None:
        """
        While nothing can be written, nothing is given up.
        """
        self.fill(3)
        self.reopen()
        self.now += 31 * DAY / 1_000_000
        self.disk.is_full = True

        self.expire()
        self.disk.is_full = False

        self.assertEqual(0, self.value(1))

    def test_removed_while_it_is_reduced(self) -> None:
        """
        An object whose messages are removed while it is reduced is not given with some of them left out.
        """
        self.open(segment_bytes=2000)
        self.options.keep_bytes = 4000
        for _ in range(12):
            self.write("'" + "x" * 9000 + "'")
        made: list[Any] = []
        steps = self.journal.reduce(self.journal.index(OBJECT), 12, made)
        next(steps)

        self.expire()
        for _ in steps:
            pass

        self.assertEqual([], made)
        self.assertIsNotNone(self.state(12))

    def test_forgotten_while_it_is_carried(self) -> None:
        """
        A message that the data plane carries for an object that is forgotten meanwhile begins it again.
        """
        self.write(1)
        self.reopen()
        record = packed(ENTRY, 7, 1, OTHER.encode(), b'{"id":1,"type":"update","to":"%b/changes"}')

        self.journal.record_carried(record, [(1, 7, len(record))], [OBJECT, OTHER], 1)
        self.journal.flush()

        for _ in range(2):
            self.assertEqual((7, 7), (self.journal.index(OTHER).version, self.journal.index(OTHER).oldest))
            self.reopen()

    def test_too_many_objects(self) -> None:
        """
        Beyond the limit of objects, further ones have no versions.
        """
        self.options.max_objects = 1
        self.write(1)

        self.assertEqual(2, self.write(2))
        self.assertIsNone(self.journal.begin(OTHER))
        self.assertEqual(1, self.journal.counts.refused)

    def test_objects_of_one_creator(self) -> None:
        """
        A creator begins so many objects, also after a kill; what is removed gives its place back.
        """
        self.options.max_objects_per_creator = 2
        for object in (OBJECT, OTHER):
            self.journal.add(self.index(object, "ann"), b"{}", "create", False)
        self.journal.flush()
        before = self.journal.may_begin("ann")
        self.reopen()
        after = [self.journal.may_begin(creator) for creator in ("ann", "bob", "")]
        self.options.max_objects_per_creator = 0

        self.assertEqual((False, [False, True, True]), (before, after))
        self.assertEqual(1, self.journal.counts.refused)
        self.assertTrue(self.journal.may_begin("ann"))

    def test_creator_of_an_object_whose_first_messages_are_removed(self) -> None:
        """
        The snapshot that takes their place knows him, also after a start.
        """
        self.reopen(segment_bytes=2000)
        self.options.keep_bytes = 6000
        self.journal.add(self.index(OBJECT, "ann"), b"{}", "create", False)
        self.fill(100)
        self.expire()
        self.assertGreater(self.journal.index(OBJECT).oldest, 1)

        self.reopen(segment_bytes=2000)

        self.options.max_objects_per_creator = 1
        self.assertEqual((False, True), (self.journal.may_begin("ann"), self.journal.may_begin("bob")))

    def test_creators_that_are_not_known(self) -> None:
        """
        Clients whose user and host are not known have half of all objects together.
        """
        self.options.max_objects = 4
        for number in (1, 2):
            self.write(number, f"comm://example.org/{number}")

        self.assertEqual((False, True), (self.journal.may_begin(""), self.journal.may_begin("ann")))
