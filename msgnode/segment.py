"""
The files of the spool, read after a restart: what is whole in them, and what is not.

A batch that was torn by the end of the process is the last thing in the last
file, and cut off.  Anything else that is not as it was written is damage, and
the node does not start on it: `msgnode state repair` moves it aside.
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

from msgnode.spoolrecords import Recovered, Replay

MAGIC = b"msgspl\x00\x01"  # the last byte is the version

BATCH = Struct("<II")  # length, CRC-32
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
    found: defaultdict[int, Recovered] = defaultdict(Recovered)
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


def _replay(path: Path, is_last: bool, found: defaultdict[int, Recovered]) -> int | None:
    """
    Add what a file says; where its torn end begins, if it has one.
    """
    data = path.read_bytes()
    if is_last and len(data) < len(MAGIC) and MAGIC.startswith(data):
        return 0
    end, replay = len(MAGIC), Replay(data, number_of(path), found)
    for start, end in _batches(path, data):
        try:
            replay.batch(start, end)
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
        Replay(data, 0, defaultdict(Recovered)).batch(start, end)
    except (StructError, ValueError, IndexError):
        return False
    return True


def examine(directory: Path) -> list[str]:
    """
    What is wrong with the files, in words; nothing is changed.
    """
    return [str(why) for why in _damages(directory)]


def _damages(directory: Path) -> Iterator[Damaged]:
    paths = segments(directory)
    for path in paths:
        try:
            _replay(path, path is paths[-1], defaultdict(Recovered))
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
