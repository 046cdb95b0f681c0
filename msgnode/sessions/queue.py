"""
What waits for a session that is away, or that reads too slowly.

Bounded in messages and in bytes.  What is urgent leaves first; within a
priority the order is kept.  A message goes stale when its sender has given up
(docs/protocol.md, "Queueing"): a request after 15 s, a response after 60 s, anything at the end
of the `ttl` it names.  The rest keeps its worth and waits as long as the
session lives.  When the bound is reached the oldest of the least urgent goes,
because what is newest is worth most to an observer.
"""

from collections import deque
from collections.abc import Callable, Iterator

from msgspec import Struct

from msgnode.sessions.limits.spool_share import Share

REQUESTS = frozenset({"create", "read", "subscribe", "unsubscribe", "execute"})
REQUEST_WAITS = 15.0  # seconds; the shortest time-out of a runtime's bus
RESPONSE_WAITS = 60.0  # seconds
FOREVER = float("inf")
OVERHEAD = 200  # bytes of memory for a message beside its own

# So many leave past an older one that is less urgent; then the oldest of all leaves.
PASSED_OVER = 9


def default_ttl(type: str, to: str) -> float:
    """
    How many seconds a message of this type is worth waiting for.
    """
    kind = type.lower()
    if kind in REQUESTS:
        return FOREVER if "/children/" in to else REQUEST_WAITS
    return RESPONSE_WAITS if kind == "response" else FOREVER


class Payload(bytes):
    """
    The bytes of a message that very many are owed; memory is counted once for all `holders`.
    """

    holders = 0


class QueuedMessage(Struct, gc=False):
    """
    One message that the node still owes a session.

    `key` rises within the session, in the order of arrival.  `data` is None
    once it lies on disk only, at `place` (0: nowhere).  `until` is when it
    goes stale, by the node's clock.  `asker` is the sid of the session that
    asked what becomes of it, or 0.  `share` is charged for it while it is owed.
    """

    key: int
    data: bytes | None
    size: int
    until: float = FOREVER
    priority: int = 5
    asker: int = 0
    place: int = 0
    share: Share | None = None


class MessageQueue:
    """
    A bounded queue of messages by priority, oldest first.
    """

    __slots__ = ("_most_bytes", "_most_messages", "_passed", "_queues", "bytes", "number")

    def __init__(self, most_messages: int, most_bytes: int) -> None:
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._queues: dict[int, deque[QueuedMessage]] = {}
        self._passed = 0  # how many left in a row while an older, less urgent one waited
        self.bytes = 0
        self.number = 0

    def __len__(self) -> int:
        return self.number

    def __iter__(self) -> Iterator[QueuedMessage]:
        for queue in self._queues.values():
            yield from queue

    def put(self, kept: QueuedMessage) -> list[QueuedMessage]:
        """
        Keep one message; the others that had to go for it.

        A single message always fits, whatever its size.
        """
        queue = self._queues.get(kept.priority)
        if queue is None:
            queue = self._queues[kept.priority] = deque()
        queue.append(kept)
        self.number += 1
        self.bytes += kept.size
        gone: list[QueuedMessage] = []
        while self.over and self.number > 1:
            gone.append(self.shed())
        return gone

    @property
    def over(self) -> bool:
        return self.number > self._most_messages or self.bytes > self._most_bytes

    def shed(self) -> QueuedMessage:
        """
        Remove the oldest of the least urgent.
        """
        return self._remove(min(self._queues))

    def take(self) -> QueuedMessage | None:
        """
        The next message to leave.
        """
        if not self._queues:
            return None
        urgent = max(self._queues)
        if len(self._queues) > 1:
            oldest = min(self._queues, key=lambda priority: self._queues[priority][0].key)
            if oldest == urgent:
                self._passed = 0
            elif self._passed == PASSED_OVER:
                self._passed = 0
                urgent = oldest
            else:
                self._passed += 1
        return self._remove(urgent)

    def stale(self, now: float) -> list[QueuedMessage]:
        """
        Remove all that is not worth sending any more.
        """
        return self.remove(lambda kept: kept.until <= now)

    def remove(self, which: Callable[[QueuedMessage], bool]) -> list[QueuedMessage]:
        """
        Remove all of that kind.
        """
        found: list[QueuedMessage] = []
        for priority, queue in list(self._queues.items()):
            gone: list[QueuedMessage] = []
            rest: deque[QueuedMessage] = deque()
            for kept in queue:
                (gone if which(kept) else rest).append(kept)
            if not gone:
                continue
            found += gone
            self.number -= len(gone)
            self.bytes -= sum(kept.size for kept in gone)
            if rest:
                self._queues[priority] = rest
            else:
                del self._queues[priority]
        return found

    def _remove(self, priority: int) -> QueuedMessage:
        queue = self._queues[priority]
        kept = queue.popleft()
        if not queue:
            del self._queues[priority]
        self.number -= 1
        self.bytes -= kept.size
        return kept
