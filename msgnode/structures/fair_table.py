"""
A bounded table that is shared fairly: when it is full, the longest queue drops its oldest.

So whoever puts in very much pushes out what is its own.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Lengths:
    """
    A count for each owner, and who has most; all of it in constant time.
    """

    def __init__(self) -> None:
        self._of: dict[Hashable, int] = {}
        self._having: dict[int, dict[Hashable, None]] = {}  # who has so many, in the order of arrival there
        self._most = 0

    def __bool__(self) -> bool:
        return bool(self._of)

    @property
    def longest(self) -> Hashable:
        return next(iter(self._having[self._most]))

    def change(self, who: Hashable, step: int) -> None:
        """
        One more, or with -1 one less.
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
    Values by their keys, at most so many.

    Each is somebody's, and that one's is a group's: of the group that has most
    the member that has most loses its oldest.
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

    @property
    def oldest(self) -> tuple[K, V]:
        key, (value, _, _) = next(iter(self._values.items()))
        return key, value

    def put(self, key: K, value: V, group: Hashable, member: Hashable) -> None:
        """
        As the newest; if that is one too many, another goes.
        """
        if key in self._values:
            self.remove(key)
        self._values[key] = value, group, member
        self._groups.change(group, 1)
        self._members.setdefault(group, Lengths()).change(member, 1)
        self._queues.setdefault((group, member), OrderedDict())[key] = None
        if len(self._values) > self._most:
            self._drop()

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

    def _drop(self) -> None:
        group = self._groups.longest
        member = self._members[group].longest
        self.remove(next(iter(self._queues[group, member])))
