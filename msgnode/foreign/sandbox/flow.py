"""
The rates at which the lines of a stub are handled, and what it asks for is done.
"""

from typing import Any

from msgnode.structures.token_bucket import refilled


class Rate:
    """
    Two token buckets, of lines and of bytes, each for one second. A line may overdraw them.
    """

    def __init__(self, clock: Any, lines: int, size: int) -> None:
        self._seconds = clock.seconds
        self._rates = (float(lines), float(size))
        self._left = list(self._rates)
        self._refilled = clock.seconds()

    def take(self, size: int, lines: int = 1) -> None:
        self._left[0] -= lines
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


class Allowance:
    """
    An allowance: so many in a second, and those of a number of seconds at once.
    """

    def __init__(self, clock: Any, at_once_seconds: float, per_second: float) -> None:
        self._seconds = clock.seconds
        self._at_once = self._left = max(1.0, at_once_seconds * per_second)
        self._per_second = per_second
        self._refilled = clock.seconds()

    def take(self) -> bool:
        """
        Takes a token; False if there is none.
        """
        self._refill()
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def wait(self) -> float:
        """
        Takes a token, of later ones if there is none; the seconds until it is there.
        """
        self._refill()
        self._left -= 1
        return max(0.0, -self._left / self._per_second)

    def _refill(self) -> None:
        now = self._seconds()
        self._left = refilled(self._left, now - self._refilled, self._per_second, self._at_once)
        self._refilled = now
