"""
One process of a stub, as its lifecycle sees it.
"""

from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger, LogLevel

from msgnode.foreign.fetch.stub_code import StubCode
from msgnode.foreign.lifecycle.stub_host import StubHost, StubHosts, StubStart
from msgnode.foreign.lifecycle.stub_record import CREATED, DISCONNECTED, FAILED, IN_PROGRESS, LIVE

_STATUSES = {
    "created": CREATED,
    "in-progress": IN_PROGRESS,
    "live": LIVE,
    "connected": LIVE,  # as older stubs say
    "disconnected": DISCONNECTED,
    "failed": FAILED,
}
_LEVELS = {"error": LogLevel.error, "warn": LogLevel.warn, "info": LogLevel.info}

log = Logger()


class InstanceListener(Protocol):
    """
    The lifecycle, to which a process reports.
    """

    def status_changed(self, process: "StubInstance", desc: str) -> None: ...
    def posted(self, process: "StubInstance", message: bytes) -> int: ...
    def limited(self, process: "StubInstance", limit: str) -> None: ...
    def ready(self, process: "StubInstance") -> None: ...
    def ended(self, process: "StubInstance", why: str) -> None: ...


class StubInstance:
    """
    A process of a stub (StubEvents), which passes on its events until it has ended.

    `slot` numbers this node's two names at the foreign node, so that a new version runs next to the old one.
    If it is not live `start.limits.live_seconds` after its start, or after `expect_live`, it is ended.
    """

    def __init__(
        self, code: StubCode, start: StubStart, slot: int, listener: InstanceListener, clock: IReactorTime
    ) -> None:
        self.code = code
        self.start_options = start
        self.slot = slot
        self.state = ""
        self.was_live = False
        self.is_over = False
        self._listener = listener
        self._clock = clock
        self._host: StubHost | None = None
        self._deadline: IDelayedCall | None = None
        self._why = ""

    def start(self, hosts: StubHosts) -> None:
        self.expect_live()
        try:
            self._host = hosts.start(self.start_options, self)
        except Exception as why:
            log.failure("the stub of {domain} could not be started", domain=self.start_options.domain)
            self.ended(f"it could not be started: {why}")

    @property
    def is_live(self) -> bool:
        return self.state == LIVE and not self.is_over

    def expect_live(self) -> None:
        """
        Ends the process if it is not live in time.
        """
        if self._deadline is None and not self.is_over:
            self._deadline = self._clock.callLater(self.start_options.limits.live_seconds, self._too_late)

    def _too_late(self) -> None:
        self._deadline = None
        self.limited("live")
        self.give_up(f"not live after {self.start_options.limits.live_seconds:g} seconds")

    def post(self, message: bytes) -> bool:
        return self._host is not None and not self.is_over and self._host.post(message)

    def give_up(self, why: str) -> None:
        """
        Ends the process because it is of no use.
        """
        self._why = self._why or why
        self.stop()

    def stop(self) -> Deferred[None]:
        self._cancel()
        return self._host.stop() if self._host is not None and not self.is_over else succeed(None)

    # -- StubEvents ----------------------------------------------------------------

    def posted(self, message: bytes) -> int:
        return 1 if self.is_over else self._listener.posted(self, message)

    def status(self, value: str, desc: str) -> None:
        state = _STATUSES.get(value)
        if state is None or self.is_over or state == self.state:
            return
        self.state = state
        if state == LIVE:
            self.was_live = True
            self._cancel()
        self._listener.status_changed(self, desc)

    def log(self, level: str, text: str) -> None:
        fields: dict[str, Any] = {"domain": self.start_options.domain, "text": text}
        log.emit(_LEVELS.get(level, LogLevel.debug), "stub of {domain}: {text}", **fields)

    def limited(self, limit: str) -> None:
        if not self.is_over:
            self._listener.limited(self, limit)

    def ready(self) -> None:
        if not self.is_over:
            self._listener.ready(self)

    def ended(self, why: str) -> None:
        if not self.is_over:
            self.is_over = True
            self._cancel()
            self._listener.ended(self, self._why or why)

    def _cancel(self) -> None:
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()
        self._deadline = None
