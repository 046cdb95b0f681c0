"""
The rate at which the lines of a stub are handled.
"""

from typing import Any

from msgnode.structures.token_bucket import refilled


class OutputRate:
    """
    Two token buckets, of lines and of bytes, each for one second. A line may overdraw them.
    """

    def __init__(self, clock: Any, lines: int, size: int) -> None:
        self._seconds = clock.seconds
        self._rates = (float(lines), float(size))
        self._left = list(self._rates)
        self._refilled = clock.seconds()

    def take(self, size: int) -> None:
        self._left[0] -= 1
        self._left[1] -= size

    def wait(self) -> float:
        """
        The seconds until the next line may be handled; 0 if that is now.
        """
        if min(self._left) >= 0:
            return 0.0
        now = self._seconds()
        passed, self._refilled = now - self._refilled, now
        self._left = [
            refilled(left, passed, rate, rate) for left, rate in zip(self._left, self._rates, strict=True)
        ]
        return max(0.0, *(-left / rate for left, rate in zip(self._left, self._rates, strict=True)))
