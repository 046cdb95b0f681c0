"""
The spool: what the node owes its sessions, in files that only grow.

What happens while one read is worked through is one batch: one write, valid
whole or not at all.  A node that is killed in the middle of a batch has let
nothing of it out.  A file is never changed; the oldest is deleted once nothing
in it is needed (spool_compaction.py).
"""

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from msgnode.sessions.queue import FOREVER, QueuedMessage
from msgnode.storage.spool_end import HighWater
from msgnode.storage.spool_records import (
    ACCEPTED,
    ACKNOWLEDGED,
    AFTER,
    FORGET,
    GONE,
    HEARD,
    KEEP,
    KEEP_HERE,
    KNOWN,
    LEFT,
    NOTHING_BEFORE,
    STATE,
    SessionRecovery,
)
from msgnode.storage.spool_recovery import BATCH, INCOMPLETE, MAGIC, number_of, recover, segments

SEGMENT = 64 * 1024 * 1024  # bytes of a file, about
MAX_HELD_BACK = 16 * 1024 * 1024  # bytes that wait for a disk that takes nothing
UNFINISHED = ".anew"  # ends the name of a file that does not count yet
BEGINNING = len(MAGIC) + BATCH.size + AFTER.size  # bytes at the head of each file
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_ANEW = OSError("everything that waits is being written anew")


def segment_of(place: int) -> int:
    """
    The number of the file a payload lies in; a place is that number and an offset.
    """
    return place >> 40


class Spool:
    """
    The spool: the write-ahead log on disk.

    `live` and `size` are the bytes of messages still owed, and of all files.

    While the disk takes nothing `failing` says why, and what should be written
    waits; when too much does, `overrun` is set, and the owner has to begin
    again with `start_over`, write everything `anew`, and end with `finish_over`.
    Until then nobody may rely on what is written; `wrong` is what the last write met.

    `incomplete`: something is gone of what was owed, and the sessions are not told yet.
    """

    def __init__(
        self,
        directory: Path,
        full_sync: bool = False,
        segment_bytes: int = SEGMENT,
        write: Callable[[int, list[bytes]], None] | None = None,
    ) -> None:
        self.live = 0
        self.size = 0
        self.wrong: OSError | MemoryError | None = None
        self.overrun = False
        self.anew = False
        self.incomplete = False
        self._accepting = False
        self._mark = HighWater(directory)
        self._directory = directory
        self._full_sync = full_sync
        self._segment_bytes = segment_bytes
        self._write = write or write_all
        self._files: dict[int, int] = {}  # descriptors by segment, oldest first; the last is written
        self._sizes: dict[int, int] = {}
        self._number = 0
        self._end = 0  # of the current segment
        self._first = 0  # the place of the first byte in the next batch
        self._parts: list[bytes] = []
        self._held = 0  # bytes in _parts
        self._read_last = 0, b""  # a place, and the message there
        self._last: bytes | None = None  # the payload that lies at _last_offset of the batch
        self._last_offset = 0
        self._needed_from = 0  # segments below this number are not needed any more

    @property
    def failing(self) -> OSError | MemoryError | None:
        return self.wrong or (_ANEW if self.anew else None)

    # -- starting and stopping ---------------------------------------------

    def open(self) -> dict[int, SessionRecovery]:
        """
        What is owed since before, by session; appending goes on in a new file.

        Raises CorruptSegment, OSError.

        On a disk that is full that file is begun once there is room, and `failing` says so until then.
        """
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for unfinished in self._directory.glob("*" + UNFINISHED):
            unfinished.unlink()  # nothing of what it says had counted
        found = recover(self._directory)
        self.incomplete = (self._directory / INCOMPLETE).exists()
        self._mark.open()
        for path in segments(self._directory):
            number = number_of(path)
            self._files[number] = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            self._sizes[number] = path.stat().st_size
            self._number = number
        self.size = sum(self._sizes.values())
        self.live = sum(note.size for owed in found.values() for note in owed.kept)
        try:
            self._begin_segment()
            self._mark.note(self._number, self._end)
        except OSError as why:
            if why.errno not in NO_ROOM:
                raise
            self.wrong = why
            self._aim(self._number + 1)
        return found

    def accept(self) -> None:
        """
        With the next batch it is known that something is gone, and need not be told again.
        """
        self._accepting = True
        self._append(ACCEPTED.pack(11, self._number - 1))
        for number, length in self._sizes.items():
            if number < self._number:
                self._append(KNOWN.pack(12, number, length))

    def _accepted(self) -> None:
        with suppress(OSError):
            (self._directory / INCOMPLETE).unlink(missing_ok=True)
            self._accepting = self.incomplete = False

    def close(self) -> None:
        self._mark.close()
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def _path(self, number: int) -> Path:
        return self._directory / f"spool-{number:08}.seg"

    def _begin_segment(self, suffix: str = "") -> None:
        number = self._number + 1
        self._create(number, suffix)
        self._aim(number)

    def _aim(self, number: int) -> None:
        """
        What comes is for the file of that number.
        """
        self._number, self._end = number, BEGINNING
        self._first = number << 40 | self._end + BATCH.size

    def _create(self, number: int, suffix: str = "") -> int:
        path = self._path(number)
        path = path.with_name(path.name + suffix)
        before = next(reversed(self._files), 0)
        after = AFTER.pack(10, before, self._sizes.get(before, 0))
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            self._write(file, [MAGIC, BATCH.pack(len(after), crc32(after)), after])
            if self._full_sync:
                self._sync_names()
        except OSError:
            os.close(file)
            path.unlink()
            raise
        self._files[number] = file
        self._sizes[number] = BEGINNING
        self.size += BEGINNING
        return file

    def _sync_names(self) -> None:
        """
        A file whose name is not on disk is not there after a power cut, whatever was written to it.
        """
        directory = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    # -- what happens --------------------------------------------------------

    def keep(
        self, sid: int, key: int, data: bytes, until: float, priority: int, asker: int, number: int
    ) -> int:
        """
        A message is owed; where it lies.  `until` by the wall clock; `number` is 0 while it waits.
        """
        if self.overrun:
            return 0
        size = len(data)
        self.live += size
        if data is self._last:  # to several in a row; the bytes are there already
            record = KEEP.pack(1, sid, key, self._last_offset, size, until, priority, asker, number)
            self._parts.append(record)
            self._held += KEEP.size
        else:
            record = KEEP_HERE.pack(8, sid, key, size, until, priority, asker, number)
            self._parts += (record, data)
            self._last = data
            self._last_offset = offset = self._held + KEEP_HERE.size
            self._held = offset + size
        return self._first + self._last_offset

    def keep_sent(self, sent: list[tuple[int, QueuedMessage, int]]) -> None:
        """
        Messages that leave in this batch: the session's sid, the message, its number.
        """
        if self.overrun:
            return
        parts, held, first = self._parts, self._held, self._first
        last, offset, live = self._last, self._last_offset, 0
        pack, here = KEEP_HERE.pack, KEEP_HERE.size
        for sid, kept, number in sent:
            data, size = kept.data, kept.size
            assert data is not None
            live += size
            if data is last:
                parts.append(KEEP.pack(1, sid, kept.key, offset, size, FOREVER, 5, kept.asker, number))
                held += KEEP.size
            else:
                parts.append(pack(8, sid, kept.key, size, FOREVER, 5, kept.asker, number))
                parts.append(data)
                last = data
                offset = held + here
                held = offset + size
            kept.place = first + offset
        self._held, self._last, self._last_offset = held, last, offset
        self.live += live

    def left(self, sid: int, key: int, number: int) -> None:
        self._append(LEFT.pack(2, sid, key, number))

    def gone(self, sid: int, key: int, missed: bool) -> None:
        self._append(GONE.pack(3, sid, key, missed))

    def acknowledged(self, sid: int, number: int) -> None:
        self._append(ACKNOWLEDGED.pack(4, sid, number))

    def heard(self, sid: int, received: int, pending: Sequence[int]) -> None:
        record = HEARD.pack(5, sid, received, len(pending))
        if pending:
            record += b"".join(number.to_bytes(8, "little") for number in pending)
        self._append(record)

    def state(self, sid: int, state: bytes, fresh: bool = False) -> None:
        """
        `fresh`: whatever was said of the session before is void.
        """
        self._append(STATE.pack(6, sid, fresh, len(state)) + state)

    def forget(self, sid: int) -> None:
        self._append(FORGET.pack(7, sid))

    def _append(self, record: bytes) -> None:
        if not self.overrun:
            self._parts.append(record)
            self._held += len(record)

    def release(self, size: int) -> None:
        """
        A message is owed no more.
        """
        self.live -= size

    # -- the disk ------------------------------------------------------------

    def settle(self) -> bool:
        """
        Write all that happened since, as one batch; False if the disk does not take it.
        """
        begun = self._number in self._files
        if not self._parts and (begun or self.overrun):
            return self.failing is None
        try:
            if not begun:
                self._create(self._number)
            if not self._parts:
                self.wrong = None
                return True
            batch = b"".join(self._parts)
            file = self._files[self._number]
            if self.wrong is not None:
                self._cut()
            self._write(file, [BATCH.pack(len(batch), crc32(batch)), batch])
            if self._full_sync:
                os.fdatasync(file)
        except (OSError, MemoryError) as why:
            self.wrong = why
            with suppress(OSError):  # before the next attempt, then
                self._cut()
            if self._held > MAX_HELD_BACK:
                self.overrun = True
                self._clear()
            return False
        self.wrong = None
        self._clear()
        written = BATCH.size + len(batch)
        self._end += written
        self._first += written
        self._sizes[self._number] = self._end
        self.size += written
        if not self.anew:
            self._counts()
        if self._end > self._segment_bytes and not self.anew:
            self._rotate()
        return not self.anew

    def _counts(self) -> None:
        """
        What is written so far is what a start finds.
        """
        self._mark.note(self._number, self._end)
        if self._accepting:
            self._accepted()

    def _cut(self) -> None:
        """
        Take away what was written of a batch in half.
        """
        file = self._files.get(self._number)
        if file is not None:
            os.ftruncate(file, self._end)
            os.lseek(file, self._end, os.SEEK_SET)

    def _clear(self) -> None:
        self._parts = []
        self._held = 0
        self._last = None

    def _rotate(self) -> None:
        # If none can be begun it goes on in the file it has: nothing is lost, and nobody need wait.
        with suppress(OSError):
            self._begin_segment()
            self._mark.note(self._number, self._end)

    def holds(self, place: int, size: int) -> bool:
        """
        Is it on disk, rather than in a batch that is not written yet, or never was?
        """
        if self.anew and place >> 40 == self._number:
            return False  # that file may still be given up
        return (place & (1 << 40) - 1) + size <= self._sizes.get(place >> 40, 0)

    def read(self, place: int, size: int) -> bytes:
        """
        The message at that place.  Raises OSError if it cannot be read.
        """
        last, data = self._read_last
        if place == last and size == len(data):
            return data  # of a message that many are owed
        segment, at = place >> 40, place & (1 << 40) - 1
        if segment == self._number and at >= self._end:
            at -= self._end + BATCH.size
            return b"".join(self._parts)[at : at + size]
        data = self._read(segment, size, at)
        self._read_last = place, data
        return data

    def _read(self, segment: int, size: int, at: int) -> bytes:
        """
        OSError names the file.
        """
        why = "is not there"
        if segment in self._files:
            try:
                data = os.pread(self._files[segment], size, at)
                if len(data) == size:
                    return data
                why = f"has only {len(data)} of {size} bytes at {at}"
            except OSError as wrong:
                why = f"{wrong.strerror} at {at}"
        raise OSError(errno.EIO, why, str(self._path(segment)))

    # -- old files -------------------------------------------------------------

    @property
    def files(self) -> int:
        """
        How many there are.
        """
        return len(self._files)

    def oldest(self) -> int | None:
        """
        The number of the oldest file, unless it is the only one.
        """
        first = next(iter(self._files), None)
        return None if first == self._number else first

    def drop_oldest(self) -> None:
        """
        Delete the oldest file, and all that `start_over` left behind: nothing in them is needed.
        """
        oldest = self.oldest()
        if oldest is not None and oldest >= self._needed_from:
            # Else it would look as if it had been lost.
            self._append(ACCEPTED.pack(11, oldest))
            if not self.settle():
                return
            oldest = self.oldest()
        while oldest is not None:
            os.close(self._files.pop(oldest))
            self._path(oldest).unlink()
            self.size -= self._sizes.pop(oldest)
            oldest = self.oldest()
            if oldest is None or oldest >= self._needed_from:
                break

    def start_over(self) -> bool:
        """
        The disk may take something again: everything owed is about to be kept anew.  False: it does not.

        It goes to one file that does not count before `finish_over`: a node
        that is killed meanwhile comes back to what there was before.
        """
        try:
            if self.anew:
                self._give_up()
            else:
                self._cut()
            self._begin_segment(UNFINISHED)
        except OSError as why:
            self.wrong = why
            return False
        self.overrun = False
        self.wrong = None
        self.anew = True
        self._append(bytes([NOTHING_BEFORE]))
        return True

    def _give_up(self) -> None:
        """
        What was written anew so far is not worth anything.
        """
        os.close(self._files.pop(self._number))
        self.size -= self._sizes.pop(self._number)
        path = self._path(self._number)
        path.with_name(path.name + UNFINISHED).unlink()
        self.anew = False

    def finish_over(self) -> bool:
        """
        All of it is written: this counts from now on, and nothing before.
        """
        path = self._path(self._number)
        try:
            path.with_name(path.name + UNFINISHED).rename(path)
            if self._full_sync:
                self._sync_names()
        except OSError as why:
            self.wrong = why
            return False
        self.anew = False
        self._needed_from = self._number
        self._counts()
        return True


def write_all(file: int, parts: list[bytes]) -> None:
    wanted = sum(map(len, parts))
    written = os.writev(file, parts)
    if written < wanted:
        # The rest says what is wrong; a disk that has room again by now is welcome too.
        rest = b"".join(parts)[written:]
        while rest:
            rest = rest[os.write(file, rest) :]
