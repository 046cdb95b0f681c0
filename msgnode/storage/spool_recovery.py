"""
The files of the spool, read after a restart: what is whole in them, and what is not.

A batch that was torn by the end of the process is the last thing in the last
file, and cut off.  Anything else that is not as it was written is damage, and
the node does not start on it: `msgnode state repair` moves it aside.

Each file says how long the one before it was, and the high-water mark says it
of the last.  So what is cut off at any place, or gone, is damage as well.  Where
nothing but the end of the last file is lost, as when the power failed, the node
starts without a repair, and tells its sessions as after one.
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
from msgnode.storage.spool_records import History, RecordReader, SessionRecovery

MAGIC = b"msgspl\x00\x01"  # the last byte is the version

log = Logger()

BATCH = Struct("<II")  # length, CRC-32
# How a batch begins: a length below 256 MiB, the check, a record of a known kind.
# No text of a message looks so: JSON has no NUL, and no length is made of letters.
_PERHAPS = re.compile(rb"(?=...[\x00-\x0f]....[\x01-\x0c])", re.DOTALL)
INCOMPLETE = "incomplete"  # names the file that is there after a repair, until the sessions are told


class CorruptSegment(Exception):
    """
    A file of the spool that cannot be what the node wrote.

    `gone`: what is missing cannot be read any more; `at_end`: and it is nothing but the end of the last file.
    """

    def __init__(self, path: Path, what: str, gone: bool = False, at_end: bool = False) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path
        self.what = what
        self.gone = gone
        self.at_end = at_end


def segments(directory: Path) -> list[Path]:
    """
    The files of a spool, oldest first.
    """
    return sorted(directory.glob("spool-????????.seg"))


def number_of(path: Path) -> int:
    return int(path.stem[6:])


def recover(directory: Path) -> dict[int, SessionRecovery]:
    """
    What is owed, by session.  Cuts off a torn end; if it was more, notes that.

    Raises CorruptSegment, OSError.
    """
    found: defaultdict[int, SessionRecovery] = defaultdict(SessionRecovery)
    reading = Reading(directory)
    ends = {path: reading.replay(path, found) for path in reading.paths}
    for damage in reading.gone():
        if not damage.at_end:
            raise damage
        log.error("{why}; all sessions are told that they may miss something", why=str(damage))
        mark_incomplete(directory)
    for path, end in ends.items():
        if end == 0:
            path.unlink()  # it was just begun
        elif end < path.stat().st_size:
            os.truncate(path, end)
    for owed in found.values():
        owed.finish()
    return found


class Reading:
    """
    The files of a spool, read one after the other, and what they prove of each other.

    After a repair they prove nothing: what is gone is known to be, and the sessions are told.
    """

    def __init__(self, directory: Path) -> None:
        self.paths = segments(directory)
        self._directory = directory
        self._repaired = (directory / INCOMPLETE).exists()
        self._mark = None if self._repaired else spool_end.read(directory)
        self._history = History()
        self._ends: dict[int, int] = {}
        self._unmarked = 0  # length of the last file, whose end is damaged, where the mark says nothing of it

    def replay(self, path: Path, found: defaultdict[int, SessionRecovery]) -> int:
        """
        Add what a file says; where its torn end begins, or it ends.
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
        Is what follows nothing but a batch that was torn?
        """
        if not is_last:
            return False
        if _next_valid(data, end) is not None:
            raise CorruptSegment(path, f"is damaged at byte {end}, and goes on after it")
        if self._repaired:
            return True
        if self._mark is None or self._mark[0] != number_of(path):
            self._unmarked = len(data) if end and not _is_torn(data, end) else 0
        return True  # how much of it had been told is seen by the mark

    def gone(self) -> Iterator[CorruptSegment]:
        """
        What was there, and is no more.
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
            # What is lost may have said that the oldest files were not needed any more.
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
    Add what a file says; where its last valid batch ends.
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
    Is that the beginning of a batch, and no more of it there?
    """
    if at + BATCH.size > len(data):
        return True
    length, _ = BATCH.unpack_from(data, at)
    return bool(length) and at + BATCH.size + length > len(data)


def _batches(path: Path, data: bytes) -> Iterator[tuple[int, int]]:
    """
    Where the contents of each valid batch begin and end.
    """
    if data[: len(MAGIC)] != MAGIC:
        if data[:7] == MAGIC[:7] and len(data) > 7:
            raise CorruptSegment(path, f"was written by another version of msgnode ({data[7]})")
        raise CorruptSegment(path, "does not begin as a file of the spool does")
    at = len(MAGIC)
    while (end := _valid(data, at)) is not None:
        yield at + BATCH.size, end
        at = end


def _valid(data: bytes, at: int) -> int | None:
    """
    Where the batch at `at` ends; None if there is no valid one.
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
    Where the next valid batch begins, wherever that may be; rare, and not in a hurry.
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
    What is wrong with the files, in words; nothing is changed.
    """
    return [str(why) for why in _damages(directory)]


def _damages(directory: Path) -> Iterator[CorruptSegment]:
    reading = Reading(directory)
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
    if whole:  # else what it says of the others is not known
        yield from reading.gone()


def repair(directory: Path) -> list[str]:
    """
    Move damaged files aside and keep what can be read of them; what was done, in words.
    """
    done: list[str] = []
    damages = list(_damages(directory))
    if damages:
        mark_incomplete(directory)
    for path in dict.fromkeys(damage.path for damage in damages if damage.gone):
        done.append(f"{path}: what it held is lost")
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
        # At no moment is there no file of that name: a start would not miss it.
        os.link(path, aside)
        fresh.replace(path)
        done.append(f"{path}: moved to {aside.name}; {len(whole)} of {len(data)} bytes could be kept")
    return done


def mark_incomplete(directory: Path) -> None:
    """
    Have the node tell its sessions, when it starts, that they may miss something.
    """
    directory.mkdir(exist_ok=True, mode=0o700)
    (directory / INCOMPLETE).touch(0o600)


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
