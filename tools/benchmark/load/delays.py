"""
How long messages are under way, from the write of the sender to the read of the receiver.
"""

import time
from collections import deque


class Delays:
    """
    The delays of all messages that have arrived, by reads: what one read brought has one time of arrival.
    """

    def __init__(self) -> None:
        self._found: list[tuple[float, int]] = []

    def add(self, seconds: float, count: int) -> None:
        self._found.append((seconds, count))

    def clear(self) -> None:
        """
        Forget what arrived so far: the measurement begins.
        """
        self._found.clear()

    def percentiles(self) -> dict[str, float]:
        """
        `p50` and `p99`, in milliseconds; nothing where nothing has arrived.
        """
        ordered = sorted(self._found)
        return {
            name: value * 1000
            for name, part in (("p50", 0.5), ("p99", 0.99))
            if (value := _reached(ordered, part)) is not None
        }


class InFlight:
    """
    The messages of one sender that are under way; they arrive in their order.
    """

    def __init__(self, delays: Delays) -> None:
        self._delays = delays
        self._sent: deque[tuple[float, int]] = deque()

    def sent(self, count: int) -> None:
        self._sent.append((time.perf_counter(), count))

    def arrived(self, count: int) -> None:
        now = time.perf_counter()
        while count and self._sent:
            since, number = self._sent.popleft()
            if number > count:
                self._sent.appendleft((since, number - count))
                number = count
            count -= number
            self._delays.add(now - since, number)


def _reached(ordered: list[tuple[float, int]], part: float) -> float | None:
    """
    What this part of the messages did not exceed.
    """
    left = part * sum(count for _, count in ordered)
    for seconds, count in ordered:
        left -= count
        if left <= 0:
            return seconds
    return None
