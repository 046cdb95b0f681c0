"""
The high-water mark of the spool, in a file of its own: how far the spool was written.

A segment that ends before its mark was truncated by something else than the end of the process. Data
behind the mark was never sent to anyone, for the mark is moved before the first byte of a batch leaves.
"""

import os
from contextlib import suppress
from pathlib import Path
from struct import Struct
from zlib import crc32

NAME = "end"

MARK = Struct("<QQ")  # number of the segment, bytes of it that were written
_CHECK = Struct("<I")  # CRC-32 of the mark


def read(directory: Path) -> tuple[int, int] | None:
    """
    The number of the segment written last, and its length; None without a valid mark.
    """
    try:
        data = (directory / NAME).read_bytes()
    except OSError:
        return None
    if len(data) != MARK.size + _CHECK.size or data[MARK.size :] != _CHECK.pack(crc32(data[: MARK.size])):
        return None
    number, end = MARK.unpack_from(data)
    return number, end


class HighWater:
    """
    The high-water mark of an open spool. If it cannot be written it is deleted: no mark proves nothing.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self._file: int | None = None

    def open(self) -> None:
        with suppress(OSError):
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def note(self, number: int, end: int) -> None:
        """
        Set the mark: the segment `number` was written up to `end`.
        """
        if self._file is None:
            self.open()
            if self._file is None:
                return
        mark = MARK.pack(number, end)
        try:
            os.pwrite(self._file, mark + _CHECK.pack(crc32(mark)), 0)
        except OSError:
            self.close()  # an older mark would say nothing about later writes
            with suppress(OSError):
                self._path.unlink()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
