"""
A cache with a bound: the entry that was used longest ago gives way.
"""

from collections import OrderedDict
from collections.abc import Hashable, ItemsView
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """
    A mapping of at most `most` entries.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def items(self) -> ItemsView[K, V]:
        return self._entries.items()

    def get(self, key: K) -> V | None:
        """
        What is there, which is now the entry used last; None if nothing is.
        """
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> None:
        """
        Remember it, in the place of the entry used longest ago if there is no room.
        """
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def pop(self, key: K) -> V | None:
        """
        Forget it; what was there, or None.
        """
        return self._entries.pop(key, None)

    def clear(self) -> None:
        self._entries.clear()
