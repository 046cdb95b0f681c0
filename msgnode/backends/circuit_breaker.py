"""
A breaker: a back end that does not answer is left alone for a while.

After some failures in a row nobody asks it any more.  Then one is let
through now and again, and when that one is answered, all are.
"""

from collections.abc import Callable

FAILURES = 5  # in a row, until it opens
PAUSE = 5.0  # seconds between two that are let through meanwhile


class CircuitBreaker:
    """
    A circuit breaker: it opens after FAILURES in a row, and lets one call through every PAUSE seconds.

    `now` gives seconds.
    """

    def __init__(self, now: Callable[[], float], failures: int = FAILURES, pause: float = PAUSE) -> None:
        self.open = False
        self._now = now
        self._most = failures
        self._pause = pause
        self._failures = 0
        self._next = 0.0

    def admits(self) -> bool:
        """
        May one go out now?  While it is open each that may is the trial.
        """
        if not self.open:
            return True
        if self._now() < self._next:
            return False
        self._next = self._now() + self._pause
        return True

    def succeeded(self) -> bool:
        """
        The back end answered.  Is that news?
        """
        news, self.open = self.open, False
        self._failures = 0
        return news

    def failed(self) -> bool:
        """
        The back end did not answer.  Is it given up just now?
        """
        self._failures += 1
        if self.open or self._failures < self._most:
            return False
        self.open = True
        self._next = self._now() + self._pause
        return True
