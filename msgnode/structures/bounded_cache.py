"""
A bounded least-recently-used (LRU) cache.
"""

from collections import OrderedDict
from collections.abc import Hashable, ItemsView
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """
    An LRU cache: a mapping of at most `most` entries. When it is full, `put` evicts the least recently used.
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
        The value for `key`, or None. The entry becomes the most recently used.
        """
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> None:
        """
        Store `value` under `key`. If the cache is full, the least recently used entry is evicted.
        """
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def pop(self, key: K) -> V | None:
        """
        Remove the entry for `key`. Returns its value, or None.
        """
        return self._entries.pop(key, None)

    def clear(self) -> None:
        self._entries.clear()
