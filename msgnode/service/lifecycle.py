"""
The root service of the node: its services start in order and stop in reverse order; if one cannot start, one
line says why.
"""

import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, inlineCallbacks, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from msgnode.config.schema import Config, ConfigError
from msgnode.service.process.log_format import LoggingService

log = Logger()

HURRY_SECONDS = 1.0


@contextmanager
def exit_on_config_error(where: str = "") -> Iterator[None]:
    """
    If the configuration cannot be used, print one line that begins with `where`, and exit with status 2.
    """
    try:
        yield
    except ConfigError as why:
        print(f"msgnode: {where}{': ' if where else ''}{why}", file=sys.stderr)
        sys.exit(2)


def stop_for(reactor: Any, why: str) -> None:
    """
    Stop the running node because of an error that its operator has to resolve; it exits with status 2.
    """
    log.error("the node stops: {why}", why=why)
    reactor.addSystemEventTrigger("after", "shutdown", _exit)
    reactor.stop()


def _exit() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(2)  # twistd has no other way to a status of its own


class NodeService(LoggingService):
    """
    The root service.  Its services start in order and stop in reverse order (graceful shutdown).

    Each may take half of what remains of `drain_seconds`, and its own `stop_seconds`, if it has any, so that
    clients that do not react leave time to write their messages to disk. A second SIGTERM or SIGINT leaves
    them HURRY_SECONDS.
    """

    def __init__(self, config: Config, clock: IReactorTime) -> None:
        super().__init__()
        self._config = config
        self._clock = clock
        self._deadline = 0.0
        self._is_hurried = False
        self._wait: _Wait | None = None

    def privilegedStartService(self) -> None:
        with exit_on_config_error():
            super().privilegedStartService()

    def startService(self) -> None:
        with exit_on_config_error():
            super().startService()

    def stopService(self) -> Deferred[None]:
        Service.stopService(self)  # MultiService would stop all services at once
        self._deadline = self._clock.seconds() + self._config.drain_seconds
        return self._stop_one_by_one()

    def hurry(self) -> None:
        """
        The operator does not want to wait: the services that still have to stop may take HURRY_SECONDS.
        """
        hurried = self._clock.seconds() + HURRY_SECONDS
        if self._wait is not None and hurried < self._deadline:
            log.warn("a second signal to stop: the node does not wait for what is under way")
            self._deadline, self._is_hurried = hurried, True
            self._wait.end(False)

    @inlineCallbacks
    def _stop_one_by_one(self) -> Generator[Deferred[Any], Any, None]:
        for service in reversed(list(self)):
            what = type(service).__name__
            stopped = maybeDeferred(service.stopService)
            stopped.addErrback(partial(log.failure, "{what} failed while it stopped", what=what))
            more = 0.0 if self._is_hurried else getattr(service, "stop_seconds", 0.0)
            self._deadline += more
            wait = (self._deadline - more - self._clock.seconds()) / 2 + more
            self._wait = _Wait(wait, stopped, self._clock)
            in_time = yield self._wait.over
            if not in_time:
                log.warn("{what} did not stop in time; the node no longer waits for it", what=what)


class _Wait:
    """
    The wait until `stopped` fires: `over` fires then, with True, or after so many seconds, with False.
    """

    def __init__(self, seconds: float, stopped: Deferred[Any], clock: IReactorTime) -> None:
        self.over: Deferred[bool] = Deferred()
        self._late = clock.callLater(max(0, seconds), self.end, False)
        stopped.addCallback(lambda result: self.end(True))

    def end(self, in_time: bool) -> None:
        if self._late.active():
            self._late.cancel()
        if not self.over.called:
            self.over.callback(in_time)


class SecondSignal:
    """
    The handler of SIGTERM and SIGINT while the node stops: Twisted would only say that it stops already.
    """

    def __init__(self, hurry: Callable[[], object], reactor: Any) -> None:
        self._hurry = hurry
        self._reactor = reactor

    def install(self) -> None:
        """
        Take the place of Twisted's handler.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)

    def _receive(self, number: int, frame: object) -> None:
        self._reactor.callFromThread(self._hurry)
