"""
A log of JSON lines in hourly files. Messages never wait for it.

Lines are collected and written together, at the latest after half a second, in a thread. If the disk is full,
lines are lost and counted.
"""

from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredLock, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.config.schema import ConfigError
from msgnode.sessions.limits.disk_watermark import Watermark
from msgnode.storage.hourly_files import HourlyFiles, PartialWrite

WRITE_SECONDS = 0.5  # seconds between two writes
HOUR_NANOSECONDS = 3_600_000_000_000
MAX_HELD = 5000  # lines; more are written without waiting for the timer
MAX_WAITING_LINES = 100_000  # lines in memory while the disk blocks; more are lost
MAX_LONG_BYTES = 64 * 1024 * 1024  # bytes in memory of addresses in those lines; more are lost too
MAX_TEXT_CHARS = 512  # characters of a text in a line


Batches = tuple[int, list[tuple[int, bytes]]]  # how many lines, and their bytes by hours since 1970


def cut(text: str) -> str:
    """
    The text, shortened for a log line: an address of a megabyte must not fill the log.
    """
    return text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS] + "…"


def cut_id(id: int | str) -> int | str:
    """
    The same for an id. A long integer becomes hexadecimal text.
    """
    if isinstance(id, str):
        return cut(id)
    return id if id.bit_length() <= 3 * MAX_TEXT_CHARS else cut(hex(id))


class LineLog(Service):
    """
    A service that writes `<directory>/<what>-<node>-YYYYMMDDTHH.jsonl`. `run` calls a function, maybe in a
    thread.

    Each line is a Struct whose `time` is in nanoseconds. `lost` counts the lines that were not written
    because a write failed or the `watermark` says that the disk is low. `long` is the size in bytes of the
    long texts in lines that wait; a subclass adds to it.
    """

    what = "lines"
    _lines: list[Any]

    def __init__(
        self,
        directory: str,
        node: str,
        clock: IReactorTime,
        run: Callable[..., Deferred[None]],
        most: Callable[[], int] = int,
    ) -> None:
        self.lost = 0
        self.long = 0
        self.watermark: Watermark | None = None
        self._log = Logger(type(self).__module__)
        self._directory = directory
        name = "".join(c if c.isalnum() or c in ".-_" else "_" for c in node)
        self.prefix = f"{self.what}-{name}-"  # of the names of its files
        self._files = HourlyFiles(Path(directory), self.prefix, most)
        self._run = run
        self._one_at_a_time = DeferredLock()
        self._lines = []
        self._encode = msgspec.json.Encoder().encode_lines
        self._failing = False
        self._flushing = LoopingCall(self.flush)
        self._flushing.clock = clock

    def startService(self) -> None:
        """
        Create the directory and start the timer. ConfigError if the directory is not writable.
        """
        super().startService()
        try:
            self._files.prepare()
        except OSError as why:
            where = f"{self.what}: cannot write in {self._directory}"
            raise ConfigError(f"{where}: {why.strerror}; name another directory, or none") from why
        self._flushing.start(WRITE_SECONDS, now=False)

    def stopService(self) -> Deferred[None]:
        """
        Write the remaining lines. Fires once they are in the file.
        """
        super().stopService()
        if self._flushing.running:
            self._flushing.stop()
        done: Deferred[Any] = self._one_at_a_time.run(self._write, maybeDeferred)
        return done.addBoth(lambda done: self._files.close())

    def flush(self) -> None:
        """
        Write the collected lines, unless the previous write is not finished.
        """
        if not self._one_at_a_time.locked:
            self._one_at_a_time.run(self._write, self._run)
        elif self._waiting() > MAX_WAITING_LINES or self.long > MAX_LONG_BYTES:
            self._discard()

    def _write(self, run: Callable[..., Deferred[None]]) -> Deferred[None] | None:
        number, batches = self._take()
        if not number:
            return None
        if self.watermark is not None and self.watermark.low:
            self._lose(number, self.watermark.why)
            return None
        done = run(self._files.append, batches)
        return done.addCallbacks(self._wrote, self._failed, errbackArgs=(number,))

    def _waiting(self) -> int:
        return len(self._lines)

    def _discard(self) -> None:
        """
        Lose the lines that are held.
        """
        self.lost += len(self._lines)
        self._lines = []
        self.long = 0

    def _take(self) -> Batches:
        """
        The lines that are held, and how many they are; none are held any more.
        """
        lines, self._lines = self._lines, []
        self.long = 0
        if not lines:
            return 0, []
        first, last = lines[0].time // HOUR_NANOSECONDS, lines[-1].time // HOUR_NANOSECONDS
        if first == last:
            return len(lines), [(first, self._encode(lines))]
        return len(lines), [(hour, self._encode(list(some))) for hour, some in groupby(lines, _hour)]

    def _wrote(self, done: None) -> None:
        if self._failing:
            self._failing = False
            self._log.info(
                "the {what} log can be written again; {lost} lines have been lost since the start",
                what=self.what,
                lost=self.lost,
            )

    def _failed(self, why: Failure, lines: int) -> None:
        """
        Count the lines that were lost. Only the first failure in a row is logged.
        """
        why.trap(PartialWrite)
        unwritten: Any = why.value
        self._lose(lines - unwritten.saved, str(unwritten))

    def _lose(self, lines: int, why: str) -> None:
        self.lost += lines
        if not self._failing:
            self._failing = True
            self._log.error("the {what} log is losing lines: {why}", what=self.what, why=why)


def _hour(line: Any) -> int:
    hour: int = line.time // HOUR_NANOSECONDS
    return hour
