"""
A queue of keys by the time at which each is due.
"""

import heapq
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

TURN = 256  # that are due in one turn of the event loop
MIN_HEAP = 1000


class Deadlines(Generic[K]):
    """
    A queue of keys by time. A key whose value is gone stays until its time, within a bound: `is_alive` tells.
    """

    def __init__(self, is_alive: Callable[[K], bool]) -> None:
        self._is_alive = is_alive
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0

    def add(self, key: K, when: float, alive: int) -> None:
        """
        Add a key; `alive` is how many there are.
        """
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, key))
        if len(self._heap) > 2 * alive + MIN_HEAP:
            self._heap = [each for each in self._heap if self._is_alive(each[2])]
            heapq.heapify(self._heap)

    def take(self, now: float) -> Iterator[K]:
        """
        The keys that are due, at most TURN, the earliest first.
        """
        for _ in range(TURN):
            if not self._heap or self._heap[0][0] > now:
                return
            yield heapq.heappop(self._heap)[2]
