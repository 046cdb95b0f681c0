"""
The high-water mark of the spool: how far it was written, in a file of its own.

A file of the spool that ends before its mark was cut by something else than
the end of the process.  What lies behind the mark had not been told to
anybody, for the mark is moved before the first byte of a batch leaves.
"""

import os
from contextlib import suppress
from pathlib import Path
from struct import Struct
from zlib import crc32

NAME = "end"

MARK = Struct("<QQ")  # number of the file, how many bytes of it were written
_CHECK = Struct("<I")  # CRC-32 of the two


def read(directory: Path) -> tuple[int, int] | None:
    """
    The file that was written last, and how far; None if nothing says so.
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
    The mark while the spool is open.  While it cannot be written there is none, which proves less.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self._file: int | None = None

    def open(self) -> None:
        with suppress(OSError):
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def note(self, number: int, end: int) -> None:
        """
        The file of that number was written up to here.
        """
        if self._file is None:
            self.open()
            if self._file is None:
                return
        mark = MARK.pack(number, end)
        try:
            os.pwrite(self._file, mark + _CHECK.pack(crc32(mark)), 0)
        except OSError:
            self.close()  # an older mark is no proof of anything that came later
            with suppress(OSError):
                self._path.unlink()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
