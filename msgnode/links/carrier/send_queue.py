"""
The send queue of a link: ten priority lanes with ageing, and the entries of the link itself before them.

Nothing can overtake an entry that the transport has, so entries wait here. Within a lane the
order is kept. After nine entries overtook an older one, the oldest of all leaves.
"""

from collections import deque

from msgnode.links.wire.datagram import PRIORITIES

MAX_OVERTAKEN = 9
OVERHEAD_BYTES = 100  # of memory for an entry in addition to its bytes


class SendQueue:
    """
    A bounded queue of encoded entries by priority.

    `put_first` is for entries of the link itself and of the link state: before all lanes, in their own order.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._first: deque[bytes] = deque()
        self._lanes: list[deque[tuple[int, bytes]]] = [deque() for _ in range(PRIORITIES)]
        self._next = 0  # the number of the next arrival
        self._overtaken = 0  # entries that left in a row before an older one
        self.first_bytes = 0

    def __len__(self) -> int:
        return len(self._first) + sum(map(len, self._lanes))

    def lengths(self) -> list[int]:
        """
        The number of entries in each lane, the lowest priority first.
        """
        return [len(lane) for lane in self._lanes]

    def has_room(self, size: int) -> bool:
        return self.bytes + size + OVERHEAD_BYTES <= self.max_bytes

    def put(self, priority: int, entry: bytes) -> bool:
        """
        Queue an entry; False if it does not fit.
        """
        if not self.has_room(len(entry)):
            return False
        self.bytes += len(entry) + OVERHEAD_BYTES
        self._lanes[priority].append((self._next, entry))
        self._next += 1
        return True

    def put_first(self, entry: bytes) -> None:
        """
        Queue an entry before all lanes. The caller bounds `first_bytes`.
        """
        self.first_bytes += len(entry) + OVERHEAD_BYTES
        self._first.append(entry)

    def pop(self) -> bytes | None:
        """
        Remove the next entry to send.
        """
        if self._first:
            entry = self._first.popleft()
            self.first_bytes -= len(entry) + OVERHEAD_BYTES
            return entry
        lane = self._next_lane()
        if lane is None:
            return None
        _, entry = lane.popleft()
        self.bytes -= len(entry) + OVERHEAD_BYTES
        return entry

    def _next_lane(self) -> deque[tuple[int, bytes]] | None:
        urgent = oldest = None
        for lane in reversed(self._lanes):
            if not lane:
                continue
            if urgent is None or oldest is None:
                urgent = oldest = lane
            elif lane[0][0] < oldest[0][0]:
                oldest = lane
        if urgent is oldest:
            self._overtaken = 0
        elif self._overtaken == MAX_OVERTAKEN:
            self._overtaken = 0
            return oldest
        else:
            self._overtaken += 1
        return urgent

    def take(self, max_bytes: int, max_entries: int) -> list[bytes]:
        """
        Remove the next entries that fit in one message; at least one, if there is one.
        """
        taken: list[bytes] = []
        size = 0
        while len(taken) < max_entries:
            head = self._peek_size()
            if head is None or (taken and size + head > max_bytes):
                break
            entry = self.pop()
            assert entry is not None
            taken.append(entry)
            size += len(entry)
        return taken

    def _peek_size(self) -> int | None:
        """
        The size of the largest entry that may be next: of the first, or of the heads of the lanes.
        """
        if self._first:
            return len(self._first[0])
        return max((len(lane[0][1]) for lane in self._lanes if lane), default=None)

    def clear_first(self) -> None:
        """
        Drop the entries of a connection that has ended.
        """
        self._first.clear()
        self.first_bytes = 0
