"""
Log files of one hour each, to which whole lines are appended.

They are used from one thread at a time, not necessarily the reactor's: a blocked disk must not delay
messages.
"""

import os
import time
from collections.abc import Callable
from errno import EACCES, EFBIG
from pathlib import Path


class PartialWrite(Exception):
    """
    A write that the disk took only in part: the first `saved` lines are complete in the file.
    """

    def __init__(self, why: OSError, saved: int) -> None:
        super().__init__(str(why))
        self.saved = saved


class HourlyFiles:
    """
    Appends lines to one file for each hour: `<directory>/<prefix>YYYYMMDDTHH.jsonl`, the hour in UTC.

    `most` gives the largest size of a file in bytes; 0 means no limit.
    """

    def __init__(self, directory: Path, prefix: str, most: Callable[[], int] = int) -> None:
        self._most = most
        self._directory = directory
        self._prefix = prefix
        self._file: int | None = None
        self._hour = ""

    def prepare(self) -> None:
        """
        Create the directory, and complete a line that a killed process left torn. OSError if that is not
        possible.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        if not os.access(self._directory, os.W_OK):
            raise PermissionError(EACCES, "Permission denied")
        newest = max(self._directory.glob(self._prefix + "*.jsonl"), default=None)
        if newest is not None:
            os.close(_opened(newest))

    def append(self, batches: list[tuple[int, bytes]]) -> None:
        """
        Append the lines of each batch, which has its hour in hours since 1970. Raises PartialWrite.
        """
        for number, (hour, data) in enumerate(batches):
            left = len(data)
            try:
                file = self._open(hour)
                self._check(file, left)
                while left:
                    left -= os.write(file, memoryview(data)[-left:])
            except OSError as why:
                self.close()  # opening the file again completes a torn line
                written = [*(data for _, data in batches[:number]), data[: len(data) - left]]
                raise PartialWrite(why, sum(data.count(b"\n") for data in written)) from why

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
    Open the file for appending whole lines, and complete a torn last line.
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
