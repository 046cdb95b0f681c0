"""
How long to wait before the next attempt to connect.
"""

from collections.abc import Callable

FIRST = 0.5  # seconds
LAST = 30.0
STEADY = 5.0  # seconds a session must have been open to count as a success


class Backoff:
    """
    Twice as long after each failure, less a random half; never shorter than the node asked for.
    """

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._failures = 0
        self._asked = 0.0

    def ended(self, seconds: float) -> None:
        """
        A session was open for so long.
        """
        if seconds >= STEADY:
            self._failures = 0

    def ask(self, seconds: float) -> None:
        """
        The node said `retry_after`.
        """
        self._asked = seconds

    def next(self) -> float:
        """
        Seconds to wait now.
        """
        longest = min(FIRST * 2.0 ** min(self._failures, 20), LAST)
        self._failures += 1
        asked, self._asked = self._asked, 0.0
        return max(asked, longest * (1 - self._chance() / 2))
