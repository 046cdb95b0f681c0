"""
A queue of keys by the time at which each is due.
"""

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

TURN = 256  # that are due in one turn of the event loop
MIN_HEAP = 1000


class Deadlines(Generic[K]):
    """
    A queue of keys by time. Each key has one time, the last that was set.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, K]] = []
        self._newest: dict[K, int] = {}  # by key: the number of its entry in the heap that counts
        self._count = 0

    def __len__(self) -> int:
        """
        The number of entries that are kept, which is bounded by that of the keys.
        """
        return len(self._heap)

    def set(self, key: K, when: float) -> None:
        """
        Add a key, or change its time.
        """
        self._count += 1
        self._newest[key] = self._count
        heapq.heappush(self._heap, (when, self._count, key))
        if len(self._heap) > 2 * len(self._newest) + MIN_HEAP:
            self._heap = [each for each in self._heap if self._newest.get(each[2]) == each[1]]
            heapq.heapify(self._heap)

    def discard(self, key: K) -> None:
        """
        Remove a key, if it is there.
        """
        self._newest.pop(key, None)

    def is_due(self, now: float) -> bool:
        """
        Is there more for `take`?
        """
        return bool(self._heap) and self._heap[0][0] <= now

    def take(self, now: float) -> Iterator[K]:
        """
        Remove the keys that are due, at most TURN, the earliest first.
        """
        for _ in range(TURN):
            if not self.is_due(now):
                return
            _, number, key = heapq.heappop(self._heap)
            if self._newest.get(key) == number:
                del self._newest[key]
                yield key
