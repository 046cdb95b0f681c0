"""
The wait until members have acknowledged what is sent to them until now.

A member may keep an acknowledgement back for a while, so each is asked for it.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime

LOOK_SECONDS = 0.002  # between two looks whether all is acknowledged, and two questions
MAX_LOOK_SECONDS = 0.05


class SendingStreams(Protocol):
    """
    The streams to other nodes, as this wait uses them (links/stream/node_streams.py).
    """

    def unacknowledged(self, destination: str) -> Callable[[], bool]: ...
    def ask(self, destination: str) -> None: ...


class _Wait(msgspec.Struct, eq=False):
    tests: dict[str, Callable[[], bool]]  # by node: is something not acknowledged yet?
    done: Deferred[None]


class Acknowledgements:
    """
    The waits under way. One timer serves all of them, and at each look a member is asked once.
    """

    def __init__(self, streams: SendingStreams, clock: IReactorTime) -> None:
        self._streams = streams
        self._clock = clock
        self._waits: list[_Wait] = []
        self._timer: IDelayedCall | None = None
        self._seconds = LOOK_SECONDS

    def wait(self, nodes: Iterable[str]) -> Deferred[None]:
        """
        Fires when these members have acknowledged all that is sent to them until now.
        """
        tests = {node: self._streams.unacknowledged(node) for node in nodes}
        tests = {node: test for node, test in tests.items() if test()}
        if not tests:
            return succeed(None)
        wait = _Wait(tests, Deferred())
        self._waits.append(wait)
        self._seconds = LOOK_SECONDS
        if self._timer is None:
            self._ask()
        elif self._timer.getTime() > self._clock.seconds() + LOOK_SECONDS:
            self._timer.reset(LOOK_SECONDS)
        return wait.done

    def _ask(self) -> None:
        for node in dict.fromkeys(node for wait in self._waits for node in wait.tests):
            self._streams.ask(node)
        self._timer = self._clock.callLater(self._seconds, self._look)
        self._seconds = min(2 * self._seconds, MAX_LOOK_SECONDS)

    def _look(self) -> None:
        self._timer = None
        for wait in self._waits:
            wait.tests = {node: test for node, test in wait.tests.items() if test()}
        over = [wait for wait in self._waits if not wait.tests]
        self._waits = [wait for wait in self._waits if wait.tests]
        if self._waits:
            self._ask()
        for wait in over:
            wait.done.callback(None)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waits = []
