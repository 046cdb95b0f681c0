"""
Traces: every step of some messages, written to a file until its time, its lines or its bytes are used up.

The files are <state>/traces/ID.jsonl, readable by the node's user only, and deleted after a day.
"""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import msgspec
from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.admin.live.trace_filter import TraceFilter
from msgnode.admin.live.trace_observer import TraceObserver
from msgnode.config.schema import Config
from msgnode.node import Node
from msgnode.protocol.errors import Rejected

log = Logger()

MAX_RUNNING, MAX_KEPT = 4, 16
MAX_BYTES = 64 * 1024 * 1024  # of one trace
MAX_SECONDS, MAX_LINES = 3600.0, 100_000
KEPT_SECONDS, CLEAN_SECONDS = 24 * 3600, 3600
FLUSH_SECONDS = 0.5
PART_BYTES = 1024 * 1024  # at most, of one answer with lines
_encode = msgspec.json.Encoder().encode

RUNNING, ENDED = "running", "ended"


class Trace:
    """
    One trace. `until`, `started` and `ended` are seconds since 1970; `why` says why it ended.

    `hidden` counts messages whose senders forbid a log: they are shown to the role admin only.
    """

    def __init__(self, filter: TraceFilter, started: float, until: float, most: int, who: str) -> None:
        self.id = token_hex(6)
        self.filter = filter
        self.started, self.until, self.ended = started, until, 0.0
        self.most = most
        self.who = who
        self.bodies = self.forbidden = False  # show bodies; show messages whose senders forbid a log
        self.lines = self.bytes = self.written = self.hidden = 0
        self.state, self.why = RUNNING, ""
        self.pending: list[bytes] = []

    def add(self, line: dict[str, Any]) -> None:
        """
        Adds a line, unless the trace has ended.
        """
        if self.state != RUNNING:
            return
        data = _encode(line) + b"\n"
        if self.lines >= self.most:
            self.end("lines")
        elif self.bytes + len(data) > MAX_BYTES:
            self.end("bytes")
        else:
            self.lines += 1
            self.bytes += len(data)
            self.pending.append(data)

    def end(self, why: str) -> None:
        if self.state == RUNNING:
            self.state, self.why = ENDED, why

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "state": self.state,
            "why": self.why,
            "filter": self.filter.as_dict(),
            "bodies": self.bodies,
            "who": self.who,
            "started": self.started,
            "until": self.until,
            "max": self.most,
            "lines": self.lines,
            "bytes": self.bytes,
            "hidden": self.hidden,
        }


class Traces(Service):
    """
    The traces of a node, at most MAX_RUNNING at a time.

    `run` calls a function, maybe in a thread; `wall` gives seconds since 1970.
    """

    def __init__(
        self,
        node: Node,
        clock: IReactorTime,
        run: Callable[..., Deferred[Any]] = maybeDeferred,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._node = node
        self._run = run
        self._wall = wall
        self._traces: dict[str, Trace] = {}
        self._observer = TraceObserver(lambda: int(wall() * 1e9))
        self._is_writing = False
        self._beat = LoopingCall(self._tick)
        self._beat.clock = clock
        self._clean = LoopingCall(self._clean_up)
        self._clean.clock = clock
        self._clock = clock

    def startService(self) -> None:
        super().startService()
        self._clean.start(CLEAN_SECONDS)

    def stopService(self) -> Deferred[Any] | None:
        super().stopService()
        if self._clean.running:
            self._clean.stop()
        for trace in self._running():
            trace.end("the node stopped")
        self._settle()
        return self._write()

    def __iter__(self) -> Any:
        return iter(self._traces.values())

    @property
    def _directory(self) -> Path | None:
        config: Config = self._node.config
        return None if config.state == "none" else Path(config.state, "traces")

    def _path(self, trace: Trace) -> Path:
        assert self._directory is not None
        return self._directory / f"{trace.id}.jsonl"

    def _running(self) -> list[Trace]:
        return [trace for trace in self._traces.values() if trace.state == RUNNING]

    def check(self, filter: TraceFilter, seconds: float, most: int, bodies: bool) -> None:
        """
        Raises Rejected if no such trace can be started now.
        """
        filter.check()
        if self._directory is None:
            raise Rejected("a trace needs a state directory, and this node has none", 409, "conflict")
        if not 0 < seconds <= MAX_SECONDS:
            raise Rejected(f"a trace ends after at most {MAX_SECONDS:g} s")
        if not 0 < most <= MAX_LINES:
            raise Rejected(f"a trace has at most {MAX_LINES} lines")
        if bodies and not self._node.config.admin.trace_bodies:
            raise Rejected("bodies are traced only with admin.trace_bodies = true", 403, "policy")
        if self._node.watermark.why:
            raise Rejected(self._node.watermark.why, 503, "disk")
        if len(self._running()) >= MAX_RUNNING:
            raise Rejected(f"{MAX_RUNNING} traces are running; stop one first", 429, "limit")

    def start(
        self,
        filter: TraceFilter,
        seconds: float,
        most: int,
        who: str,
        bodies: bool = False,
        forbidden: bool = False,
    ) -> Trace:
        """
        Starts a trace of at most so many seconds and lines; `forbidden`: with messages whose senders forbid a
        log, without their bodies. Raises Rejected if there are too many, or there is no place for the file.
        """
        self.check(filter, seconds, most, bodies)
        now = self._wall()
        trace = Trace(filter, now, now + seconds, most, who)
        trace.bodies, trace.forbidden = bodies, forbidden
        self._traces[trace.id] = trace
        while len(self._traces) > MAX_KEPT:
            self._remove(next(each for each in self._traces.values() if each.state == ENDED))
        self._clock.callLater(seconds, self._expire, trace)
        self._settle()
        return trace

    def _expire(self, trace: Trace) -> None:
        trace.end("time")
        self._settle()

    def get(self, id: str) -> Trace:
        found = self._traces.get(id)
        if found is None:
            raise Rejected(f"there is no trace {id[:40]!r}; it may have been deleted", 404, "not-found")
        return found

    def stop(self, id: str) -> Trace:
        """
        Ends a trace; its lines stay.
        """
        trace = self.get(id)
        trace.end("stopped")
        self._settle()
        return trace

    def delete(self, id: str) -> Trace:
        """
        Ends a trace, and deletes its lines.
        """
        trace = self.stop(id)
        self._remove(trace)
        return trace

    def _remove(self, trace: Trace) -> None:
        del self._traces[trace.id]
        trace.pending.clear()
        self._run(partial(self._path(trace).unlink, missing_ok=True))

    def read(self, id: str, at: int) -> Deferred[bytes]:
        """
        Whole lines of the trace from this byte on, at most about PART_BYTES.
        """
        trace = self.get(id)
        if not 0 <= at <= trace.written:
            raise Rejected(f"from must be 0 to {trace.written}")
        return self._run(_read_lines, self._path(trace), at, trace.written)

    # -- while traces run ---------------------------------------------------

    def _settle(self) -> None:
        """
        Has the node told this observer of messages, as long as a trace runs.
        """
        running = self._running()
        for trace in self._traces.values():
            if trace.state == ENDED and not trace.ended:
                trace.ended = self._wall()
        changed = running != self._observer.traces
        self._observer.traces = running
        if changed:
            self._node.observe(self._observer if running else None)
        if running and not self._beat.running:
            self._beat.start(FLUSH_SECONDS, now=False)
        elif not running:
            self._observer.forget()

    def _tick(self) -> None:
        self._observer.look_for_acknowledgements()
        if self._node.watermark.why:  # what is left of the disk is for messages
            for trace in self._running():
                trace.end(self._node.watermark.why[:300])
        self._settle()
        self._write()
        if not self._running() and not any(trace.pending for trace in self):
            self._beat.stop()

    def _clean_up(self) -> None:
        """
        Deletes what ended a day ago, files of before a restart among it.
        """
        for trace in list(self._traces.values()):
            if trace.ended and self._wall() - trace.ended > KEPT_SECONDS:
                self._remove(trace)
        self._run(_delete_old, self._directory, self._wall(), KEPT_SECONDS)

    def _write(self) -> Deferred[Any] | None:
        if self._is_writing:
            return None
        work = [(self._path(trace), trace, trace.pending) for trace in self if trace.pending]
        if not work:
            return None
        for _, trace, _lines in work:
            trace.pending = []
        self._is_writing = True
        done = self._run(_append, [(path, b"".join(lines)) for path, _, lines in work])
        done.addCallbacks(self._wrote, self._failed, (work,), errbackArgs=(work,))
        return done

    def _wrote(self, done: None, work: list[tuple[Path, Trace, list[bytes]]]) -> None:
        self._is_writing = False
        for _, trace, lines in work:
            trace.written += sum(map(len, lines))

    def _failed(self, why: Failure, work: list[tuple[Path, Trace, list[bytes]]]) -> None:
        self._is_writing = False
        log.error("a trace could not be written: {why}", why=why.getErrorMessage())
        for _, trace, _lines in work:
            trace.end(f"it could not be written: {why.getErrorMessage()}"[:300])
        self._settle()


def _append(work: list[tuple[Path, bytes]]) -> None:
    for path, data in work:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as file:
            file.write(data)


def _read_lines(path: Path, at: int, end: int) -> bytes:
    if at == end:
        return b""
    with path.open("rb") as file:
        file.seek(at)
        data = file.read(min(PART_BYTES, end - at))
        if not data.endswith(b"\n"):
            data += file.readline()
    return data


def _delete_old(directory: Path | None, now: float, seconds: float) -> None:
    """
    Deletes the files of traces that are older than this.
    """
    if directory is None or not directory.is_dir():
        return
    for path in directory.glob("*.jsonl"):
        if now - path.stat().st_mtime >= seconds:
            path.unlink(missing_ok=True)
