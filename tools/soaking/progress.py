"""
Waiting by progress: a wait ends when its end is reached, or when nothing moves any more.

No wait has a deadline, because a machine with other work is slow, which breaks
no promise of the protocol.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

STALLED = 60.0  # seconds without progress, after which a wait is in vain
LONGEST_LOOK = 1.0  # seconds between two looks that count; in more this program itself stood still


class Stall:
    """
    A detector of standstill: `over()` is true once `moved()` has not changed for `patience` seconds.
    """

    def __init__(
        self,
        moved: Callable[[], object],
        patience: float = STALLED,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._moved = moved
        self._patience = patience
        self._now = now
        self._seen = moved()
        self._looked = now()
        self._still = 0.0

    def over(self) -> bool:
        looked, seen = self._now(), self._moved()
        self._still += min(looked - self._looked, LONGEST_LOOK)
        if seen != self._seen:
            self._seen, self._still = seen, 0.0
        self._looked = looked
        return self._still > self._patience


async def wait_until(
    done: Callable[[], bool],
    stall: Stall,
    every: float = 0.1,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> bool:
    """
    Wait as long as something moves; False when nothing does and it is not done.
    """
    while not done():
        if stall.over():
            return done()
        await sleep(every)
    return True
