"""
The index of one kept object: where its entries and snapshots are on disk, and which versions are missing.
"""

from array import array
from bisect import bisect_left, bisect_right, insort
from typing import NamedTuple

MAX_GAPS = 1000  # more are merged, the oldest first
SNAPSHOT_ENTRIES = 256  # entries after which the object is reduced again
SNAPSHOT_BYTES = 256 * 1024  # or bytes of them, if that is sooner,
SNAPSHOT_TIMES = 4  # but at least so many times the last snapshot


class Gap(NamedTuple):
    """
    Versions that the journal does not have, and why.
    """

    first: int
    last: int
    why: str


class Snapshot(NamedTuple):
    """
    A snapshot: the version that it is the state of, its place, and its length.
    """

    version: int
    place: int
    length: int


class ObjectIndex:
    """
    The index of an object. `version` is the last one given, `oldest` the first one that may be there;
    `creator` has published the first one, empty if that is not known.

    A place is the number of the segment, shifted left by 40 bits, plus the offset. `is_whole`: nothing was
    removed since the object began. `is_long`: have enough entries come since the last snapshot for another?
    """

    def __init__(self, address: str, floor: int, creator: str = "") -> None:
        self.address = address
        self.creator = creator
        self.encoded = address.encode()
        self.version = floor
        self.oldest = floor + 1
        self.is_whole = True
        self.has_value = True  # is it not known that it was deleted?
        self.gaps: list[Gap] = []
        self.snapshots: list[Snapshot] = []
        self.unreduced = self.unreduced_bytes = 0  # entries since the last snapshot
        self._next = floor + 1  # the version of an entry that continues the last run
        self._places = array("Q")
        self._runs: list[tuple[int, int]] = []  # versions without a gap: the first, and its index
        self._removed = 0  # entries removed from the front of the places

    def __len__(self) -> int:
        return len(self._places)

    def add(self, version: int, place: int, length: int) -> None:
        """
        Adds an entry; versions between the last one and this one are missing.
        """
        self.add_all(version, [place], length)

    def add_all(self, version: int, places: list[int], size: int) -> None:
        """
        Adds entries of successive versions from this one on, of that many bytes.
        """
        if version != self._next or not self._runs:
            self._runs.append((version, self._removed + len(self._places)))
        self._next = version + len(places)
        self._places.fromlist(places)
        if self._next > self.version:
            self.version = self._next - 1
        self.unreduced += len(places)
        self.unreduced_bytes += size

    @property
    def is_long(self) -> bool:
        if self.unreduced < SNAPSHOT_ENTRIES and self.unreduced_bytes < SNAPSHOT_BYTES:
            return False
        last = self.snapshots[-1].length if self.snapshots else 0
        return self.unreduced_bytes >= SNAPSHOT_TIMES * last

    def add_gap(self, gap: Gap) -> None:
        self.version = max(self.version, gap.last)
        if gap.last < self.oldest:
            return
        insort(self.gaps, gap)
        if len(self.gaps) > MAX_GAPS:
            first, second = self.gaps[:2]
            self.gaps[:2] = [Gap(first.first, second.last, first.why)]

    def add_snapshot(self, snapshot: Snapshot) -> None:
        self.snapshots = [each for each in self.snapshots if each.version != snapshot.version]
        insort(self.snapshots, snapshot)
        self.version = max(self.version, snapshot.version)
        if snapshot is self.snapshots[-1]:
            self.unreduced = self.unreduced_bytes = 0

    def find(self, version: int) -> int:
        """
        The number of the first entry with this version, or a later one.
        """
        run = bisect_right(self._runs, (version, 1 << 62)) - 1
        if run < 0:
            return 0
        first, at = self._runs[run]
        end = self._runs[run + 1][1] if run + 1 < len(self._runs) else self._removed + len(self._places)
        return max(0, min(at + version - first, end) - self._removed)

    def version_of(self, number: int) -> int:
        """
        The version of an entry, by its number from the first.
        """
        number += self._removed
        first, at = self._runs[bisect_right(self._runs, number, key=lambda run: run[1]) - 1]
        return first + number - at

    def place(self, number: int) -> int:
        return self._places[number]

    def base(self, version: int) -> Snapshot | None:
        """
        The last snapshot up to this version.
        """
        found = bisect_right(self.snapshots, version, key=lambda each: each.version)
        return self.snapshots[found - 1] if found else None

    def missing(self, first: int, last: int) -> list[Gap]:
        """
        The gaps among these versions.
        """
        return [
            Gap(max(gap.first, first), min(gap.last, last), gap.why)
            for gap in self.gaps
            if gap.first <= last and gap.last >= first
        ]

    def recovered(self) -> None:
        """
        All records of the object have been read: notes the versions as damaged that are missing without a
        record of a gap.
        """
        if not self.is_whole:
            if self._runs:
                self.oldest = self._runs[0][0]
            elif self.snapshots:
                self.oldest = self.snapshots[-1].version + 1
            self._drop_useless()
        before = self.oldest - 1 if self.is_whole else None
        for run, (first, at) in enumerate(self._runs):
            if before is not None and first > before + 1:
                self._infer(before + 1, first - 1)
            end = self._runs[run + 1][1] if run + 1 < len(self._runs) else self._removed + len(self._places)
            before = first + end - at - 1

    def _infer(self, first: int, last: int) -> None:
        for gap in self.missing(first, last):
            if gap.first > first:
                self.add_gap(Gap(first, gap.first - 1, "damaged"))
            first = gap.last + 1
        if first <= last:
            self.add_gap(Gap(first, last, "damaged"))

    # -- the oldest segment ------------------------------------------------------------

    def is_in(self, segment: int) -> bool:
        """
        Has this segment, which is the oldest, anything of the object?
        """
        end = (segment + 1) << 40
        return bool(
            (self._places and self._places[0] < end) or any(each.place < end for each in self.snapshots)
        )

    def last_in(self, segment: int) -> int:
        """
        The last version in this segment, which is the oldest; 0 if only snapshots are there.
        """
        number = bisect_left(self._places, (segment + 1) << 40)
        return self.version_of(number - 1) if number else 0

    def remove(self, segment: int) -> None:
        """
        Removes what was in this segment, which is the oldest.
        """
        end = (segment + 1) << 40
        number = bisect_left(self._places, end)
        if number:
            self.is_whole = False
            self.oldest = self.version_of(number - 1) + 1
            self._removed += number
            del self._places[:number]
            while len(self._runs) > 1 and self._runs[1][1] <= self._removed:
                del self._runs[0]
            if self._runs and self._runs[0][1] < self._removed:
                first, at = self._runs[0]
                self._runs[0] = first + self._removed - at, self._removed
            if not self._places:
                self._runs = []
        self.snapshots = [each for each in self.snapshots if each.place >= end]
        self._drop_useless()

    def _drop_useless(self) -> None:
        """
        Drops what is only of use before the oldest version.
        """
        self.snapshots = [each for each in self.snapshots if each.version >= self.oldest - 1]
        self.gaps = [gap for gap in self.gaps if gap.last >= self.oldest]
