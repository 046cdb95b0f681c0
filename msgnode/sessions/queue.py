"""
Message queue: the messages for a session that is disconnected or reads too slowly.

The queue is bounded in messages and in bytes. Messages of higher priority are sent first; within a priority
the order is kept. A message expires after its time to live (docs/protocol.md, "Queueing"): a request after 15
s, a response after 60 s, any message after the `ttl` in it. Other messages wait as long as the session lives.
When the queue is full, the oldest message of the lowest priority is evicted, because the newest is worth most
to an observer.
"""

from collections import deque
from collections.abc import Callable, Iterator

from msgspec import Struct

from msgnode.sessions.limits.spool_share import Share

REQUESTS = frozenset({"create", "read", "subscribe", "unsubscribe", "execute"})
REQUEST_TTL_SECONDS = 15.0  # the shortest timeout of a runtime's bus
RESPONSE_TTL_SECONDS = 60.0
FOREVER = float("inf")
OVERHEAD_BYTES = 200  # bytes of memory for a message in addition to its bytes

# This many messages overtake an older one of lower priority; then the oldest of all is sent.
MAX_OVERTAKEN = 9


def default_ttl(type: str, to: str) -> float:
    """
    The time to live of a message of this type, in seconds.
    """
    kind = type.lower()
    if kind in REQUESTS:
        return FOREVER if "/children/" in to else REQUEST_TTL_SECONDS
    return RESPONSE_TTL_SECONDS if kind == "response" else FOREVER


class Payload(bytes):
    """
    The bytes of a message to very many recipients; memory is counted once for all `holders`.
    """

    holders = 0


# The asker of a message that came with its session from another node: wherever its session is now, it gets an
# answer if the message is never delivered. The other node has sent the receipt.
ANY_NODE = (1 << 64) - 1


class QueuedMessage(Struct, gc=False):
    """
    An undelivered message of a session.

    `key` rises within the session, in the order of arrival. `data` is None once the message is on disk only,
    at `place` (0: nowhere). `until` is its expiry time, by the node's clock. `asker` is the sid of the
    session that asked for a receipt or waits for an answer, 0, or ANY_NODE. `share` is charged for it until
    it is delivered. `copy` is the id of all copies of the message, if other nodes may have one. `came` is
    when it came, in nanoseconds since 1970, 0 if that was before a restart or at another node.
    """

    key: int
    data: bytes | None
    size: int
    until: float = FOREVER
    priority: int = 5
    asker: int = 0
    place: int = 0
    share: Share | None = None
    copy: tuple[bytes, int] | None = None
    came: int = 0


class QueueTotals:
    """
    The messages and bytes in all queues that share it.
    """

    __slots__ = ("bytes", "messages")

    def __init__(self) -> None:
        self.messages = self.bytes = 0


class MessageQueue:
    """
    A bounded queue of messages by priority, oldest first; `totals` counts its messages, too.
    """

    __slots__ = ("_most_bytes", "_most_messages", "_passed", "_queues", "_totals", "bytes", "number")

    def __init__(self, most_messages: int, most_bytes: int, totals: QueueTotals | None = None) -> None:
        self._totals = totals or QueueTotals()
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._queues: dict[int, deque[QueuedMessage]] = {}
        self._passed = 0  # messages sent in a row that overtook an older one of lower priority
        self.bytes = 0
        self.number = 0

    def __len__(self) -> int:
        return self.number

    def __iter__(self) -> Iterator[QueuedMessage]:
        for queue in self._queues.values():
            yield from queue

    def put(self, kept: QueuedMessage) -> list[QueuedMessage]:
        """
        Adds one message; returns the messages evicted for it.

        A single message always fits, whatever its size.
        """
        queue = self._queues.get(kept.priority)
        if queue is None:
            queue = self._queues[kept.priority] = deque()
        queue.append(kept)
        self._count(1, kept.size)
        gone: list[QueuedMessage] = []
        while self.over and self.number > 1:
            gone.append(self.shed())
        return gone

    @property
    def over(self) -> bool:
        return self.number > self._most_messages or self.bytes > self._most_bytes

    def shed(self) -> QueuedMessage:
        """
        Removes the oldest message of the lowest priority.
        """
        return self._remove(min(self._queues))

    @property
    def oldest_came(self) -> int:
        """
        When the oldest message came; 0 if that is not known, or there is none.
        """
        return min((queue[0].came for queue in self._queues.values()), default=0)

    def pop_older(self, than: int) -> QueuedMessage | None:
        """
        Removes a message that came before this time, or it is not known when; None if there is none.
        """
        for priority, queue in self._queues.items():
            if queue[0].came < than:
                return self._remove(priority)
        return None

    def pop(self) -> QueuedMessage | None:
        """
        Removes the next message to send.
        """
        if not self._queues:
            return None
        urgent = max(self._queues)
        if len(self._queues) > 1:
            oldest = min(self._queues, key=lambda priority: self._queues[priority][0].key)
            if oldest == urgent:
                self._passed = 0
            elif self._passed == MAX_OVERTAKEN:
                self._passed = 0
                urgent = oldest
            else:
                self._passed += 1
        return self._remove(urgent)

    def stale(self, now: float) -> list[QueuedMessage]:
        """
        Removes the expired messages.
        """
        return self.remove(lambda kept: kept.until <= now)

    def remove(self, which: Callable[[QueuedMessage], bool]) -> list[QueuedMessage]:
        """
        Removes the messages that match.
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
            self._count(-len(gone), -sum(kept.size for kept in gone))
            if rest:
                self._queues[priority] = rest
            else:
                del self._queues[priority]
        return found

    def discard(self, kept: QueuedMessage) -> bool:
        """
        Removes this message; False if it is not in the queue. It is looked for from the oldest on.
        """
        queue = self._queues.get(kept.priority)
        try:
            if queue is None:
                return False
            queue.remove(kept)
        except ValueError:
            return False
        if not queue:
            del self._queues[kept.priority]
        self._count(-1, -kept.size)
        return True

    def _remove(self, priority: int) -> QueuedMessage:
        queue = self._queues[priority]
        kept = queue.popleft()
        if not queue:
            del self._queues[priority]
        self._count(-1, -kept.size)
        return kept

    def clear(self) -> None:
        """
        Removes all messages.
        """
        self._queues.clear()
        self._count(-self.number, -self.bytes)

    def _count(self, messages: int, size: int) -> None:
        self.number += messages
        self.bytes += size
        self._totals.messages += messages
        self._totals.bytes += size
