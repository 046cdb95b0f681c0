"""
The segments of the journal of objects: append-only files, of which the oldest are deleted whole.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from twisted.logger import Logger

from msgnode.storage.objects.records import FRAME, MAGIC, MAX_RECORD_BYTES, Damaged, Found, scan
from msgnode.storage.spool import write_all

log = Logger()

DIRECTORY = "objects"  # below the state directory
UNSURE = "unsure"  # a file in it while later versions may have been given than the journal knows
SEGMENT_BYTES = 8 * 1024 * 1024
READ_BYTES = 64 * 1024  # read ahead: the entries of an object that changes often lie together

Write = Callable[[int, list[bytes]], None]


class Segments:
    """
    The segment files of one directory. `size` is the sum of their bytes, `number` that of the current one.

    `newest` has the time of the last record of each, in microseconds.
    """

    def __init__(
        self,
        directory: Path,
        full_sync: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
        write: Write = write_all,
    ) -> None:
        self.size = 0
        self.number = 0
        self.newest: dict[int, int] = {}
        self._directory = directory
        self._full_sync = full_sync
        self._segment_bytes = segment_bytes
        self._write = write
        self._files: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._block = (0, 0, b"")  # segment, offset and bytes that were read last

    def __len__(self) -> int:
        return len(self._files)

    # -- the start and the end -----------------------------------------------------------

    def open(self) -> Iterator[tuple[int, Found | None]]:
        """
        The records that are there, each with the number of its segment. What was being written when the
        process ended is cut off.
        """
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        paths = sorted(self._directory.glob(f"objects-{'[0-9]' * 8}.seg"))
        for path in paths:
            number = int(path.stem[8:])
            data = path.read_bytes()
            if not data.startswith(MAGIC):
                if path is not paths[-1] or len(data) > len(MAGIC):
                    log.error("{path} is no segment of this version; its objects are missing", path=path)
                    yield number, None
                    self.number = number
                    continue
                path.unlink()  # it was begun and has no record
                continue
            self._files[number] = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            self.number, end = number, len(MAGIC)
            for found in scan(data, path is paths[-1]):
                end = len(data)  # what is damaged stays, and is damaged at the next start, too
                if found is not None:
                    end = found.offset + found.length
                    self.newest[number] = found.micros
                yield number, found
            if path is paths[-1]:
                os.ftruncate(self._files[number], end)
            self._sizes[number] = end if path is paths[-1] else len(data)
        self.size = sum(self._sizes.values())

    def close(self) -> None:
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    # -- writing -----------------------------------------------------------------------

    def begin(self, header: bytes, micros: int) -> None:
        """
        Begins a segment with this record. OSError if that fails; the one before stays the current one.
        """
        number = self.number + 1
        path = self._directory / f"objects-{number:08}.seg"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._write(file, [MAGIC, header])
            if self._full_sync:
                os.fsync(file)
        except OSError:
            os.close(file)
            path.unlink()
            raise
        self._files[number] = file
        self.number = number
        self._sizes[number] = len(MAGIC) + len(header)
        self.newest[number] = micros
        self.size += self._sizes[number]

    def append(self, parts: list[bytes], micros: int) -> int:
        """
        Writes these records; returns the place of the first. OSError if that fails, and nothing is written.
        """
        file, end = self._files[self.number], self._sizes[self.number]
        data = b"".join(parts)  # one call of the system takes 1024 parts at most
        try:
            self._write(file, [data])
            if self._full_sync:
                os.fdatasync(file)
        except OSError:
            with suppress(OSError):
                os.ftruncate(file, end)
            self._sizes[self.number] = os.fstat(file).st_size
            raise
        self._sizes[self.number] = end + len(data)
        self.size += len(data)
        self.newest[self.number] = micros
        return self.number << 40 | end

    @property
    def is_full(self) -> bool:
        return self._sizes.get(self.number, self._segment_bytes) >= self._segment_bytes

    # -- reading -----------------------------------------------------------------------

    def read(self, place: int) -> bytes:
        """
        The record at this place, without its frame. Raises Damaged.
        """
        segment, at = place >> 40, place & (1 << 40) - 1
        frame = self._bytes(segment, at, FRAME.size)
        length, checksum = FRAME.unpack(frame)
        if length > MAX_RECORD_BYTES:
            raise Damaged(f"segment {segment} at {at}")
        payload = self._bytes(segment, at + FRAME.size, length)
        if crc32(payload) != checksum:
            raise Damaged(f"segment {segment} at {at}")
        return payload

    def _bytes(self, segment: int, at: int, size: int) -> bytes:
        number, start, block = self._block
        if number != segment or not (start <= at and at + size <= start + len(block)):
            try:
                block = os.pread(self._files[segment], max(size, READ_BYTES), at)
            except (OSError, KeyError) as why:
                raise Damaged(f"segment {segment} at {at}: {why}") from None
            start = at
            self._block = segment, start, block
        found = block[at - start : at - start + size]
        if len(found) < size:
            raise Damaged(f"segment {segment} at {at}: it ends there")
        return found

    # -- the oldest --------------------------------------------------------------------

    def oldest(self) -> int:
        """
        The number of the oldest segment; 0 if there is only the current one.
        """
        first = next(iter(self._files), self.number)
        return 0 if first == self.number else first

    def drop(self, number: int) -> None:
        os.close(self._files.pop(number))
        self.size -= self._sizes.pop(number)
        self.newest.pop(number, None)
        self._block = (0, 0, b"")
        with suppress(FileNotFoundError):
            (self._directory / f"objects-{number:08}.seg").unlink()

    def snapshot(self) -> list[tuple[str, int, int]]:
        """
        The segments as of now, for a backup: name, a descriptor that the caller closes, and the bytes.
        """
        return [
            (f"objects-{number:08}.seg", os.dup(file), self._sizes[number])
            for number, file in self._files.items()
        ]
