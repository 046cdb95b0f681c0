"""
Timeouts of many keys, all after the same time.
"""

from collections.abc import Callable, Hashable
from itertools import islice
from typing import Generic, TypeVar

from twisted.internet.interfaces import IDelayedCall, IReactorTime

K = TypeVar("K", bound=Hashable)

TURN = 32  # that expire in one turn of the event loop


class Timeouts(Generic[K]):
    """
    The timeouts of keys. `expired` is called with each key that was not cancelled in `seconds`, for a bounded
    number in one turn of the event loop: what the node has to read by then is read between two turns, and may
    cancel others.
    """

    def __init__(self, clock: IReactorTime, seconds: float, expired: Callable[[K], object]) -> None:
        self._clock = clock
        self._seconds = seconds
        self._expired = expired
        self._due: dict[K, float] = {}  # the earliest first
        self._timer: IDelayedCall | None = None

    def start(self, key: K) -> None:
        """
        Start the timeout of a key, again if it runs.
        """
        self.cancel(key)
        self._due[key] = self._clock.seconds() + self._seconds
        if self._timer is None:
            self._timer = self._clock.callLater(self._seconds, self._fired)

    def cancel(self, key: K) -> None:
        """
        End the timeout of a key, if it runs.
        """
        if self._due.pop(key, None) is not None and not self._due:
            self.stop()

    def stop(self) -> None:
        """
        End all timeouts.
        """
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fired(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        for key in [key for key, due in islice(self._due.items(), TURN) if due <= now]:
            if self._due.pop(key, None) is not None:
                self._expired(key)
        if self._timer is not None:
            self._timer.cancel()  # of a key that was started meanwhile, which is not the first
            self._timer = None
        if self._due:
            left = next(iter(self._due.values())) - now
            self._timer = self._clock.callLater(max(0.0, left), self._fired)
