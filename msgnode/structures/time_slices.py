"""
Long work in slices: between two of them everybody else has a turn of the event loop.
"""

from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Cooperator

MESSAGES = 128  # of one client that are carried in one slice
ADDRESSES = 1000  # bound, freed or asked about in one slice: some milliseconds
SIZE = 16 * 1024  # and bytes, about: as many as one read of a socket brings


class Slices:
    """
    Works off iterators, a step of one of them each turn of the event loop, whoever's they are.

    `done` counts the steps, `at_work` what is not finished.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.done = self.at_work = 0
        self._cooperator = Cooperator(_one_a_turn, lambda turn: clock.callLater(0, turn))

    def work(self, steps: Iterator[Deferred[Any] | None]) -> Deferred[None]:
        """
        Take all the steps, the first one in the next turn; a Deferred among them is waited for.

        Fires at the end; what a step raises ends the work, and is the caller's to see to.
        """
        self.at_work += 1
        over: Deferred[Any] = self._cooperator.cooperate(self._counted(steps)).whenDone()
        return over.addBoth(self._finished)

    def begin(self, steps: Iterator[None]) -> Deferred[None] | None:
        """
        Take the first step now.  None if that was all; else the rest as `work` does.
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
