"""
What waits for a session that is away, or that reads too slowly.

Bounded in messages and in bytes.  A message goes stale when its sender has
given up (wire.md 2.5): a request after 15 s, a response after 60 s.  The rest
keeps its worth and waits as long as the session lives.  When the bound is
reached the oldest goes, because what is newest is worth most to an observer.
"""

from collections import deque
from typing import NamedTuple

REQUESTS = frozenset({"create", "read", "subscribe", "unsubscribe", "execute"})
REQUEST_WAITS = 15.0  # seconds; the shortest time-out of a runtime's bus
RESPONSE_WAITS = 60.0  # seconds
FOREVER = float("inf")


def patience(type: str, to: str) -> float:
    """
    How many seconds a message of this type is worth waiting for.
    """
    kind = type.lower()
    if kind in REQUESTS:
        return FOREVER if "/children/" in to else REQUEST_WAITS
    return RESPONSE_WAITS if kind == "response" else FOREVER


class Kept(NamedTuple):
    data: bytes
    until: float  # when it goes stale, by the node's clock


class Waiting:
    """
    A bounded queue of messages, oldest first.
    """

    __slots__ = ("_most_bytes", "_most_messages", "_queue", "bytes")

    def __init__(self, most_messages: int, most_bytes: int) -> None:
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._queue: deque[Kept] = deque()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, data: bytes, until: float) -> int:
        """
        Keep one message; how many older ones had to go for it.

        A single message always fits, whatever its size.
        """
        self._queue.append(Kept(data, until))
        self.bytes += len(data)
        gone = 0
        while len(self._queue) > 1 and self.over:
            self._remove()
            gone += 1
        return gone

    @property
    def over(self) -> bool:
        return len(self._queue) > self._most_messages or self.bytes > self._most_bytes

    def take(self, now: float) -> tuple[bytes | None, int]:
        """
        The next message that is still worth sending, and how many stale ones were dropped before it.
        """
        stale = 0
        while self._queue:
            kept = self._remove()
            if kept.until > now:
                return kept.data, stale
            stale += 1
        return None, stale

    def _remove(self) -> Kept:
        kept = self._queue.popleft()
        self.bytes -= len(kept.data)
        return kept
