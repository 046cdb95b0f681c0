"""
A log of JSON lines in hourly files, which nothing ever waits for.

Lines are collected and written together, at the latest after half a second,
in a thread of their own.  When the disk is full they are lost and counted.
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
from msgnode.storage.hourly_files import HourlyFiles, Unwritten

EVERY = 0.5  # seconds between two writes
HOUR = 3_600_000_000_000  # nanoseconds
MAX_HELD = 5000  # lines; a burst is written sooner
MAX_WAITING = 100_000  # lines that wait for a disk that stands still; more are lost
MAX_LONG = 64 * 1024 * 1024  # bytes of the messages that long ones of them are about, likewise
CUT = 512  # characters of a text in a line


def cut(text: str) -> str:
    """
    The text as it stands in a line: nobody's log is filled by an address of a megabyte.
    """
    return text if len(text) <= CUT else text[:CUT] + "…"


def cut_id(id: int | str) -> int | str:
    """
    The same for an id, which is text once it is cut.
    """
    if isinstance(id, str):
        return cut(id)
    return id if id.bit_length() <= 3 * CUT else cut(hex(id))


class LineLog(Service):
    """
    Writes `<directory>/<what>-<node>-YYYYMMDDTHH.jsonl` by `run`, which may use a thread.

    Each line is a Struct with its `time` in nanoseconds.  `lost` counts those
    that could not be written, or were not, because the disk is low by the
    `watermark`.  Who adds a line of a long message adds to `long`, in bytes.
    """

    what = "lines"
    _held: list[Any]

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
        self._files = HourlyFiles(Path(directory), f"{self.what}-{name}-", most)
        self._run = run
        self._one_at_a_time = DeferredLock()
        self._held = []
        self._encode = msgspec.json.Encoder().encode_lines
        self._failing = False
        self._flushing = LoopingCall(self.flush)
        self._flushing.clock = clock

    def startService(self) -> None:
        """
        Make sure of the directory, and begin.
        """
        super().startService()
        try:
            self._files.prepare()
        except OSError as why:
            where = f"{self.what}: cannot write in {self._directory}"
            raise ConfigError(f"{where}: {why.strerror}; name another directory, or none") from why
        self._flushing.start(EVERY, now=False)

    def stopService(self) -> Deferred[None]:
        """
        Write the last lines; fires when they are in the file.
        """
        super().stopService()
        if self._flushing.running:
            self._flushing.stop()
        done: Deferred[Any] = self._one_at_a_time.run(self._write, maybeDeferred)
        return done.addBoth(lambda done: self._files.close())

    def flush(self) -> None:
        """
        Write what is held, unless the disk is busy with what came before it.
        """
        if not self._one_at_a_time.locked:
            self._one_at_a_time.run(self._write, self._run)
        elif len(self._held) > MAX_WAITING or self.long > MAX_LONG:
            self.lost += len(self._held)
            self._held = []
            self.long = 0

    def _write(self, run: Callable[..., Deferred[None]]) -> Deferred[None] | None:
        lines, self._held = self._held, []
        self.long = 0
        if not lines:
            return None
        if self.watermark is not None and self.watermark.low:
            self._lose(len(lines), self.watermark.why)
            return None
        first, last = lines[0].time // HOUR, lines[-1].time // HOUR
        if first == last:
            batches = [(first, self._encode(lines))]
        else:
            batches = [(hour, self._encode(list(some))) for hour, some in groupby(lines, _hour)]
        done = run(self._files.append, batches)
        return done.addCallbacks(self._wrote, self._failed, errbackArgs=(len(lines),))

    def _wrote(self, done: None) -> None:
        if self._failing:
            self._failing = False
            self._log.info(
                "the {what} log writes again; {lost} lines were lost so far", what=self.what, lost=self.lost
            )

    def _failed(self, why: Failure, lines: int) -> None:
        """
        The lines are lost; the first time it is told.
        """
        why.trap(Unwritten)
        unwritten: Any = why.value
        self._lose(lines - unwritten.saved, str(unwritten))

    def _lose(self, lines: int, why: str) -> None:
        self.lost += lines
        if not self._failing:
            self._failing = True
            self._log.error("the {what} log is losing lines: {why}", what=self.what, why=why)


def _hour(line: Any) -> int:
    hour: int = line.time // HOUR
    return hour
