"""
The bounds of what waits to be sent to one node, its memory, and its expiry.
"""

import heapq
from collections import defaultdict
from functools import lru_cache
from hashlib import blake2b

from msgnode.links.stream.common import ENTRY_BYTES, StreamParts
from msgnode.links.stream.sending.entry import Entry
from msgnode.links.stream.streams import IfReplaced, NoRoom

_LEAVING: tuple[IfReplaced, ...] = ("wait", "move", "end")
_LEAVING_BITS, _COUNT_BITS = 2, 6
_SHARE_BITS = _LEAVING_BITS + _COUNT_BITS
_COUNT = (1 << _COUNT_BITS) - 1
SENDER_SHARE = 4  # one local sender may take a quarter of a destination's queue
MIN_HEAP = 1000


def mark_of(sender: str, if_replaced: IfReplaced, count: int = 1) -> int:
    """
    The mark that an entry has on disk: a hash of its sender (0: the node itself), how many messages it has,
    and its fate if the node is replaced.
    """
    return _share_of(sender) << _SHARE_BITS | count - 1 << _LEAVING_BITS | _LEAVING.index(if_replaced)


def count_of(mark: int) -> int:
    """
    The number of messages of an entry with that mark.
    """
    return (mark >> _LEAVING_BITS & _COUNT) + 1


@lru_cache(maxsize=1024)
def _share_of(sender: str) -> int:
    if not sender:
        return 0
    name = sender.encode(errors="surrogatepass")
    return int.from_bytes(blake2b(name, digest_size=8).digest()) >> _SHARE_BITS


def _sender(mark: int) -> int:
    return mark >> _SHARE_BITS


def waits(entry: Entry) -> bool:
    """
    Does it wait for its node, even if that is replaced?
    """
    return not entry.mark & (1 << _LEAVING_BITS) - 1


def moves(entry: Entry) -> bool:
    return _LEAVING[entry.mark & (1 << _LEAVING_BITS) - 1] == "move"


class SendQueueBounds:
    """
    The bounds of one destination's queue: of all senders, and of each.
    """

    def __init__(self, parts: StreamParts, destination: str) -> None:
        self.messages = self.bytes = 0
        self._parts = parts
        self._destination = destination
        self._senders: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])

    def check(self, size: int, mark: int) -> None:
        """
        Raise NoRoom if there is no room for an entry of that size and mark.
        """
        limits, more = self._parts.limits, count_of(mark)
        if self.messages + more > limits.queue_messages or self.bytes + size > limits.queue_bytes:
            self._refuse(f"{self.messages} messages are waiting for {self._destination}: its queue is full")
        if self._parts.undelivered_bytes + size + ENTRY_BYTES > limits.spool_bytes:
            self._refuse("there is no room for more messages to other nodes")
        if (sender := _sender(mark)) and sender in self._senders:
            messages, size_of_sender = self._senders[sender]
            if (
                messages + more > max(1, limits.queue_messages // SENDER_SHARE)
                or size_of_sender + size > limits.queue_bytes // SENDER_SHARE
            ):
                self._refuse(f"{messages} messages of this sender are waiting for {self._destination}")

    def _refuse(self, text: str) -> None:
        self._parts.counts["overflow"] += 1
        raise NoRoom(text)

    def add(self, entry: Entry) -> None:
        count = count_of(entry.mark)
        self.messages += count
        self.bytes += entry.size
        self._parts.undelivered_bytes += entry.size + ENTRY_BYTES
        if entry.data is not None:
            self._parts.memory_bytes += entry.size
        if sender := _sender(entry.mark):
            share = self._senders[sender]
            share[0] += count
            share[1] += entry.size

    def remove(self, entry: Entry) -> None:
        count = count_of(entry.mark)
        self.messages -= count
        self.bytes -= entry.size
        self._parts.undelivered_bytes -= entry.size + ENTRY_BYTES
        if entry.data is not None:
            self._parts.memory_bytes -= entry.size
        if entry.place:
            self._parts.store.release(entry.size)
            entry.place = 0
        if sender := _sender(entry.mark):
            share = self._senders[sender]
            share[0] -= count
            share[1] -= entry.size
            if not share[0]:
                del self._senders[sender]

    def page_out(self, entry: Entry) -> None:
        """
        Drop the bytes of an entry from memory, if they are on disk and memory is short.
        """
        parts = self._parts
        if entry.data is None or entry.number or parts.memory_bytes <= parts.limits.memory_bytes // 2:
            return
        if entry.place and parts.store.holds(entry.place, entry.size):
            parts.memory_bytes -= entry.size
            entry.data = None

    def page_in(self, entry: Entry) -> bytes:
        """
        The bytes of an entry; OSError if they cannot be read back.
        """
        if entry.data is None:
            self.hold(entry, self._parts.store.read(entry.place, entry.size))
        assert entry.data is not None
        return entry.data

    def hold(self, entry: Entry, data: bytes) -> None:
        """
        Keep the bytes of an entry in memory.
        """
        if entry.data is None:
            entry.data = data
            self._parts.memory_bytes += entry.size


class Expiry:
    """
    The entries that have not left, by the time when they become stale.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, Entry]] = []
        self._count = 0

    def add(self, lane: int, entry: Entry, waiting: int) -> None:
        """
        Add an entry; `waiting` is how many wait in all.
        """
        self._count += 1
        heapq.heappush(self._heap, (entry.until, self._count, lane, entry))
        if len(self._heap) > 2 * waiting + MIN_HEAP:
            self._heap = [each for each in self._heap if _is_waiting(each[3])]
            heapq.heapify(self._heap)

    def take_stale(self, now: float, most: int) -> list[tuple[int, Entry]]:
        """
        Remove at most so many entries that are stale and still wait, each with its lane.
        """
        found: list[tuple[int, Entry]] = []
        heap = self._heap
        while heap and len(found) < most and (heap[0][0] <= now or not _is_waiting(heap[0][3])):
            _, _, lane, entry = heapq.heappop(heap)
            if _is_waiting(entry):
                found.append((lane, entry))
        return found

    @property
    def next(self) -> float | None:
        """
        The time when the next one becomes stale.
        """
        return self._heap[0][0] if self._heap else None


def _is_waiting(entry: Entry) -> bool:
    return not entry.sends and not entry.settled
