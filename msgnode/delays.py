"""
Messages that wait because a rate limit says `"onExceed": "delay"`.

In order for each bucket, and not too many of them, nor too many bytes.
"""

from collections import deque
from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from msgnode.sessions.limits.partial_input import Partials

MOST_DELAYED = 1000  # messages, in the whole node
LONGEST_WAIT = 60.0  # seconds that the first in line may have to wait

# Seconds until it may go; 0: it went.
Take = Callable[[], float]


class Delays:
    """
    `put` a message behind those that wait for the same bucket.
    """

    def __init__(self, clock: IReactorTime, partials: Partials | None = None) -> None:
        self._clock = clock
        self._partials = partials
        self._lines: dict[object, deque[tuple[Take, Deferred[None]]]] = {}
        self._number = 0

    def __len__(self) -> int:
        return self._number

    def waits(self, key: object) -> bool:
        """
        Is there a line for this bucket?
        """
        return key in self._lines

    def put(
        self, key: object, wait: float, take: Take, size: int = 0, peer: str = ""
    ) -> Deferred[None] | None:
        """
        Fires when `take` lets it go; None where it cannot wait.  `size`: bytes that wait, from that peer.
        """
        if self._number >= MOST_DELAYED or wait > LONGEST_WAIT:
            return None
        gone: Deferred[None] = Deferred()
        if self._partials is not None and not self._partials.grow_untimed(gone, size, peer):
            return None
        line = self._lines.get(key)
        self._number += 1
        if line is not None:
            line.append((take, gone))
            return gone
        self._lines[key] = deque([(take, gone)])
        self._clock.callLater(wait, self._go_on, key)
        return gone

    def _go_on(self, key: object) -> None:
        line = self._lines[key]
        while line:
            take, gone = line[0]
            wait = take()
            if wait > 0:
                self._clock.callLater(wait, self._go_on, key)
                return
            line.popleft()
            self._number -= 1
            if self._partials is not None:
                self._partials.done(gone)
            gone.callback(None)
        del self._lines[key]
