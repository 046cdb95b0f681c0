"""
A bounded set of keys that are remembered for a time.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class RecentKeys(Generic[K]):
    """
    A set of the keys of the last `seconds`; when there are more than `most`, the oldest are dropped.
    """

    def __init__(self, seconds: float, most: int, now: Callable[[], float]) -> None:
        self._seconds = seconds
        self._most = most
        self._now = now
        self._added: OrderedDict[K, float] = OrderedDict()  # the oldest first

    def __len__(self) -> int:
        return len(self._added)

    def __contains__(self, key: K) -> bool:
        when = self._added.get(key)
        return when is not None and when > self._now() - self._seconds

    def discard(self, key: K) -> None:
        self._added.pop(key, None)

    def add(self, key: K) -> bool:
        """
        Add a key. False if it was there.
        """
        added, now = self._added, self._now()
        for _ in range(2):  # two for each one that comes: the set shrinks again
            if not added or next(iter(added.values())) > now - self._seconds:
                break
            added.popitem(last=False)
        when = added.get(key)
        if when is not None and when > now - self._seconds:
            return False
        added[key] = now
        if when is not None:
            added.move_to_end(key)
        if len(added) > self._most:
            added.popitem(last=False)
        return True
