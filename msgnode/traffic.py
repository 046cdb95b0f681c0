"""
The traffic log: one flat JSON line for each message and each event in a session's life.

A public contract, docs/traffic-log.md; never a body, never a token.  Lines are
collected and written together, at the latest after a second, in a thread of
their own.  When the disk is full they are lost and counted; messages never
wait for their log.
"""

import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType, field
from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredLock, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.address import LONGEST
from msgnode.config import ConfigError
from msgnode.hourly import HourlyFiles, Unwritten
from msgnode.message import Message
from msgnode.session import Connection, Session

log = Logger()

VERSION = 1
EVERY = 0.5  # seconds between two writes
MOST_RESOURCES = 1000  # addresses in one line
HOUR = 3_600_000_000_000  # nanoseconds
MOST_HELD = 5000  # lines; a burst is written sooner
MOST_WAITING = 100_000  # lines that wait for a disk that stands still; more are lost


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
    Writes `<directory>/traffic-<node>-YYYYMMDDTHH.jsonl` by `run`, which may use a thread.

    `lost` counts the lines that could not be written.
    """

    def __init__(
        self,
        directory: str,
        node: str,
        clock: IReactorTime,
        wall: Callable[[], int] = time.time_ns,
        run: Callable[..., Deferred[None]] = maybeDeferred,
    ) -> None:
        self.lost = 0
        self._directory = directory
        self._node = node
        name = "".join(c if c.isalnum() or c in ".-_" else "_" for c in node)
        self._files = HourlyFiles(Path(directory), f"traffic-{name}-")
        self._wall = wall
        self._run = run
        self._one_at_a_time = DeferredLock()
        self._held: list[Line] = []
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
            where = f"traffic: cannot write in {self._directory}"
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
        if len(held) == MOST_HELD:
            self.flush()

    def session(self, event: str, session: Session, connection: Connection | None) -> None:
        line = Line(VERSION, "session", self._wall(), self._node, session.runtime, event=event)
        if connection is not None:
            line.connector, line.peer = connection.connector, connection.peer
        self._held.append(line)

    # -- the file ----------------------------------------------------------

    def flush(self) -> None:
        """
        Write what is held, unless the disk is busy with what came before it.
        """
        if not self._one_at_a_time.locked:
            self._one_at_a_time.run(self._write, self._run)
        elif len(self._held) > MOST_WAITING:
            self.lost += len(self._held)
            self._held = []

    def _write(self, run: Callable[..., Deferred[None]]) -> Deferred[None] | None:
        lines, self._held = self._held, []
        if not lines:
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
            log.info("the traffic log writes again; {lost} lines were lost so far", lost=self.lost)

    def _failed(self, why: Failure, lines: int) -> None:
        """
        The lines are lost; the first time it is told.
        """
        why.trap(Unwritten)
        unwritten: Any = why.value
        self.lost += lines - unwritten.saved
        if not self._failing:
            self._failing = True
            log.error("the traffic log is losing lines: {why}", why=str(unwritten))


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
