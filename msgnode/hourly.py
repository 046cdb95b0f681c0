"""
Files of one hour each, appended to by whole lines.

Used from one thread at a time, which need not be the reactor's: a disk that
stands still must not hold up the messages.
"""

import os
import time
from errno import EACCES
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
    `<directory>/<prefix>YYYYMMDDTHH.jsonl`, the hour in UTC.
    """

    def __init__(self, directory: Path, prefix: str) -> None:
        self._directory = directory
        self._prefix = prefix
        self._file: int | None = None
        self._hour = ""
        self._torn = False  # does the file end in half a line

    def prepare(self) -> None:
        """
        Make the directory, and end the line that a killed process left torn.  OSError if it cannot be.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        if not os.access(self._directory, os.W_OK):
            raise PermissionError(EACCES, "Permission denied")
        newest = max(self._directory.glob(self._prefix + "*.jsonl"), default=None)
        if newest is not None:
            with newest.open("rb+") as file:
                size = file.seek(0, os.SEEK_END)
                if size and (file.seek(size - 1), file.read(1))[1] != b"\n":
                    file.write(b"\n")

    def append(self, batches: list[tuple[int, bytes]]) -> None:
        """
        Write lines, by hours since 1970.  Raises Unwritten.
        """
        saved = 0
        for hour, data in batches:
            left = len(data)
            try:
                file = self._open(hour)
                if self._torn:
                    os.write(file, b"\n")
                    self._torn = False
                while left:
                    left -= os.write(file, memoryview(data)[-left:])
            except OSError as why:
                whole = data[: len(data) - left]
                self._torn = self._torn or (not whole.endswith(b"\n") and bool(whole))
                self.close()
                raise Unwritten(why, saved + whole.count(b"\n")) from why
            saved += data.count(b"\n")

    def _open(self, hour: int) -> int:
        name = time.strftime("%Y%m%dT%H", time.gmtime(hour * 3600))
        if self._file is None or name != self._hour:
            self.close()
            path = self._directory / f"{self._prefix}{name}.jsonl"
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
            self._torn = self._torn and name == self._hour
            self._hour = name
        return self._file

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
