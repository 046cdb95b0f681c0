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
    A fair, bounded table of at most `most` values by key.

    Each value belongs to a member, and each member to a group. When the table is full, the largest member of
    the largest group loses its oldest value.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[K, tuple[V, Hashable, Hashable]] = OrderedDict()  # oldest first
        self._groups = Lengths()
        self._members: dict[Hashable, Lengths] = {}
        self._queues: dict[tuple[Hashable, Hashable], OrderedDict[K, None]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        found = self._values.get(key)
        return None if found is None else found[0]

    def items(self) -> Iterator[tuple[K, V]]:
        return ((key, value) for key, (value, _, _) in self._values.items())

    @property
    def oldest(self) -> tuple[K, V]:
        key, (value, _, _) = next(iter(self._values.items()))
        return key, value

    def put(self, key: K, value: V, group: Hashable, member: Hashable) -> tuple[K, V] | None:
        """
        Add a value as the newest. If the table is full, it evicts another value, and returns that.
        """
        if key in self._values:
            self.remove(key)
        self._values[key] = value, group, member
        self._groups.change(group, 1)
        self._members.setdefault(group, Lengths()).change(member, 1)
        self._queues.setdefault((group, member), OrderedDict())[key] = None
        return self._drop() if len(self._values) > self._most else None

    def remove(self, key: K) -> None:
        _, group, member = self._values.pop(key)
        self._groups.change(group, -1)
        members, queue = self._members[group], self._queues[group, member]
        members.change(member, -1)
        if not members:
            del self._members[group]
        del queue[key]
        if not queue:
            del self._queues[group, member]

    def _drop(self) -> tuple[K, V]:
        group = self._groups.longest
        member = self._members[group].longest
        key = next(iter(self._queues[group, member]))
        value, _, _ = self._values[key]
        self.remove(key)
        return key, value
