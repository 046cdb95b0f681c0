"""
The process of one stub: its life, and the lines in both directions.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.interfaces import IDelayedCall, IPushProducer
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from msgnode.foreign.lifecycle.stub_host import StubEvents, StubStart
from msgnode.foreign.sandbox import lines
from msgnode.foreign.sandbox.flow import Allowance, Rate
from msgnode.foreign.sandbox.lines import BadLine, LineBuffer, cleaned, encoded
from msgnode.foreign.sandbox.network import StubNetwork
from msgnode.foreign.sandbox.watch import Watch

log = Logger()

STATUSES = ("created", "in-progress", "live", "disconnected", "failed")
LINE_ROOM_BYTES = 64 * 1024  # of a line, in addition to its message
TURN_LINES, TURN_SECONDS = 64, 0.0003  # at most, in one turn of the event loop
MAX_STDERR_BYTES = 4096  # that are kept, the last ones
DISCONNECT_SECONDS = 2.0  # for the stub's disconnect()
TERMINATE_SECONDS = 1.0  # until SIGKILL follows SIGTERM
OUT_OF_MEMORY = "ran out of memory"
UNREAD_MESSAGES = 16  # times the longest message may wait in the node for a process that does not read
STATUSES_SECONDS = 10.0  # of the permitted rate may come at once; each makes the node subscribe again
CONSOLE_SECONDS = 20.0


@implementer(IPushProducer)
class StubProcess(ProcessProtocol):
    """
    The process of a stub, a StubHost. It begins when Twisted calls `connectionMade`.
    """

    transport: Any

    def __init__(
        self,
        clock: Any,
        start: StubStart,
        first: bytes,
        events: StubEvents,
        network: Callable[[Callable[[bytes], None]], StubNetwork],
    ) -> None:
        self._clock = clock
        self._start = start
        self._first = first
        self._events = events
        self._network = network(self._write)
        limits = start.limits
        self._buffer = LineBuffer(2 * limits.message_bytes + LINE_ROOM_BYTES)  # base64 is longer
        self._rate = Rate(clock, limits.messages_per_second, limits.output_bytes_per_second)
        self._watch: Watch | None = None
        self._late: IDelayedCall | None = None  # until it must be live
        self._held: IDelayedCall | None = None  # until more of its lines are handled
        self._stopping: list[Deferred[None]] = []
        self._signals: IDelayedCall | None = None
        self._stderr = b""
        self._why = ""
        self._most_unread = UNREAD_MESSAGES * limits.message_bytes
        self._unread = 0  # bytes that were written since the process has not read
        self._statuses = Allowance(clock, STATUSES_SECONDS, limits.statuses_per_second)
        self._logged = Allowance(clock, CONSOLE_SECONDS, limits.log_lines_per_second)
        self._left_out = 0  # lines of its console
        self._full = self._refused = self._ended = False
        self._started = self._is_jailed = False

    # -- StubHost ------------------------------------------------------------------

    def post(self, message: bytes) -> bool:
        if self._full or not self._started or self._stopping:
            self._refused = True
            return False
        self._write(lines.post_line(message))
        return True

    def stop(self) -> Deferred[None]:
        stopped: Deferred[None] = Deferred()
        if self._ended:
            stopped.callback(None)
            return stopped
        self._stopping.append(stopped)
        if len(self._stopping) == 1:
            self._why = self._why or "was stopped"
            self._cancel(self._late)
            self._write(encoded("stop"))
            self._signals = self._clock.callLater(DISCONNECT_SECONDS, self._terminate)
        return stopped

    def _terminate(self) -> None:
        self._signals = self._clock.callLater(TERMINATE_SECONDS, self._signal, "KILL")
        self._signal("TERM")

    def _signal(self, name: str) -> None:
        with suppress(ProcessExitedAlready):
            self.transport.signalProcess(name)

    def kill(self, why: str, limit: str = "") -> None:
        """
        End it at once; `why` is what `ended` gets, `limit` the limit that it has reached.
        """
        if not self._ended:
            if limit:
                self._events.limited(limit)
            self._why = self._why or why
            self._signal("KILL")

    # -- the process ---------------------------------------------------------------

    def connectionMade(self) -> None:
        limits = self._start.limits
        self.transport.registerProducer(self, True)
        self._write(self._first)
        self._first = b""
        self._late = self._clock.callLater(limits.live_seconds, self._not_live)
        self._watch = Watch(
            self._clock,
            self.transport.pid,
            lambda number: self._write(encoded("ping", n=number)),
            self.kill,
            limits.hang_seconds,
            limits.cpu_share,
        )

    def _not_live(self) -> None:
        self.kill(f"was not live within {self._start.limits.live_seconds:g} s", "live")

    def _write(self, line: bytes) -> None:
        if self._ended:
            return
        self.transport.write(line)
        if self._full:
            self._unread += len(line)
            if self._unread > self._most_unread:
                self.kill("does not read what is written to it", "unread")

    def pauseProducing(self) -> None:
        """
        The process does not read what is written to it.
        """
        self._full = True
        self._network.pause()

    def resumeProducing(self) -> None:
        self._full, self._unread = False, 0
        self._network.resume()
        self._say_ready()

    def stopProducing(self) -> None:
        pass

    def _say_ready(self) -> None:
        if self._refused and self._started and not self._full and not self._ended:
            self._refused = False
            self._events.ready()

    def errReceived(self, data: bytes) -> None:
        self._stderr = (self._stderr + data)[-MAX_STDERR_BYTES:]

    def outReceived(self, data: bytes) -> None:
        self._buffer.add(data)
        if self._watch is not None:
            self._watch.read(len(data))
        if self._held is None:
            self._handle_lines()

    def _handle_lines(self) -> None:
        was_held, self._held = self._held, None
        try:
            wait = self._handle_some()
        except BadLine as why:
            self.kill(f"broke the protocol of its host: {why}", why.limit)
            wait = None
        if self._ended or wait is None:
            if was_held is not None and not self._ended:
                self._hold(False)
                self.transport.resumeProducing()
            return
        self._hold(True)
        self.transport.pauseProducing()
        self._held = self._clock.callLater(wait, self._handle_lines)

    def _handle_some(self) -> float | None:
        """
        None if no whole line is left, else the seconds until more may be handled.
        """
        end = self._clock.seconds() + TURN_SECONDS
        for _ in range(TURN_LINES):
            wait = self._rate.wait()
            if wait:
                self._events.limited("rate")
                return wait
            line = self._buffer.next()
            if line is None:
                return None
            self._rate.take(len(line))
            self._handle(lines.decoded(line))
            if self._ended or (self._why and not self._stopping):
                return None
            if self._clock.seconds() >= end:
                break
        return 0.0

    def _hold(self, held: bool) -> None:
        if self._watch is not None:
            self._watch.held = held

    def _handle(self, line: lines.Line) -> None:
        match line:
            case lines.Posted():
                self._posted(bytes(line.m))
            case lines.Send():
                self._network.send(line)
            case lines.Pong():
                if self._watch is not None:
                    self._watch.pong(line.n)
            case lines.Log():
                self._log(line.level if line.level in ("debug", "info", "warn") else "error", line.text)
            case lines.Status():
                self._status(line.value, cleaned(line.desc))
            case lines.Started():
                self._started = True
                self._say_ready()
            case lines.Failed():
                self.kill(f"cannot run: {cleaned(line.text)}")
            case lines.Open():
                self._network.open(line)
            case lines.Close():
                self._network.close(line)
            case lines.Fetch():
                self._network.fetch(line)
            case lines.Abort():
                self._network.abort(line)
            case lines.Jail():
                self._jailed(line.missing)

    def _jailed(self, missing: list[str]) -> None:
        if self._is_jailed:
            raise BadLine("only the first line says what the sandbox is without")
        self._is_jailed = True
        if missing:
            log.warn("the sandbox is without {missing}", missing=cleaned(", ".join(missing)))

    def _log(self, level: str, text: str) -> None:
        """
        Hands on a line of its console, unless there were too many; the next one says how many are left out.
        """
        if not self._logged.take():
            self._left_out += 1
            self._events.limited("console")
            return
        left_out, self._left_out = self._left_out, 0
        more = f" ({left_out} lines before it are left out)" if left_out else ""
        self._events.log(level, cleaned(text) + more)

    def _posted(self, message: bytes) -> None:
        most = self._start.limits.message_bytes
        if len(message) > most or not message.startswith(b"{"):
            raise BadLine(f"expected a message that is an object of at most {most} bytes")
        self._rate.take(0, self._events.posted(message) - 1)  # a line has been taken for it

    def _status(self, value: str, desc: str) -> None:
        if not self._statuses.take():
            self.kill("changed its status too often", "statuses")
            return
        if value not in STATUSES:
            self._log("warn", f"unknown status {cleaned(value, 40)!r}")
            return
        if value == "live":
            self._cancel(self._late)
        elif not self._stopping and not (self._late and self._late.active()):
            self._late = self._clock.callLater(self._start.limits.live_seconds, self._not_live)
        self._events.status(value, desc)

    def processEnded(self, reason: Failure) -> None:
        self._ended = True
        for call in (self._late, self._held, self._signals):
            self._cancel(call)
        if self._watch is not None:
            self._watch.stop()
        self._network.end()
        why = self._why or self._exit(reason.value)
        if why.startswith(OUT_OF_MEMORY):
            self._events.limited("memory")
        self._events.ended(why)
        stopping, self._stopping = self._stopping, []
        for stopped in stopping:
            stopped.callback(None)

    def _exit(self, reason: Any) -> str:
        said = self._stderr.decode("utf-8", "replace")
        if "out of memory" in said.lower() or "allocation failed" in said.lower():
            return f"{OUT_OF_MEMORY}; the limit is {self._start.limits.memory_bytes >> 20} MiB"
        last = cleaned(next(filter(None, reversed(said.splitlines())), ""), 200)
        how = f"signal {reason.signal}" if reason.signal else f"exit code {reason.exitCode}"
        return f"ended with {how}" + (f": {last}" if last else "")

    @staticmethod
    def _cancel(call: IDelayedCall | None) -> None:
        if call is not None and call.active():
            call.cancel()
