"""
A clock for many thousands of timers.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from twisted.internet.base import DelayedCall
from twisted.internet.task import Clock


class HeapClock(Clock):
    """
    A task.Clock with its calls in a heap. During a call, the time is that of the call.
    """

    def __init__(self, begin: float = 0.0) -> None:
        super().__init__()
        self.rightNow = begin
        self.made = 0
        self._heap: list[tuple[float, int, DelayedCall]] = []

    def callLater(
        self, delay: float, callable: Callable[..., Any], *args: object, **kw: object
    ) -> DelayedCall:
        call = DelayedCall(self.rightNow + delay, callable, args, kw, _ignore, self._push, self.seconds)
        self._push(call)
        return call

    def advance(self, amount: float) -> None:
        end = self.rightNow + amount
        while self._heap and self._heap[0][0] <= end:
            at, _, call = heappop(self._heap)
            if not call.active():
                continue
            if call.getTime() > at:
                self._push(call)  # it was postponed
                continue
            self.rightNow = max(self.rightNow, at)
            call.called = 1
            call.func(*call.args, **call.kw)
        self.rightNow = end

    def _push(self, call: DelayedCall) -> None:
        self.made += 1
        heappush(self._heap, (call.getTime(), self.made, call))


def _ignore(call: DelayedCall) -> None:
    """
    A cancelled call stays in the heap until its time.
    """
