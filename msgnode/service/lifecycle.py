"""
The root service of the node: its services start in order and stop in reverse order; if one cannot start, one
line says why.
"""

import os
import sys
from collections.abc import Generator, Iterator
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

    Each may take half of what remains of `drain_seconds`, so that clients that do not
    react leave time to write their messages to disk.
    """

    def __init__(self, config: Config, clock: IReactorTime) -> None:
        super().__init__()
        self._config = config
        self._clock = clock

    def privilegedStartService(self) -> None:
        with exit_on_config_error():
            super().privilegedStartService()

    def startService(self) -> None:
        with exit_on_config_error():
            super().startService()

    def stopService(self) -> Deferred[None]:
        Service.stopService(self)  # MultiService would stop all services at once
        return self._stop_one_by_one()

    @inlineCallbacks
    def _stop_one_by_one(self) -> Generator[Deferred[Any], Any, None]:
        deadline = self._clock.seconds() + self._config.drain_seconds
        for service in reversed(list(self)):
            what = type(service).__name__
            stopped = maybeDeferred(service.stopService)
            stopped.addErrback(partial(log.failure, "{what} failed while it stopped", what=what))
            in_time = yield _at_most((deadline - self._clock.seconds()) / 2, stopped, self._clock)
            if not in_time:
                log.warn("{what} did not stop in time; the node no longer waits for it", what=what)


def _at_most(seconds: float, stopped: Deferred[Any], clock: IReactorTime) -> Deferred[bool]:
    """
    Fires when `stopped` does, with True, or after so many seconds, with False.
    """
    over: Deferred[bool] = Deferred()
    late = clock.callLater(seconds, over.callback, False)

    def done(result: Any) -> None:
        if late.active():
            late.cancel()
            over.callback(True)

    stopped.addCallback(done)
    return over
