"""
The node as twistd sees it: started in order, stopped the other way round, or one line that says why not.
"""

import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred, inlineCallbacks, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from msgnode.config.schema import Config, ConfigError

log = Logger()


@contextmanager
def exit_on_config_error(where: str = "") -> Iterator[None]:
    """
    If the configuration cannot be used, do not start: say so in one line, which begins with `where`.
    """
    try:
        yield
    except ConfigError as why:
        print(f"msgnode: {where}{': ' if where else ''}{why}", file=sys.stderr)
        sys.exit(2)


class NodeService(MultiService):
    """
    Everything, started in order, or one line that says why not; what started last stops first.

    Each may take half of what is left of `drain_seconds`, so that clients who do not
    react leave time to write down what is theirs.
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
        Service.stopService(self)  # MultiService's would stop all at once
        return self._stop_one_by_one()

    @inlineCallbacks
    def _stop_one_by_one(self) -> Generator[Deferred[Any], Any, None]:
        deadline = self._clock.seconds() + self._config.drain_seconds
        for service in reversed(list(self)):
            what = type(service).__name__
            stopped = maybeDeferred(service.stopService)
            stopped.addErrback(partial(log.failure, "stopping {what}", what=what))
            in_time = yield _at_most((deadline - self._clock.seconds()) / 2, stopped, self._clock)
            if not in_time:
                log.warn("{what} did not stop in time and is stopped now", what=what)


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
