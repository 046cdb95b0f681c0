"""
A bounded table that is shared fairly between its owners: when it is full, the longest queue drops its oldest
entry. An owner that adds very many entries therefore evicts its own.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Lengths:
    """
    Counts one number for each owner, and knows the owner with the largest. All operations take constant time.
    """

    def __init__(self) -> None:
        self._of: dict[Hashable, int] = {}
        self._having: dict[int, dict[Hashable, None]] = {}  # owners by their count, in order of arrival there
        self._most = 0

    def __bool__(self) -> bool:
        return bool(self._of)

    @property
    def longest(self) -> Hashable:
        return next(iter(self._having[self._most]))

    def change(self, who: Hashable, step: int) -> None:
        """
        Add `step`, which is 1 or -1, to the count of `who`.
        """
        before = self._of.pop(who, 0)
        after = before + step
        if before:
            del self._having[before][who]
            if not self._having[before]:
                del self._having[before]
        if after:
            self._of[who] = after
            self._having.setdefault(after, {})[who] = None
        if after > self._most or self._most not in self._having:
            self._most = after


class FairTable(Generic[K, V]):
    """
    A fair, bounded table of values by key, which have at most `most` units in all.

    Each value belongs to a member, and each member to a group. When the table is full, the largest member of
    the largest group loses its oldest values.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._units = 0
        self._values: OrderedDict[K, tuple[V, Hashable, Hashable, int]] = OrderedDict()  # oldest first
        self._groups = Lengths()
        self._members: dict[Hashable, Lengths] = {}
        self._queues: dict[tuple[Hashable, Hashable], OrderedDict[K, None]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        found = self._values.get(key)
        return None if found is None else found[0]

    def items(self) -> Iterator[tuple[K, V]]:
        return ((key, value[0]) for key, value in self._values.items())

    def of(self, group: Hashable, member: Hashable) -> list[tuple[K, V]]:
        """
        The values of a member with their keys, oldest first.
        """
        return [(key, self._values[key][0]) for key in self._queues.get((group, member), ())]

    def has(self, group: Hashable, member: Hashable) -> bool:
        """
        Does the member have any value?
        """
        return (group, member) in self._queues

    @property
    def oldest(self) -> tuple[K, V]:
        key, value = next(iter(self._values.items()))
        return key, value[0]

    def put(self, key: K, value: V, group: Hashable, member: Hashable, units: int = 1) -> list[tuple[K, V]]:
        """
        Add a value of so many units, which should be few, as the newest. If the table is full, it evicts
        others, and returns them.
        """
        if key in self._values:
            self.remove(key)
        self._values[key] = value, group, member, units
        self._change(group, member, units)
        self._queues.setdefault((group, member), OrderedDict())[key] = None
        evicted = []
        while self._units > self._most:
            evicted.append(self._drop())
        return evicted

    def pop(self, key: K) -> V | None:
        """
        Remove the value for `key`. Returns it, or None.
        """
        value = self.get(key)
        if value is not None:
            self.remove(key)
        return value

    def remove(self, key: K) -> None:
        _, group, member, units = self._values.pop(key)
        self._change(group, member, -units)
        members, queue = self._members[group], self._queues[group, member]
        if not members:
            del self._members[group]
        del queue[key]
        if not queue:
            del self._queues[group, member]

    def _change(self, group: Hashable, member: Hashable, units: int) -> None:
        self._units += units
        members = self._members.setdefault(group, Lengths())
        step = 1 if units > 0 else -1
        for _ in range(abs(units)):
            self._groups.change(group, step)
            members.change(member, step)

    def _drop(self) -> tuple[K, V]:
        group = self._groups.longest
        member = self._members[group].longest
        key = next(iter(self._queues[group, member]))
        value = self._values[key][0]
        self.remove(key)
        return key, value
