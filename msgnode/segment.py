"""
Reading the spool: what a session is owed after a restart.

A batch that was torn by the end of the process is the last thing in the last
file, and cut off.  Anything else that is not as it was written is damage, and
the node does not start on it: `msgnode state repair` moves it aside.
"""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from struct import error as StructError
from typing import NamedTuple
from zlib import crc32

MAGIC = b"msgspl\x00\x01"  # the last byte is the version

BATCH = Struct("<II")  # length, CRC-32
KEEP = Struct("<BQQIIdBQQ")  # 1, sid, key, offset in the batch, size, until, priority, asker, number
LEFT = Struct("<BQQQ")  # 2, sid, key, number
GONE = Struct("<BQQB")  # 3, sid, key, missed
ACKNOWLEDGED = Struct("<BQQ")  # 4, sid, number
HEARD = Struct("<BQQI")  # 5, sid, received, how many pending; each follows in 8 bytes
STATE = Struct("<BQBI")  # 6, sid, fresh, length; the bytes follow
FORGET = Struct("<BQ")  # 7, sid
KEEP_HERE = Struct("<BQQIdBQQ")  # 8, sid, key, size, until, priority, asker, number; the bytes follow
NOTHING_BEFORE = 9  # alone: whatever was said before is void

# How a batch begins: a length below 256 MiB, the check, a record of a known kind.
# No text of a message looks so: JSON has no NUL, and no length is made of letters.
_PERHAPS = re.compile(rb"(?=...[\x00-\x0f]....[\x01-\x09])", re.DOTALL)


class Damaged(Exception):
    """
    A file of the spool that cannot be what the node wrote.
    """

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path
        self.what = what


class Note(NamedTuple):
    """
    A message that is owed.
    """

    key: int
    place: int
    size: int
    until: float  # by the wall clock
    priority: int
    asker: int
    number: int  # 0: it waits


class Recovered:
    """
    What the spool knows of one session.

    `kept` has what was sent, by number, and then what waits, by key.  `missed`
    counts what was dropped since `state` was written.
    """

    def __init__(self) -> None:
        self.state: bytes | None = None
        self.acknowledged = self.sent = self.received = self.missed = self.next_key = 0
        self.pending: list[int] = []
        self.kept: list[Note] = []
        self.notes: dict[int, Note] = {}

    def finish(self) -> None:
        notes = self.notes.values()
        sent = sorted((n for n in notes if n.number > self.acknowledged), key=lambda note: note.number)
        waiting = sorted((n for n in notes if not n.number), key=lambda note: note.key)
        self.kept = sent + waiting
        self.notes = {}


def segments(directory: Path) -> list[Path]:
    """
    The files of a spool, oldest first.
    """
    return sorted(directory.glob("spool-????????.seg"))


def number_of(path: Path) -> int:
    return int(path.stem[6:])


def recover(directory: Path) -> dict[int, Recovered]:
    """
    What is owed, by session.  Cuts off a torn end.  Raises Damaged, OSError.
    """
    found: dict[int, Recovered] = {}
    paths = segments(directory)
    for path in paths:
        end = _replay(path, path is paths[-1], found)
        if end == 0:
            path.unlink()  # it was just begun
        elif end is not None:
            os.truncate(path, end)
    for owed in found.values():
        owed.finish()
    return found


def _replay(path: Path, is_last: bool, found: dict[int, Recovered]) -> int | None:
    """
    Add what a file says; where its torn end begins, if it has one.
    """
    data = path.read_bytes()
    if is_last and len(data) < len(MAGIC) and MAGIC.startswith(data):
        return 0
    end = len(MAGIC)
    for start, end in _batches(path, data):
        try:
            _apply(data, number_of(path) << 40, start, end, found)
        except (StructError, ValueError, IndexError) as why:
            raise Damaged(path, f"holds a batch at byte {start} that cannot be read") from why
    if end == len(data):
        return None
    if not is_last:
        raise Damaged(path, f"is damaged at byte {end}")
    if _next_valid(data, end) is not None:
        raise Damaged(path, f"is damaged at byte {end}, and goes on after it")
    return end


def _batches(path: Path, data: bytes) -> Iterator[tuple[int, int]]:
    """
    Where the contents of each valid batch begin and end.
    """
    if data[: len(MAGIC)] != MAGIC:
        if data[:7] == MAGIC[:7] and len(data) > 7:
            raise Damaged(path, f"was written by another version of msgnode ({data[7]})")
        raise Damaged(path, "does not begin as a file of the spool does")
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
        _apply(data, 0, start, end, {})
    except (StructError, ValueError, IndexError):
        return False
    return True


def _apply(data: bytes, segment: int, start: int, end: int, found: dict[int, Recovered]) -> None:
    """
    Replay one batch.
    """
    at = start
    while at < end:
        kind = data[at]
        if kind == 7:
            _, sid = FORGET.unpack_from(data, at)
            found.pop(sid, None)
            at += FORGET.size
            continue
        if kind == NOTHING_BEFORE:
            found.clear()
            at += 1
            continue
        sid = int.from_bytes(data[at + 1 : at + 9], "little")
        owed = found.get(sid)
        if owed is None:
            owed = found[sid] = Recovered()
        if kind == 1:
            _, _, key, offset, size, until, priority, asker, number = KEEP.unpack_from(data, at)
            note = Note(key, segment | start + offset, size, until, priority, asker, number)
            owed.notes[key] = note
            owed.next_key = max(owed.next_key, note.key)
            owed.sent = max(owed.sent, note.number)
            at += KEEP.size
        elif kind == 8:
            _, _, key, size, until, priority, asker, number = KEEP_HERE.unpack_from(data, at)
            at += KEEP_HERE.size
            owed.notes[key] = Note(key, segment | at, size, until, priority, asker, number)
            owed.next_key = max(owed.next_key, key)
            owed.sent = max(owed.sent, number)
            at += size
        elif kind == 2:
            _, _, key, number = LEFT.unpack_from(data, at)
            if key in owed.notes:
                owed.notes[key] = owed.notes[key]._replace(number=number)
            owed.sent = max(owed.sent, number)
            at += LEFT.size
        elif kind == 3:
            _, _, key, missed = GONE.unpack_from(data, at)
            owed.notes.pop(key, None)
            owed.missed += missed
            at += GONE.size
        elif kind == 4:
            _, _, number = ACKNOWLEDGED.unpack_from(data, at)
            owed.acknowledged = max(owed.acknowledged, number)
            at += ACKNOWLEDGED.size
        elif kind == 5:
            _, _, owed.received, count = HEARD.unpack_from(data, at)
            at += HEARD.size
            owed.pending = [int.from_bytes(data[p : p + 8], "little") for p in range(at, at + 8 * count, 8)]
            at += 8 * count
        elif kind == 6:
            _, _, fresh, size = STATE.unpack_from(data, at)
            at += STATE.size
            if fresh:
                key = owed.next_key
                owed = found[sid] = Recovered()
                owed.next_key = key
            owed.state, owed.missed = data[at : at + size], 0
            at += size
        else:
            raise ValueError(f"no record of kind {kind}")
    if at != end:
        raise ValueError("the last record is cut")


def examine(directory: Path) -> list[str]:
    """
    What is wrong with the files, in words; nothing is changed.
    """
    return [str(why) for why in _damages(directory)]


def _damages(directory: Path) -> Iterator[Damaged]:
    paths = segments(directory)
    for path in paths:
        try:
            _replay(path, path is paths[-1], {})
        except Damaged as why:
            yield why
        except OSError as why:
            yield Damaged(path, why.strerror or str(why))


def repair(directory: Path) -> list[str]:
    """
    Move damaged files aside and keep what can be read of them; what was done, in words.
    """
    done = []
    for damage in list(_damages(directory)):
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


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
