"""
Joining: a node takes no client until it knows what the other members hold.

Else the first messages of its clients after a restart would be for addresses that it does not know yet.
"""

from collections.abc import Callable, Collection

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

LOOK_SECONDS = 0.05
GREET_SECONDS = 0.5  # in which members that this node does not expect have a link
ALONE_SECONDS = 5.0  # without NATS
MOST_SECONDS = 10.0

log = Logger()


class Joining:
    """
    The wait for the other members at the start. `missing` gives those that are expected and not reached;
    `is_connected` and `is_named` say whether there is NATS, and whether this node has its name. `compare`
    fires when all members have said what they hold; `joined` is called then, and at the latest after
    MOST_SECONDS.
    """

    def __init__(
        self,
        is_connected: Callable[[], bool],
        is_named: Callable[[], bool],
        missing: Callable[[], Collection[str]],
        compare: Callable[[], Deferred[None]],
        joined: Callable[[], None],
        clock: IReactorTime,
    ) -> None:
        self._is_connected = is_connected
        self._is_named = is_named
        self._missing = missing
        self._compare = compare
        self._joined = joined
        self._clock = clock
        self._began = 0.0
        self._named_at: float | None = None
        self._timer: IDelayedCall | None = None

    def start(self) -> None:
        self._began = self._clock.seconds()
        self._look()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        waited = now - self._began
        if self._named_at is None and self._is_named():
            self._named_at = now
        if waited >= MOST_SECONDS or (waited >= ALONE_SECONDS and not self._is_connected()):
            names = ", ".join(sorted(self._missing()))
            log.warn("clients are served without other members{names}", names=names and f": {names}")
            self._joined()
        elif self._named_at is not None and now >= self._named_at + GREET_SECONDS and not self._missing():
            self._compare().addBoth(lambda result: self._joined())
        else:
            self._timer = self._clock.callLater(LOOK_SECONDS, self._look)
