"""
Datagrams that wait for a link: ten lanes by priority, with ageing, in memory only.
"""

from collections import deque

import msgspec

from msgnode.links.wire.datagram import PRIORITIES, Datagram

MAX_LANE_DATAGRAMS = 256
MAX_LINK_BYTES = 1024 * 1024
MAX_BYTES = 64 * 1024 * 1024  # of all links
OWN_PART = 2  # this node's own datagrams take at most half of a lane, so that they leave room for others
MAX_OVERTAKEN = 9
OVERHEAD_BYTES = 500


class Budget(msgspec.Struct):
    """
    The bytes that wait for all links together.
    """

    bytes: int = 0


class Waiting(msgspec.Struct, gc=False):
    """
    A datagram that waits. `since` is when it came, `number` its place in the order of arrival.
    """

    datagram: Datagram
    since: float
    number: int


class Holding:
    """
    The datagrams that wait for one link.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._lanes: list[deque[Waiting]] = [deque() for _ in range(PRIORITIES)]
        self._number = 0
        self._overtaken = 0  # datagrams in a row that overtook an older one
        self.bytes = 0
        self.held = 0

    def __len__(self) -> int:
        return self.held

    def by_priority(self) -> list[int]:
        return [len(lane) for lane in self._lanes]

    def has_room_for_own(self, priority: int) -> bool:
        """
        May this node add a datagram of its own?
        """
        return (
            len(self._lanes[priority]) < MAX_LANE_DATAGRAMS // OWN_PART
            and self.bytes < MAX_LINK_BYTES // OWN_PART
            and self._budget.bytes < MAX_BYTES
        )

    def put(self, datagram: Datagram, now: float) -> list[Datagram]:
        """
        Hold a datagram. Returns those that are dropped: newer ones of lower priority, or itself.
        """
        size = size_of(datagram)
        if len(self._lanes[datagram.priority]) >= MAX_LANE_DATAGRAMS:
            return [datagram]
        dropped: list[Datagram] = []
        while self.bytes + size > MAX_LINK_BYTES or self._budget.bytes + size > MAX_BYTES:
            lowest = next((lane for lane in self._lanes[: datagram.priority] if lane), None)
            if lowest is None:
                return [*dropped, datagram]
            dropped.append(self._taken(lowest.pop()).datagram)
        self._number += 1
        self._lanes[datagram.priority].append(Waiting(datagram, now, self._number))
        self.held += 1
        self._add(size)
        return dropped

    def pop(self) -> Waiting | None:
        """
        Take the next datagram: the oldest of the highest priority, or the oldest of all after nine overtook
        it.
        """
        first: deque[Waiting] | None = None
        oldest: deque[Waiting] | None = None
        for lane in reversed(self._lanes):
            if lane:
                first = first or lane
                if oldest is None or lane[0].number < oldest[0].number:
                    oldest = lane
        if first is None or oldest is None:
            return None
        if first is oldest or self._overtaken >= MAX_OVERTAKEN:
            self._overtaken = 0
            return self._taken(oldest.popleft())
        self._overtaken += 1
        return self._taken(first.popleft())

    def put_back(self, waiting: Waiting) -> None:
        """
        The link did not take the datagram that `pop` returned.
        """
        self._lanes[waiting.datagram.priority].appendleft(waiting)
        self.held += 1
        self._add(size_of(waiting.datagram))

    def clear(self) -> int:
        """
        Drop everything. Returns how many datagrams there were.
        """
        held = self.held
        for lane in self._lanes:
            lane.clear()
        self._add(-self.bytes)
        self.held = 0
        return held

    def _taken(self, waiting: Waiting) -> Waiting:
        self.held -= 1
        self._add(-size_of(waiting.datagram))
        return waiting

    def _add(self, size: int) -> None:
        self.bytes += size
        self._budget.bytes += size


def size_of(datagram: Datagram) -> int:
    """
    The bytes of memory that a datagram takes, about.
    """
    return len(datagram.payload) + len(datagram.header) + OVERHEAD_BYTES
