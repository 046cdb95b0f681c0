"""
The traffic log: one flat JSON line for each message and each event in a session's life.

A public contract, docs/traffic-log.md; never a body, never a token.  Lines are
collected and written together, at the latest after a second.  When the disk
is full they are lost and counted; messages never wait for their log.
"""

import os
import time
from collections.abc import Callable
from errno import EACCES
from itertools import groupby
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct, UnsetType, field
from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from msgnode.address import LONGEST
from msgnode.config import ConfigError
from msgnode.message import Message
from msgnode.session import Connection, Session

log = Logger()

VERSION = 1
EVERY = 0.5  # seconds between two writes
MOST_RESOURCES = 1000  # addresses in one line
HOUR = 3_600_000_000_000  # nanoseconds
MOST_HELD = 5000  # lines; a burst is written sooner


class Line(Struct, gc=False, omit_defaults=True):
    """
    One line of the log.  docs/traffic-log.md says what each key means.
    """

    v: int = field(default_factory=lambda: VERSION)
    kind: str = ""
    time: int = 0
    node: str = ""
    session: str = ""
    connector: str = ""
    peer: str = ""
    type: str = ""
    id: int | str = ""
    from_: str = field(name="from", default="")
    to: str = ""
    bytes: int | UnsetType = UNSET
    outcome: str = ""
    recipients: int | UnsetType = UNSET
    waiting: int | UnsetType = UNSET
    code: int = 0
    micros: int | UnsetType = UNSET
    resources: list[str] | None = None
    event: str = ""


class NoLog:
    """
    The journal when the traffic log is switched off.
    """

    def message(self, message: Message, session: Session | None) -> None:
        pass

    def session(self, event: str, session: Session, connection: Connection | None) -> None:
        pass


class TrafficLog(Service):
    """
    Appends to `<directory>/traffic-<node>-YYYYMMDDTHH.jsonl`, the hour in UTC.

    `lost` counts the lines that could not be written.
    """

    def __init__(
        self, directory: str, node: str, clock: IReactorTime, wall: Callable[[], int] = time.time_ns
    ) -> None:
        self.lost = 0
        self._directory = Path(directory)
        self._node = node
        self._prefix = "traffic-" + "".join(c if c.isalnum() or c in ".-_" else "_" for c in node) + "-"
        self._wall = wall
        self._held: list[Line] = []
        self._encode = msgspec.json.Encoder().encode_lines
        self._file: int | None = None
        self._hour = ""
        self._torn = False  # does the file end in half a line
        self._failing = False
        self._saved = 0  # lines of this flush that are in the file, whole
        self._flushing = LoopingCall(self.flush)
        self._flushing.clock = clock

    def startService(self) -> None:
        """
        Close the line that a killed node left torn, and begin.
        """
        super().startService()
        try:
            self._close_torn()
        except OSError as why:
            text = (
                f"traffic: cannot write in {self._directory}: {why.strerror}; name another directory, or none"
            )
            raise ConfigError(text) from why
        self._flushing.start(EVERY, now=False)

    def _close_torn(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        if not os.access(self._directory, os.W_OK):
            raise PermissionError(EACCES, "Permission denied")
        newest = max(self._directory.glob(self._prefix + "*.jsonl"), default=None)
        if newest is not None:
            with newest.open("rb+") as file:
                size = file.seek(0, os.SEEK_END)
                if size and (file.seek(size - 1), file.read(1))[1] != b"\n":
                    file.write(b"\n")

    def stopService(self) -> None:
        super().stopService()
        if self._flushing.running:
            self._flushing.stop()
        self.flush()
        self._close()

    # -- the Journal -------------------------------------------------------

    def message(self, message: Message, session: Session | None) -> None:
        connection, to, size = message.origin, message.to, len(message.data)
        if to.__class__ is not str:
            to = f"{to[0]} and {len(to) - 1} more"
        if size > LONGEST:
            to = _shortened(message, to)
        held = self._held
        held.append(
            Line(
                VERSION,
                "message",
                message.came,
                self._node,
                "" if session is None else session.runtime,
                connection.connector,
                connection.peer,
                message.type,
                message.id,
                message.from_,
                to,
                size,
                message.outcome,
                message.recipients,
                message.waiting,
                message.code,
                message.micros,
                message.resources and _few(message.resources),
            )
        )
        if len(held) >= MOST_HELD:
            self.flush()

    def session(self, event: str, session: Session, connection: Connection | None) -> None:
        line = Line(VERSION, "session", self._wall(), self._node, session.runtime, event=event)
        if connection is not None:
            line.connector, line.peer = connection.connector, connection.peer
        self._held.append(line)

    # -- the file ----------------------------------------------------------

    def flush(self) -> None:
        """
        Write what is held.  Lines that fail are lost, and the first failure is told.
        """
        lines, self._held = self._held, []
        if not lines:
            return
        self._saved = 0
        try:
            self._write(lines)
        except OSError as why:
            self.lost += len(lines) - self._saved
            self._close()
            if not self._failing:
                self._failing = True
                log.error("the traffic log is losing lines: {why}", why=str(why))
        else:
            if self._failing:
                self._failing = False
                log.info("the traffic log writes again; {lost} lines were lost so far", lost=self.lost)

    def _write(self, lines: list[Line]) -> None:
        """
        A line goes to the file of its own hour.
        """
        times = [line.time for line in lines]
        if min(times) // HOUR == max(times) // HOUR:
            self._append(times[0] // HOUR, self._encode(lines))
            return
        for hour, group in groupby(sorted(lines, key=_hour), _hour):
            some = list(group)
            self._append(hour, self._encode(some))
            self._saved += len(some)

    def _append(self, hour: int, data: bytes) -> None:
        name = time.strftime("%Y%m%dT%H", time.gmtime(hour * 3600))
        if self._file is None or name != self._hour:
            self._close()
            path = self._directory / f"{self._prefix}{name}.jsonl"
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
            self._torn = self._torn and name == self._hour
            self._hour = name
        torn = self._torn
        if torn:
            data = b"\n" + data
        view = memoryview(data)
        try:
            while view:
                written = os.write(self._file, view)
                self._torn = written < len(view)
                view = view[written:]
        except OSError:
            self._saved += max(data[: len(data) - len(view)].count(b"\n") - torn, 0)
            raise

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _hour(line: Line) -> int:
    return line.time // HOUR


def _shortened(message: Message, to: str) -> str:
    """
    Nobody's log is filled by an address of a megabyte.
    """
    if not isinstance(message.id, int) and len(message.id) > LONGEST:
        message.id = message.id[:LONGEST] + "…"
    if len(message.type) > LONGEST:
        message.type = message.type[:LONGEST] + "…"
    if len(message.from_) > LONGEST:
        message.from_ = message.from_[:LONGEST] + "…"
    return to if len(to) <= LONGEST else to[:LONGEST] + "…"


def _few(resources: list[str]) -> list[str]:
    return [address[:LONGEST] for address in resources[:MOST_RESOURCES]]
