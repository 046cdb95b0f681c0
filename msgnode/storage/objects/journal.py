"""
The journal of objects: each message of a kept object gets a version, and is on disk before it is sent.

All messages of one turn are one write. If it fails, the messages are sent nevertheless, and the journal notes
that it does not have them.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

import msgspec
from twisted.logger import Logger

from msgnode.config.objects import ObjectsOptions
from msgnode.storage.objects.object_index import Gap, ObjectIndex, Snapshot
from msgnode.storage.objects.records import (
    BEGIN,
    ENTRY,
    FLOOR,
    GAP,
    SNAPSHOT,
    Damaged,
    Found,
    Record,
    packed,
    packed_entries,
    unpacked,
)
from msgnode.storage.objects.reduction import Reduction, creator_of
from msgnode.storage.objects.seen_damage import SeenDamage
from msgnode.storage.objects.segments import UNSURE, Segments

log = Logger()

JUMP = 1_000_000  # versions left out where it is not known how many were given
DISK, DAMAGED, AWAY = "disk", "damaged", "away"
STEP_BYTES = 64 * 1024  # of messages that are applied in one slice
DAY = 86_400_000_000  # microseconds

PACKED = 0  # the kind of an entry that the data plane has packed

_gap = msgspec.json.Decoder(tuple[int, str])
# Records that are to be written: index, kind, version, microseconds, data. The version and the time are those
# of the first one; the next ones follow without a gap. Only entries may be several.
Recorded = tuple[ObjectIndex, int, int, int, list[bytes]]


class Entry(msgspec.Struct, frozen=True):
    """
    A message of the journal: its version, when it came, in microseconds since 1970, and its bytes.
    """

    version: int
    micros: int
    data: bytes


class JournalCounts(msgspec.Struct):
    """
    The counts of the journal since the node started.
    """

    written: int = 0
    lost: int = 0  # messages that were not written, because the disk failed or was full
    snapshots: int = 0
    damaged: int = 0  # records that could not be read
    segments_removed: int = 0
    refused: int = 0  # messages of objects that are not kept, because too many are


class ObjectJournal:
    """
    The journal of all kept objects. `is_low`: has the disk no room for it?

    `objects` are those that are kept, by address. `failing` is why nothing can be written now, or empty.
    `micros` is the time of the last record, in microseconds since 1970.
    """

    def __init__(
        self,
        directory: Path,
        options: ObjectsOptions,
        full_sync: bool = False,
        wall: Callable[[], float] = time.time,
        segments: Segments | None = None,
        is_low: Callable[[], bool] = lambda: False,
    ) -> None:
        self.counts = JournalCounts()
        self.failing = ""
        self.is_shared = False  # may other nodes have given versions to an object before?
        self.options = options
        self._unsure = directory / UNSURE
        self.segments = segments if segments is not None else Segments(directory, full_sync)
        self._wall = wall
        self._is_low = is_low
        self.objects: dict[str, ObjectIndex] = {}
        self._created: Counter[str] = Counter()  # objects by creator
        self.floor = 0  # versions of objects that were forgotten are not above it
        self._buffer: list[Recorded] = []
        self._last: ObjectIndex | None = None  # the object of the last entry, if another may join it
        self._last_data: list[bytes] = []
        self.micros = 0
        self._damage = SeenDamage()
        self._grown: dict[str, ObjectIndex] = {}  # those that may want a snapshot
        self._open_gaps: dict[str, Gap] = {}  # what could not be written since the last write, by object

    def __len__(self) -> int:
        return len(self.objects)

    # -- the start and the end -----------------------------------------------------------

    def open(self) -> None:
        """
        Reads what is there. OSError if the directory cannot be used.
        """
        known: dict[bytes, ObjectIndex] = {}
        damaged_at: set[str] = set()  # objects whose last version may be lost in the last damage
        unsure: set[str] = set()  # objects of which it is not known how many versions they had
        for segment, found in self.segments.open():
            self._damage.found(segment, found is None)
            if found is None:
                self.counts.damaged += 1
                damaged_at = set(self.objects)
                continue
            if found.kind == FLOOR:
                self._recover_floor(segment << 40 | found.offset, found.version)
                continue
            is_known = found.address in known
            index = self._recover(segment, found, known)
            if found.kind != SNAPSHOT:
                damaged_at.discard(index.address)
            elif self._damage.is_new and not is_known:  # a snapshot may be older than the last version
                damaged_at.add(index.address)
            if found.kind == GAP:
                self._recover_gap(index, segment << 40 | found.offset, unsure)
            elif found.kind == ENTRY:
                unsure.discard(index.address)
        for index in self.objects.values():
            index.recovered()
        self.micros = max(self.segments.newest.values(), default=0)  # the clock may have been set back
        if self._unsure.exists():
            unsure |= self.objects.keys()
        if self._damage.is_new:  # an object may be lost of which nothing is left
            self.floor = max([self.floor, *(index.version for index in self.objects.values())]) + JUMP
        for address in damaged_at | unsure:
            self._jump(self.objects[address], DAMAGED if address in damaged_at else DISK)
        if self.counts.damaged:
            log.warn(
                "{number} parts of the journal of objects are damaged; reads say what is missing",
                number=self.counts.damaged,
            )
        self._next_segment()
        self._damage.grows(self.segments.number)
        if self._write_gaps():
            self._unsure.unlink(missing_ok=True)

    def _recover(self, segment: int, found: Found, known: dict[bytes, ObjectIndex]) -> ObjectIndex:
        place, version = segment << 40 | found.offset, found.version
        index = known.get(found.address)
        if index is None or found.kind == BEGIN:
            floor = version if found.kind == SNAPSHOT else version - 1
            creator = self._creator(place)
            index = self._add(ObjectIndex(found.address.decode(), floor, creator))
            index.is_whole = found.kind == BEGIN
            known[found.address] = index
        if found.kind == ENTRY:
            index.add(version, place, found.length)
        elif found.kind == SNAPSHOT:
            index.add_snapshot(Snapshot(version, place, found.length))
            if not index.creator and (creator := self._creator(place)):
                self._forget(index)
                index.creator = creator
                self._add(index)
        return index

    def _recover_floor(self, place: int, version: int) -> None:
        self.floor = max(self.floor, version)
        with suppress(Damaged, ValueError):
            self._damage.floor(unpacked(self.segments.read(place)).data)

    def _creator(self, place: int) -> str:
        """
        The creator of the object whose first record this is; "" if that is not known any more.
        """
        try:
            record = unpacked(self.segments.read(place))
            if record.kind == SNAPSHOT:
                return creator_of(record.data)
            return record.data.decode() if record.kind == BEGIN else ""
        except (Damaged, ValueError):
            return ""

    def _add(self, index: ObjectIndex) -> ObjectIndex:
        before = self.objects.get(index.address)
        if before is not None:
            self._forget(before)
        self.objects[index.address] = index
        self._created[index.creator] += 1
        return index

    def _forget(self, index: ObjectIndex) -> None:
        del self.objects[index.address]
        self._created[index.creator] -= 1
        if not self._created[index.creator]:
            del self._created[index.creator]

    def _recover_gap(self, index: ObjectIndex, place: int, unsure: set[str]) -> None:
        try:
            record = unpacked(self.segments.read(place))
            last, why = _gap.decode(record.data)
        except (Damaged, ValueError):
            return
        if last:
            index.add_gap(Gap(record.version, last, why))
            unsure.discard(index.address)
        else:
            unsure.add(index.address)

    def _jump(self, index: ObjectIndex, why: str) -> None:
        """
        Leaves out versions, which may have been given before.
        """
        first = index.version + 1
        self._open_gaps[index.address] = Gap(first, first + JUMP - 1, why)
        index.version += JUMP
        index.add_gap(self._open_gaps[index.address])

    def close(self) -> None:
        self.flush()
        self._write_gaps()
        self.segments.close()

    # -- writing -----------------------------------------------------------------------

    def index(self, address: str) -> ObjectIndex | None:
        return self.objects.get(address)

    def indexes(self) -> list[ObjectIndex]:
        return list(self.objects.values())

    def may_begin(self, creator: str) -> bool:
        """
        May this creator have another object? Those that are not known by name may have half of all together.
        """
        most = self.options.max_objects_per_creator if creator else self.options.max_objects // 2
        if not self.options.max_objects_per_creator or self._created[creator] < max(most, 1):
            return True
        self.counts.refused += 1
        return False

    def _first_floor(self) -> int:
        """
        The version before the first one of a new object. In a cluster it is above those that another keeper
        has given.
        """
        return max(self.floor, int(self._wall() * 1000)) if self.is_shared else self.floor

    def begin(self, address: str, creator: str = "") -> ObjectIndex | None:
        """
        Begins an object; None if it cannot be kept, because there are too many.
        """
        if len(self.objects) >= self.options.max_objects:
            self.counts.refused += 1
            return None
        self.micros = self.micros + 1 if self._buffer else self._now()
        return self._begin(address, self._first_floor() + 1, creator)

    def add(self, index: ObjectIndex, data: bytes, kind: str, is_child: bool) -> None:
        """
        Records the next message of an object, to be written by `flush`. Those that are written together have
        the time of the first one, and a microsecond more each.
        """
        index.version = version = index.version + 1
        if not is_child:
            index.has_value = kind != "delete"
        if index is self._last:
            self.micros += 1
            self._last_data.append(data)
            return
        self.micros = self.micros + 1 if self._buffer else self._now()
        self._put(index, ENTRY, version, data)
        self._last = index

    def _put(self, index: ObjectIndex, kind: int, version: int, data: bytes) -> None:
        self._last, self._last_data = None, [data]
        self._buffer.append((index, kind, version, self.micros, self._last_data))

    def _begin(self, address: str, version: int, creator: str = "") -> ObjectIndex:
        """
        Begins an object whose first message has this version.
        """
        index = self._add(ObjectIndex(address, version - 1, creator))
        self._put(index, BEGIN, version, creator.encode(errors="replace"))
        return index

    def record_carried(
        self, records: bytes, entries: list[tuple[int, int, int]], addresses: list[str], micros: int
    ) -> None:
        """
        Records what the data plane has given versions: for each record the number of its object among the
        addresses, its version and its length. `micros` is the time of the last one.
        """
        at, objects = 0, self.objects
        last: ObjectIndex | None = None
        self.micros = max(self.micros, micros)
        for number, version, length in entries:
            index = objects.get(addresses[number])
            if index is None:  # it was forgotten meanwhile
                index = self._begin(addresses[number], version)
            record = records[at : at + length]
            if index is last and version == index.version + 1:
                self._last_data.append(record)
            else:
                self._put(index, PACKED, version, record)
            last, index.version = index, version
            at += length

    def miss(self, address: str) -> bool:
        """
        Notes, as one version, that messages of the object are missing: they came while this node was away.
        """
        index = self.objects.get(address)
        if index is None:
            return False  # nothing before is kept either
        version = index.version + 1
        index.add_gap(Gap(version, version, AWAY))
        self._now()
        self._put(index, GAP, version, msgspec.json.encode((version, AWAY)))
        return True

    def _now(self) -> int:
        self.micros = max(self.micros + 1, int(self._wall() * 1_000_000))
        return self.micros

    def flush(self) -> None:
        """
        Writes what is recorded. Never raises.
        """
        if not self._buffer:
            return
        buffer, self._buffer, self._last = self._buffer, [], None
        if self._is_low():
            self._lose(buffer, "its disk is nearly full")
            return
        if self._open_gaps and not self._write_gaps():
            self._lose(buffer, self.failing)
            return
        written = [_packed(each) for each in buffer]
        place = self._append([record for records in written for record in records])
        if not place:
            self._lose(buffer, self.failing)
            return
        self._index(buffer, written, place)
        if self.segments.is_full:
            self._next_segment()

    def _index(self, buffer: list[Recorded], written: list[list[bytes]], place: int) -> None:
        """
        Notes what was written from this place on.
        """
        for (index, kind, version, _, _), records in zip(buffer, written, strict=True):
            *places, end = accumulate(map(len, records), initial=place)
            if kind <= ENTRY:
                index.add_all(version, places, end - place)
                self.counts.written += len(places)
                if index.is_long:
                    self._grown[index.address] = index
            elif kind == SNAPSHOT:
                index.add_snapshot(Snapshot(version, place, end - place))
                self.counts.snapshots += 1
            place = end

    def _append(self, records: list[bytes]) -> int:
        """
        The place of the first of these records; 0 if they could not be written.
        """
        try:
            place = self.segments.append(records, self.micros)
        except (OSError, KeyError) as why:
            failing = getattr(why, "strerror", None) or "it has no segment"
            if not self.failing:
                log.error("the journal of objects cannot be written: {why}", why=failing)
            self.failing = failing
            self._next_segment(is_needed=isinstance(why, KeyError))
            return 0
        if self.failing:
            log.info("the journal of objects is written again")
        self.failing = ""
        return place

    def _next_segment(self, is_needed: bool = True) -> None:
        """
        Begins a segment; if that fails, the current one goes on growing.
        """
        if is_needed:
            now = self._now()
            try:
                self.segments.begin(packed(FLOOR, self.floor, now, b"", self._damage.named()), now)
            except OSError as why:
                log.warn("no segment for the journal of objects can be made: {why}", why=why.strerror)

    # -- what could not be written ---------------------------------------------------------

    def _lose(self, buffer: list[Recorded], why: str) -> None:
        self.failing = why
        for index, kind, version, _, data in buffer:
            if kind not in (PACKED, ENTRY, GAP):
                continue
            self.counts.lost += len(data)
            before = self._open_gaps.get(index.address)
            if before is None:
                self._note_open(index, version)
            first, last = before.first if before is not None else version, version + len(data) - 1
            gap = Gap(first, last, DISK)
            self._open_gaps[index.address] = gap
            index.gaps = [each for each in index.gaps if each.first != gap.first]
            index.add_gap(gap)

    def _note_open(self, index: ObjectIndex, version: int) -> None:
        """
        Notes on disk, if it has room for that, that a gap begins: after a kill, no version is given twice.
        """
        record = packed(GAP, version, self._now(), index.encoded, msgspec.json.encode((0, DISK)))
        try:
            self.segments.append([record], self.micros)
        except (OSError, KeyError):
            with suppress(OSError):
                self._unsure.touch()  # an empty file takes no room

    def _write_gaps(self) -> bool:
        """
        Writes what is known of the gaps. False if that fails.
        """
        if not self._open_gaps:
            return True
        records = [
            packed(
                GAP,
                gap.first,
                self._now(),
                self.objects[address].encoded,
                msgspec.json.encode((gap.last, gap.why)),
            )
            for address, gap in self._open_gaps.items()
            if address in self.objects
        ]
        if not self._append(records):
            return False
        self._open_gaps = {}
        with suppress(OSError):
            self._unsure.unlink()
        return True

    # -- reading -----------------------------------------------------------------------

    def read(self, index: ObjectIndex, number: int) -> Entry | None:
        """
        An entry, by its number from the first that is there; None if it is damaged.
        """
        record = self._read(index, index.place(number))
        return None if record is None else Entry(record.version, record.micros, record.data)

    def _read(self, index: ObjectIndex, place: int) -> Record | None:
        try:
            record = unpacked(self.segments.read(place))
            if record.address == index.address:
                return record
        except (Damaged, ValueError):
            pass
        self.counts.damaged += 1
        return None

    def version_at(self, index: ObjectIndex, micros: int) -> int:
        """
        The last version at this time; one before the oldest if there was none.
        """
        first, end = 0, len(index)
        while first < end:
            middle = (first + end) // 2
            entry = self.read(index, middle)
            if entry is not None and entry.micros > micros:
                end = middle
            else:
                first = middle + 1
        if first:
            return index.version_of(first - 1)
        base = self._base(index, index.oldest - 1)
        return index.oldest - 1 if base is None or base.state.time <= micros else index.oldest - 2

    def _base(self, index: ObjectIndex, version: int) -> Reduction | None:
        """
        The snapshot from which the object is reduced to this version; None if there is none.
        """
        found = index.base(version)
        while found is not None:
            record = self._read(index, found.place)
            if record is not None:
                reduction = Reduction(self.options.max_object_bytes, record.data)
                reduction.state.version = found.version  # what is missing before is in the state
                return reduction
            index.snapshots.remove(found)
            found = index.base(version)
        return Reduction(self.options.max_object_bytes) if index.is_whole else None

    def reduce(
        self,
        index: ObjectIndex,
        version: int,
        made: list[Reduction],
        shown: Callable[[bytes], bytes | None] | None = None,
    ) -> Iterator[None]:
        """
        Reduces the object to a version, in slices, and puts the result into `made`; nothing if what is before
        is not kept. With `shown`, what it makes of each message is applied, from the beginning of the object.
        """
        self.flush()
        if shown is None:
            reduction = self._base(index, version)
        else:
            reduction = Reduction(self.options.max_object_bytes) if index.is_whole else None
        if reduction is None:
            return
        at = max(reduction.state.version + 1, index.oldest)
        done = 0
        while at <= version and (number := index.find(at)) < len(index):
            entry = self.read(index, number)
            found = entry.version if entry is not None else index.version_of(number)
            last = min(found, version + 1)
            for gap in index.missing(at, last - 1):
                reduction.skip(gap)
            at = found + 1
            if found > version:
                break
            if entry is None:
                reduction.skip(Gap(found, found, DAMAGED))
            else:
                data = entry.data if shown is None else shown(entry.data)
                if data is not None:
                    reduction.apply(index.address, found, entry.micros, data)
                done += len(entry.data)
            done += 256
            if done > STEP_BYTES:
                done = 0
                yield
                if at < index.oldest:
                    return  # its messages were removed meanwhile
        for gap in index.missing(at, version):
            reduction.skip(gap)
        made.append(reduction)

    # -- snapshots, and the oldest segments ----------------------------------------------------

    def grown(self) -> list[ObjectIndex]:
        """
        The objects that have had enough entries since the last call, and want a snapshot.
        """
        grown, self._grown = self._grown, {}
        return [index for index in grown.values() if index.is_long]

    def snapshot(self, index: ObjectIndex, version: int) -> Iterator[None]:
        """
        Writes the object as it was at this version, in slices.
        """
        made: list[Reduction] = []
        yield from self.reduce(index, version, made)
        if made:
            self._write_snapshot(index, version, made[0])

    def _write_snapshot(self, index: ObjectIndex, version: int, reduction: Reduction) -> None:
        reduction.state.creator = index.creator
        self._now()
        self._put(index, SNAPSHOT, version, reduction.encoded())
        self.flush()

    @property
    def is_too_large(self) -> bool:
        """
        Are there more bytes than are kept, and segments to remove?
        """
        return self.segments.size > self.options.keep_bytes and bool(self.segments.oldest())

    def expire(self) -> Iterator[None]:
        """
        Removes the oldest segments that are too old or too much, in slices. An object of which there is
        something later is written as it was.
        """
        for _ in range(len(self.segments)):
            oldest = self.segments.oldest()
            if not oldest or not self._is_over(oldest):
                return
            carried = 0
            for index in self.indexes():
                if index.is_in(oldest):
                    if carried < self.options.keep_bytes // 4:
                        yield from self._carry(index, oldest)
                        carried += index.snapshots[-1].length if index.snapshots else 0
                    yield
            if self.failing or self._open_gaps:
                return  # nothing is removed while nothing can be written
            self._remove(oldest)

    def _is_over(self, segment: int) -> bool:
        days = self.options.keep_days
        too_old = days and self.segments.newest.get(segment, 0) < self._now() - days * DAY
        return bool(too_old) or self.segments.size > self.options.keep_bytes

    def _carry(self, index: ObjectIndex, segment: int) -> Iterator[None]:
        version = index.last_in(segment) or index.oldest - 1
        later = [each.version for each in index.snapshots if each.place >= (segment + 1) << 40]
        if version in later:
            return
        made: list[Reduction] = []
        yield from self.reduce(index, version, made)
        if not made:
            return
        state = made[0].state
        # An object that does not exist any more is written, too, lest an older snapshot be its last record.
        if state.exists or state.children or version != index.version or later:
            self._write_snapshot(index, version, made[0])

    def _remove(self, segment: int) -> None:
        self.flush()  # what is recorded belongs to the indexes that are there
        floor = self.floor
        for index in self.indexes():
            if index.is_in(segment):
                index.remove(segment)
                if not len(index) and not index.snapshots:
                    self._forget(index)
                    self.floor = max(self.floor, index.version)
        if self.floor != floor and not self._append([packed(FLOOR, self.floor, self._now(), b"", b"")]):
            return
        self.segments.drop(segment)
        self.counts.segments_removed += 1


def _packed(recorded: Recorded) -> list[bytes]:
    index, kind, version, micros, data = recorded
    if kind == PACKED:
        return data
    if kind == ENTRY:
        return packed_entries(version, micros, index.encoded, data)
    return [packed(kind, version, micros, index.encoded, data[0])]
