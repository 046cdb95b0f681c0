"""
Recovery: the segments of the spool are read and checked after a restart.

A batch torn by the end of the process is the last thing in the last segment, and is truncated. Everything
else that differs from what was written is damage, and the node refuses to start: `msgnode state repair` moves
it aside.

Each segment records the length of the one before it, and the high-water mark that of the last. A truncated or
missing segment is therefore detected as damage. If only the end of the last segment is lost, as after a power
failure, the node starts without a repair and notifies its sessions that messages may be missing.
"""

import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from struct import error as StructError
from zlib import crc32

from twisted.logger import Logger

from msgnode.storage import spool_end
from msgnode.storage.database import DOWNGRADE
from msgnode.storage.spool_records import History, RecordReader, SessionRecovery

# The last byte is the version of what a segment may hold: 2 since there are records of copies (kind 13).
# Earlier releases would take these for damage.
MAGIC = b"msgspl\x00\x02"
OLDEST_VERSION = 1  # that is read

log = Logger()

BATCH = Struct("<II")  # length, CRC-32
# A batch begins with a length below 256 MiB, a checksum, and a record of a known kind. The text of a message
# never matches: JSON has no NUL byte, and letters would make the length too large.
_PERHAPS = re.compile(rb"(?=...[\x00-\x0f]....[\x01-\x0d])", re.DOTALL)
INCOMPLETE = "incomplete"  # name of the file that exists after a repair, until the sessions are notified


class CorruptSegment(Exception):
    """
    A segment that differs from what the node wrote.

    `gone`: the missing part cannot be read any more. `at_end`: it is only the end of the last segment.
    """

    def __init__(self, path: Path, what: str, gone: bool = False, at_end: bool = False) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path
        self.what = what
        self.gone = gone
        self.at_end = at_end


class NewerSegment(CorruptSegment):
    """
    A segment that a newer version wrote.
    """


def segments(directory: Path) -> list[Path]:
    """
    The segment files of a spool, oldest first.
    """
    return sorted(directory.glob("spool-????????.seg"))


def number_of(path: Path) -> int:
    return int(path.stem[6:])


def recover(directory: Path) -> dict[int, SessionRecovery]:
    """
    The undelivered messages by session. Truncates a torn batch; marks the spool incomplete if more was lost.

    Raises CorruptSegment, OSError.
    """
    found: defaultdict[int, SessionRecovery] = defaultdict(SessionRecovery)
    reading = SegmentReader(directory)
    ends = {path: reading.replay(path, found) for path in reading.paths}
    for damage in reading.gone():
        if not damage.at_end:
            raise damage
        log.error("{why}; messages may be lost, and all sessions are notified", why=str(damage))
        mark_incomplete(directory)
    for path, end in ends.items():
        if end == 0:
            path.unlink()  # it was begun and has no batch
        elif end < path.stat().st_size:
            os.truncate(path, end)
    for owed in found.values():
        owed.finish()
    return found


class SegmentReader:
    """
    The segments of a spool, read in order and checked against each other.

    After a repair they are not checked: the loss is known, and the sessions are notified.
    """

    def __init__(self, directory: Path) -> None:
        self.paths = segments(directory)
        self._directory = directory
        self._repaired = (directory / INCOMPLETE).exists()
        self._mark = None if self._repaired else spool_end.read(directory)
        self._history = History()
        self._ends: dict[int, int] = {}
        self._unmarked = 0  # length of the last segment, if its end is damaged and has no mark

    def replay(self, path: Path, found: defaultdict[int, SessionRecovery]) -> int:
        """
        Add the records of a segment. Returns the offset of its torn batch, or its length.
        """
        number = number_of(path)
        is_last = path == self.paths[-1]
        data = path.read_bytes()
        begun = not is_last or len(data) >= len(MAGIC) or not MAGIC.startswith(data)
        end = _replay(path, data, found, self._history) if begun else 0
        if end < len(data) and not self._may_end(path, data, end, is_last):
            raise CorruptSegment(path, f"is damaged at byte {end}")
        self._ends[number] = end
        return end

    def _may_end(self, path: Path, data: bytes, end: int, is_last: bool) -> bool:
        """
        Is the rest of the segment only a torn batch?
        """
        if not is_last:
            return False
        if _next_valid(data, end) is not None:
            raise CorruptSegment(path, f"is damaged at byte {end}, and goes on after it")
        if self._repaired:
            return True
        if self._mark is None or self._mark[0] != number_of(path):
            self._unmarked = len(data) if end and not _is_torn(data, end) else 0
        return True  # the mark shows how much of it had counted

    def gone(self) -> Iterator[CorruptSegment]:
        """
        The segments, or ends of segments, that are lost.
        """
        if self._repaired:
            return
        expected = dict(self._history.before.values())
        before = 0
        for number in self._ends:
            if before and number not in self._history.before:
                expected.setdefault(number - 1, 0)
            before = number
        if self._mark is not None:
            number, end = self._mark
            expected[number] = max(end, expected.get(number, 0))
        if self._unmarked:
            expected[before] = self._unmarked
        accepted, known = self._history.accepted, self._history.known
        expected = {number: end for number, end in expected.items() if number > accepted} | known
        if self._ends.get(before, 0) < expected.get(before, 0):
            # The lost end may have recorded that the oldest segments were deleted.
            expected = {number: end for number, end in expected.items() if number >= min(self._ends)}
        for number, length in sorted(expected.items()):
            path = self._directory / f"spool-{number:08}.seg"
            if number not in self._ends:
                yield CorruptSegment(path, "is missing", gone=True)
            elif self._ends[number] < length:
                have = f"ends at byte {self._ends[number]}, though {length} were written"
                yield CorruptSegment(path, have, gone=True, at_end=path == self.paths[-1])


def _replay(path: Path, data: bytes, found: defaultdict[int, SessionRecovery], history: History) -> int:
    """
    Add the records of a segment. Returns the offset after its last valid batch.
    """
    end, replay = len(MAGIC), RecordReader(data, number_of(path), found, history)
    for start, end in _batches(path, data):
        try:
            replay.batch(start, end)
        except (StructError, ValueError, IndexError) as why:
            raise CorruptSegment(path, f"holds a batch at byte {start} that cannot be read") from why
    return end


def _is_torn(data: bytes, at: int) -> bool:
    """
    Does a batch begin there that the file ends in the middle of?
    """
    if at + BATCH.size > len(data):
        return True
    length, _ = BATCH.unpack_from(data, at)
    return bool(length) and at + BATCH.size + length > len(data)


def _batches(path: Path, data: bytes) -> Iterator[tuple[int, int]]:
    """
    The start and end offsets of the content of each valid batch.
    """
    if data[:7] != MAGIC[:7] or len(data) < len(MAGIC):
        raise CorruptSegment(path, "is not a segment of the spool")
    what = f"has version {data[7]}, this msgnode knows {MAGIC[7]}"
    if data[7] > MAGIC[7]:
        raise NewerSegment(path, f"was written by a newer msgnode ({what}); {DOWNGRADE}")
    if data[7] < OLDEST_VERSION:
        raise CorruptSegment(path, f"was written by another version of msgnode ({what})")
    at = len(MAGIC)
    while (end := _valid(data, at)) is not None:
        yield at + BATCH.size, end
        at = end


def _valid(data: bytes, at: int) -> int | None:
    """
    The offset after the batch at `at`; None if there is no valid batch.
    """
    if at + BATCH.size > len(data):
        return None
    length, check = BATCH.unpack_from(data, at)
    start = at + BATCH.size
    end: int = start + length
    if not length or end > len(data) or crc32(memoryview(data)[start:end]) != check:
        return None
    return end


def _next_valid(data: bytes, at: int) -> int | None:
    """
    The offset of the next valid batch anywhere behind `at`, or None. Slow, used for damaged files only.
    """
    for perhaps in _PERHAPS.finditer(data, at):
        end = _valid(data, perhaps.start())
        if end is not None and _readable(data, perhaps.start() + BATCH.size, end):
            return perhaps.start()
    return None


def _readable(data: bytes, start: int, end: int) -> bool:
    try:
        RecordReader(data, 0, defaultdict(SessionRecovery), History()).batch(start, end)
    except (StructError, ValueError, IndexError):
        return False
    return True


def examine(directory: Path) -> list[str]:
    """
    Descriptions of all damage in the segments. Nothing is changed.
    """
    return [str(why) for why in _damages(directory)]


def _damages(directory: Path) -> Iterator[CorruptSegment]:
    reading = SegmentReader(directory)
    whole = True
    for path in reading.paths:
        try:
            reading.replay(path, defaultdict(SessionRecovery))
        except CorruptSegment as why:
            whole = False
            yield why
        except OSError as why:
            whole = False
            yield CorruptSegment(path, why.strerror or str(why))
    if whole:  # else the order of the segments is not known
        yield from reading.gone()


def repair(directory: Path) -> list[str]:
    """
    Move damaged segments aside and keep their readable batches. Returns descriptions of what was done.

    Raises NewerSegment, and changes nothing then.
    """
    done: list[str] = []
    damages = list(_damages(directory))
    for damage in damages:
        if isinstance(damage, NewerSegment):
            raise damage
    if damages:
        mark_incomplete(directory)
    for path in dict.fromkeys(damage.path for damage in damages if damage.gone):
        done.append(f"{path}: its content is lost")
    for damage in damages:
        if damage.gone:
            continue
        path = damage.path
        data = path.read_bytes()
        whole = bytearray(MAGIC)
        at = _next_valid(data, len(MAGIC))
        while at is not None:
            end = _valid(data, at)
            assert end is not None
            whole += data[at:end]
            at = _next_valid(data, end)
        fresh, aside = path.with_name(f"{path.name}.new"), _aside(path)
        fresh.touch(0o600)
        fresh.write_bytes(whole)
        # A file of that name exists at every moment: a start would not notice that it is missing.
        os.link(path, aside)
        fresh.replace(path)
        done.append(f"{path}: moved to {aside.name}; {len(whole)} of {len(data)} bytes were kept")
    return done


def mark_incomplete(directory: Path) -> None:
    """
    Make the node notify its sessions, at the next start, that messages may be missing.
    """
    directory.mkdir(exist_ok=True, mode=0o700)
    (directory / INCOMPLETE).touch(0o600)


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
