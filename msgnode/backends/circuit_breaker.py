"""
A circuit breaker: a back end that fails is not called for a while.

After several failures in a row it opens, and calls fail at once. Every few seconds one trial call is let
through; when one succeeds, the breaker closes.
"""

from collections.abc import Callable

FAILURES = 5  # in a row, until the breaker opens
TRIAL_SECONDS = 5.0  # seconds between two trial calls while it is open


class CircuitBreaker:
    """
    A circuit breaker: it opens after FAILURES in a row, and lets one call through every TRIAL_SECONDS.

    `now` returns the time in seconds; `since` is when it last opened or closed.
    """

    def __init__(
        self, now: Callable[[], float], failures: int = FAILURES, pause: float = TRIAL_SECONDS
    ) -> None:
        self.open = False
        self.since = now()
        self._now = now
        self._most = failures
        self._pause = pause
        self._failures = 0
        self._next = 0.0

    def admits(self) -> bool:
        """
        May a call be made now? While the breaker is open, every call that may is a trial call.
        """
        if not self.open:
            return True
        if self._now() < self._next:
            return False
        self._next = self._now() + self._pause
        return True

    def succeeded(self) -> bool:
        """
        Note a success. Returns whether this closed the breaker.
        """
        news, self.open = self.open, False
        if news:
            self.since = self._now()
        self._failures = 0
        return news

    def failed(self) -> bool:
        """
        Note a failure. Returns whether this opened the breaker.
        """
        self._failures += 1
        if self.open or self._failures < self._most:
            return False
        self.open = True
        self.since = self._now()
        self._next = self.since + self._pause
        return True
