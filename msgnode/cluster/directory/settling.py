"""
Settling: waiting until the members have a change of this node's addresses.
"""

from collections import deque
from collections.abc import Callable, Iterable

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.cluster.directory.follower import Follower
from msgnode.cluster.directory.limits import DirectoryCounts

SETTLE_SECONDS = 0.5
TURN = 32  # waiters that are released in one turn of the event loop


class _Waiter(msgspec.Struct, eq=False):
    number: int
    deadline: float
    done: Deferred[None]


class Settling:
    """
    The waiters for changes, in the order of their numbers, within a bound: beyond it the oldest is released.
    """

    def __init__(
        self,
        clock: IReactorTime,
        followers: Callable[[], Iterable[Follower]],
        most: int,
        counts: DirectoryCounts,
    ) -> None:
        self._clock = clock
        self._followers = followers
        self._most = most
        self._counts = counts
        self._waiters: deque[_Waiter] = deque()
        self._timer: IDelayedCall | None = None
        self._checking: IDelayedCall | None = None

    def wait(self, number: int) -> Deferred[None]:
        """
        Fires once all followers have acknowledged change `number`; after SETTLE_SECONDS at most.
        """
        if number == 0 or self._have(number):
            return succeed(None)
        if len(self._waiters) >= self._most:
            self._release_late(self._waiters.popleft())
        done: Deferred[None] = Deferred()
        waiter = _Waiter(number, self._clock.seconds() + SETTLE_SECONDS, done)
        # Numbers mostly rise; a lower one waits for the one before it.
        if self._waiters and number < self._waiters[-1].number:
            waiter.number = self._waiters[-1].number
        self._waiters.append(waiter)
        if self._timer is None:
            self._timer = self._clock.callLater(SETTLE_SECONDS, self._expire)
        return done

    def _have(self, number: int) -> bool:
        return all(follower.has(number) for follower in self._followers())

    def check(self) -> None:
        """
        Release the waiters whose change all followers have now.
        """
        if self._checking is not None:
            return
        for _ in range(TURN):
            if not self._waiters or not self._have(self._waiters[0].number):
                return
            self._waiters.popleft().done.callback(None)
        self._checking = self._clock.callLater(0, self._check_more)

    def _check_more(self) -> None:
        self._checking = None
        self.check()

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        for _ in range(TURN):
            if self._waiters and self._waiters[0].deadline <= now:
                self._release_late(self._waiters.popleft())
        if self._timer is not None:
            self._timer.cancel()  # of one that came meanwhile, which is not the first
            self._timer = None
        if self._waiters:
            left = max(0.0, self._waiters[0].deadline - now)
            self._timer = self._clock.callLater(left, self._expire)

    def _release_late(self, waiter: _Waiter) -> None:
        self._counts.unsettled += 1
        waiter.done.callback(None)

    def stop(self) -> None:
        """
        Release all waiters.
        """
        for call in (self._timer, self._checking):
            if call is not None:
                call.cancel()
        self._timer = self._checking = None
        while self._waiters:
            self._waiters.popleft().done.callback(None)
