"""
The spool: the write-ahead log of unacknowledged and queued messages, in append-only segment files.

All records of one read of a socket are one batch. A batch is one write and has a checksum: it is valid as a
whole or not at all. Nothing of a batch leaves the node before it is written. Segments are never changed;
compaction deletes the oldest (spool_compaction.py).
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
    COPIES,
    COPY,
    FORGET,
    GONE,
    HEARD,
    KEEP,
    KEEP_HERE,
    KNOWN,
    LEFT,
    MAX_NUMBER,
    NOTHING_BEFORE,
    STATE,
    SessionRecovery,
)
from msgnode.storage.spool_recovery import BATCH, INCOMPLETE, MAGIC, number_of, recover, segments

SEGMENT_BYTES = 64 * 1024 * 1024  # bytes of a segment, about
MAX_BUFFERED_BYTES = 16 * 1024 * 1024  # bytes buffered while the disk fails
UNFINISHED_SUFFIX = ".anew"  # suffix of a segment that does not count yet
HEADER_BYTES = len(MAGIC) + BATCH.size + AFTER.size  # bytes of the header of each segment
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
REWRITING = "all undelivered messages are being rewritten"


def segment_of(place: int) -> int:
    """
    The number of the segment of a payload. A place is that number, shifted left by 40 bits, plus the offset.
    """
    return place >> 40


class Spool:
    """
    The write-ahead log on disk, as MessageLog.

    `live` is the size in bytes of undelivered messages, `size` that of all segments.

    While writes fail, `failing` is the error and records are buffered. When the buffer is full, `overrun` is
    set and the buffer is dropped. The owner must then call `start_over`, append every undelivered message
    again, and call `finish_over`. Between the two, `rewriting` is set, and nothing written may be relied on.
    `wrong` is the error of the last write.

    `incomplete`: messages were lost before this start, and the sessions have not been notified.
    """

    def __init__(
        self,
        directory: Path,
        full_sync: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
        write: Callable[[int, list[bytes]], None] | None = None,
    ) -> None:
        self.live = 0
        self.size = 0
        self.wrong: OSError | MemoryError | None = None
        self.overrun = False
        self.rewriting = False
        self.incomplete = False
        self._accepting = False
        self._mark = HighWater(directory)
        self._directory = directory
        self._full_sync = full_sync
        self._segment_bytes = segment_bytes
        self._write = write or write_all
        self._files: dict[int, int] = {}  # descriptors by segment, oldest first; the last is appended to
        self._sizes: dict[int, int] = {}
        self._number = 0
        self._end = 0  # offset in the current segment
        self._first = 0  # place of the first byte in the next batch
        self._parts: list[bytes] = []
        self._buffered_bytes = 0  # bytes in _parts
        self._read_last = 0, b""  # the last message read: its place and its bytes
        self._last: bytes | None = None  # the payload appended last, at _last_offset in the batch
        self._last_offset = 0
        self._needed_from = 0  # segments below this number are not needed

    @property
    def failing(self) -> str | None:
        """
        Why nothing that is written counts now, in words; None while all is well.
        """
        if self.wrong is not None:
            return str(self.wrong) or type(self.wrong).__name__
        return REWRITING if self.rewriting else None

    @property
    def segments(self) -> int:
        """
        The number of segments on disk.
        """
        return len(self._files)

    # -- starting and stopping ---------------------------------------------

    def open(self) -> dict[int, SessionRecovery]:
        """
        Recover the undelivered messages by session, and begin a new segment.

        Raises CorruptSegment, OSError.

        On a full disk the segment is begun once there is room; until then `failing` has the error.
        """
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for unfinished in self._directory.glob("*" + UNFINISHED_SUFFIX):
            unfinished.unlink()  # it never counted
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
        Record, with the next batch, that the sessions were notified of the lost messages.
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
        Direct the following records to the segment of that number.
        """
        self._number, self._end = number, HEADER_BYTES
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
        self._sizes[number] = HEADER_BYTES
        self.size += HEADER_BYTES
        return file

    def _sync_names(self) -> None:
        """
        Sync the directory: without that, a new file may be missing after a power failure, whatever was
        written to it.
        """
        directory = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    # -- records -------------------------------------------------------------

    def append(
        self, sid: int, key: int, data: bytes, until: float, priority: int, asker: int, number: int
    ) -> int:
        """
        Append an undelivered message. Returns its place. `until` is by the wall clock; `number` is 0 while it
        is queued.
        """
        if self.overrun:
            return 0
        size = len(data)
        self.live += size
        if data is self._last:  # to several sessions in a row: the bytes are in the batch already
            record = KEEP.pack(1, sid, key, self._last_offset, size, until, priority, asker, number)
            self._parts.append(record)
            self._buffered_bytes += KEEP.size
        else:
            record = KEEP_HERE.pack(8, sid, key, size, until, priority, asker, number)
            self._parts += (record, data)
            self._last = data
            self._last_offset = offset = self._buffered_bytes + KEEP_HERE.size
            self._buffered_bytes = offset + size
        return self._first + self._last_offset

    def append_sent(self, sent: list[tuple[int, QueuedMessage, int]]) -> None:
        """
        Append messages that are sent in this batch: for each the session's sid, the message, and its number.
        """
        if self.overrun:
            return
        parts, buffered, first = self._parts, self._buffered_bytes, self._first
        last, offset, live = self._last, self._last_offset, 0
        pack, here = KEEP_HERE.pack, KEEP_HERE.size
        for sid, kept, number in sent:
            data, size = kept.data, kept.size
            assert data is not None
            live += size
            if data is last:
                parts.append(KEEP.pack(1, sid, kept.key, offset, size, FOREVER, 5, kept.asker, number))
                buffered += KEEP.size
            else:
                parts.append(pack(8, sid, kept.key, size, FOREVER, 5, kept.asker, number))
                parts.append(data)
                last = data
                offset = buffered + here
                buffered = offset + size
            kept.place = first + offset
        self._buffered_bytes, self._last, self._last_offset = buffered, last, offset
        self.live += live

    @property
    def offset(self) -> int:
        """
        The offset of the next record in the batch that `flush` will write.
        """
        return self._buffered_bytes

    def append_records(self, records: bytes, live: int) -> int:
        """
        Append records of sent messages as `append_sent` makes them, which begin at `offset`. Returns their
        place. `live` is the size of the messages.
        """
        if self.overrun:
            return 0
        place = self._first + self._buffered_bytes
        self._parts.append(records)
        self._buffered_bytes += len(records)
        self._last = None
        self.live += live
        return place

    def sent(self, sid: int, key: int, number: int) -> None:
        self._append(LEFT.pack(2, sid, key, number))

    def removed(self, sid: int, key: int, missed: bool) -> None:
        self._append(GONE.pack(3, sid, key, missed))

    def acknowledged(self, sid: int, number: int) -> None:
        self._append(ACKNOWLEDGED.pack(4, sid, number))

    def received(self, sid: int, received: int, pending: Sequence[int]) -> None:
        record = HEARD.pack(5, sid, received, len(pending))
        if pending:
            record += b"".join(number.to_bytes(8, "little") for number in pending)
        self._append(record)

    def state(self, sid: int, state: bytes, fresh: bool = False) -> None:
        """
        Append a session's state. `fresh`: earlier records of the session are void.
        """
        self._append(STATE.pack(6, sid, fresh, len(state)) + state)

    def copies(self, sid: int, instance: bytes, copies: Sequence[tuple[int, int]]) -> None:
        """
        Append the ids of messages that have copies: of each its key, and its number of that instance.
        """
        pack = COPY.pack
        head = COPIES.pack(13, sid, len(instance), len(copies))
        self._append(b"".join((head, instance, *(pack(key, number & MAX_NUMBER) for key, number in copies))))

    def forget(self, sid: int) -> None:
        self._append(FORGET.pack(7, sid))

    def _append(self, record: bytes) -> None:
        if not self.overrun:
            self._parts.append(record)
            self._buffered_bytes += len(record)

    def release(self, size: int) -> None:
        """
        A message of `size` bytes was delivered or dropped.
        """
        self.live -= size

    # -- the disk ------------------------------------------------------------

    def flush(self) -> bool:
        """
        Write all buffered records as one batch. False if the write failed.
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
            with suppress(OSError):  # else it is repeated before the next write
                self._cut()
            if self._buffered_bytes > MAX_BUFFERED_BYTES:
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
        if not self.rewriting:
            self._counts()
        if self._end > self._segment_bytes and not self.rewriting:
            self._rotate()
        return not self.rewriting

    def _counts(self) -> None:
        """
        Everything written so far survives a restart: move the high-water mark.
        """
        self._mark.note(self._number, self._end)
        if self._accepting:
            self._accepted()

    def _cut(self) -> None:
        """
        Truncate a batch that was written in part.
        """
        file = self._files.get(self._number)
        if file is not None:
            os.ftruncate(file, self._end)
            os.lseek(file, self._end, os.SEEK_SET)

    def _clear(self) -> None:
        self._parts = []
        self._buffered_bytes = 0
        self._last = None

    def _rotate(self) -> None:
        # If no segment can be begun, the current one goes on growing: nothing is lost.
        with suppress(OSError):
            self._begin_segment()
            self._mark.note(self._number, self._end)

    def holds(self, place: int, size: int) -> bool:
        """
        Is the message on disk? Not if its batch is buffered or was dropped.
        """
        if self.rewriting and place >> 40 == self._number:
            return False  # that segment may still be discarded
        return (place & (1 << 40) - 1) + size <= self._sizes.get(place >> 40, 0)

    def read(self, place: int, size: int) -> bytes:
        """
        The message at that place, as bytes. OSError if it cannot be read.
        """
        last, data = self._read_last
        if place == last and size == len(data):
            return data  # a message for many sessions
        segment, at = place >> 40, place & (1 << 40) - 1
        if segment == self._number and at >= self._end:
            at -= self._end + BATCH.size
            return b"".join(self._parts)[at : at + size]
        data = self._read(segment, size, at)
        self._read_last = place, data
        return data

    def _read(self, segment: int, size: int, at: int) -> bytes:
        """
        Read from a segment. OSError names the file.
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

    def snapshot(self) -> list[tuple[str, int, int]]:
        """
        The segments as of now, for a backup: name, a descriptor that the caller closes, and the bytes that
        count.
        """
        return [
            (self._path(number).name, os.dup(file), self._sizes[number])
            for number, file in self._files.items()
        ]

    # -- compaction ------------------------------------------------------------

    @property
    def files(self) -> int:
        """
        The number of segments.
        """
        return len(self._files)

    def oldest(self) -> int | None:
        """
        The number of the oldest segment, or None if there is only the current one.
        """
        first = next(iter(self._files), None)
        return None if first == self._number else first

    def drop_oldest(self) -> None:
        """
        Delete the oldest segment, and all that `start_over` made obsolete.
        """
        oldest = self.oldest()
        if oldest is not None and oldest >= self._needed_from:
            # Recovery would take it for lost without this record.
            self._append(ACCEPTED.pack(11, oldest))
            if not self.flush():
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
        Begin a segment into which every undelivered message is appended again. False if the disk still fails.

        The segment does not count before `finish_over`: if the node is killed meanwhile, it restarts from the
        old ones.
        """
        try:
            if self.rewriting:
                self._give_up()
            else:
                self._cut()
            self._begin_segment(UNFINISHED_SUFFIX)
        except OSError as why:
            self.wrong = why
            return False
        self.overrun = False
        self.wrong = None
        self.rewriting = True
        self._append(bytes([NOTHING_BEFORE]))
        return True

    def _give_up(self) -> None:
        """
        Discard the unfinished segment.
        """
        os.close(self._files.pop(self._number))
        self.size -= self._sizes.pop(self._number)
        path = self._path(self._number)
        path.with_name(path.name + UNFINISHED_SUFFIX).unlink()
        self.rewriting = False

    def finish_over(self) -> bool:
        """
        Make the new segment count, and all before it obsolete. False if that failed.
        """
        path = self._path(self._number)
        try:
            path.with_name(path.name + UNFINISHED_SUFFIX).rename(path)
            if self._full_sync:
                self._sync_names()
        except OSError as why:
            self.wrong = why
            return False
        self.rewriting = False
        self._needed_from = self._number
        self._counts()
        return True


def write_all(file: int, parts: list[bytes]) -> None:
    wanted = sum(map(len, parts))
    written = os.writev(file, parts)
    if written < wanted:
        # Writing the rest raises the error; or it succeeds, if the disk has room again by now.
        rest = b"".join(parts)[written:]
        while rest:
            rest = rest[os.write(file, rest) :]
