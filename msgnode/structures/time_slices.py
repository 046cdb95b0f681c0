"""
Time slices: long work is divided, so that the event loop serves other clients between two slices.
"""

from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Cooperator

MESSAGES = 128  # of one client that are processed in one slice
ADDRESSES = 1000  # bound, freed or looked up in one slice: some milliseconds
SLICE_BYTES = 16 * 1024  # bytes in one slice, about: the size of one read of a socket


class Slices:
    """
    A scheduler of long work, given as iterators: one step of one iterator for each turn of the event loop.

    `done` counts the steps taken, `at_work` the iterators that are not finished.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.done = self.at_work = 0
        self._cooperator = Cooperator(_one_a_turn, lambda turn: clock.callLater(0, turn))

    def work(self, steps: Iterator[Deferred[Any] | None]) -> Deferred[None]:
        """
        Take all the steps, the first one in the next turn. A step that is a Deferred is waited for.

        The result fires after the last step. An exception in a step ends the work and fails the result.
        """
        self.at_work += 1
        over: Deferred[Any] = self._cooperator.cooperate(self._counted(steps)).whenDone()
        return over.addBoth(self._finished)

    def begin(self, steps: Iterator[Deferred[Any] | None]) -> Deferred[None] | None:
        """
        Take the first step now, which is no Deferred. None if there was only one; else the remaining steps
        are taken as by `work`.
        """
        for _ in steps:
            return self.work(steps)
        return None

    def _counted(self, steps: Iterator[Deferred[Any] | None]) -> Iterator[Deferred[Any] | None]:
        for step in steps:
            self.done += 1
            yield step

    def _finished(self, result: Any) -> Any:
        self.at_work -= 1
        return None if isinstance(result, Iterator) else result


def _one_a_turn() -> Callable[[], bool]:
    return lambda: True
