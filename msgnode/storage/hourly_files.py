"""
Files of one hour each, appended to by whole lines.

Used from one thread at a time, which need not be the reactor's: a disk that
stands still must not hold up the messages.
"""

import os
import time
from collections.abc import Callable
from errno import EACCES, EFBIG
from pathlib import Path


class Unwritten(Exception):
    """
    The disk took only part of it: `saved` lines are in the file, whole.
    """

    def __init__(self, why: OSError, saved: int) -> None:
        super().__init__(str(why))
        self.saved = saved


class HourlyFiles:
    """
    Files that each have one hour of a log.

    `<directory>/<prefix>YYYYMMDDTHH.jsonl`, the hour in UTC; `most` bytes in each, 0: no limit.
    """

    def __init__(self, directory: Path, prefix: str, most: Callable[[], int] = int) -> None:
        self._most = most
        self._directory = directory
        self._prefix = prefix
        self._file: int | None = None
        self._hour = ""

    def prepare(self) -> None:
        """
        Make the directory, and end the line that a killed process left torn.  OSError if it cannot be.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        if not os.access(self._directory, os.W_OK):
            raise PermissionError(EACCES, "Permission denied")
        newest = max(self._directory.glob(self._prefix + "*.jsonl"), default=None)
        if newest is not None:
            os.close(_opened(newest))

    def append(self, batches: list[tuple[int, bytes]]) -> None:
        """
        Write lines, by hours since 1970.  Raises Unwritten.
        """
        saved = 0
        for hour, data in batches:
            left = len(data)
            try:
                file = self._open(hour)
                self._check(file, left)
                while left:
                    left -= os.write(file, memoryview(data)[-left:])
            except OSError as why:
                whole = data[: len(data) - left]
                self.close()  # half a line is ended when it is opened again
                raise Unwritten(why, saved + whole.count(b"\n")) from why
            saved += data.count(b"\n")

    def _check(self, file: int, more: int) -> None:
        most = self._most()
        if most and os.fstat(file).st_size + more > most:
            raise OSError(EFBIG, f"more than {most} bytes in one hour")

    def _open(self, hour: int) -> int:
        name = time.strftime("%Y%m%dT%H", time.gmtime(hour * 3600))
        if self._file is None or name != self._hour:
            self.close()
            self._file = _opened(self._directory / f"{self._prefix}{name}.jsonl")
            self._hour = name
        return self._file

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _opened(path: Path) -> int:
    """
    The file, to append whole lines to.
    """
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o640)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            os.write(file, b"\n")
    except OSError:
        os.close(file)
        raise
    return file
