"""
Commits of what moves have changed: one write to disk for all of one turn of the event loop.
"""

from typing import Protocol

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from msgnode.sessions.persistence import MessageLog, SessionStore
from msgnode.sessions.session_table import Sessions


class Parts(Protocol):
    """
    The parts of a node that are written.
    """

    sessions: Sessions
    message_log: MessageLog
    session_store: SessionStore


class Commits:
    """
    The commits that wait for the next write. `settle_soon` asks for a write without waiting for it.
    """

    def __init__(self, node: Parts, clock: IReactorTime) -> None:
        self._node = node
        self._clock = clock
        self._waiting: list[Deferred[None]] = []

    def commit(self) -> Deferred[None]:
        """
        Fires when everything up to now is on disk; fails if it cannot be written.
        """
        done: Deferred[None] = Deferred()
        self.settle_soon()
        self._waiting.append(done)
        return done

    def settle_soon(self) -> None:
        if not self._waiting:
            self._waiting.append(Deferred())
            self._clock.callLater(0, self._write)

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._node.sessions.journal.settle(now=True)
        failing = self._node.message_log.failing
        written = self._node.session_store.committed() if failing is None else fail(OSError(failing))
        written.addCallbacks(_fire, _fail, (waiting,), {}, (waiting,))


def _fire(done: None, waiting: list[Deferred[None]]) -> None:
    for each in waiting:
        each.callback(None)


def _fail(why: Failure, waiting: list[Deferred[None]]) -> None:
    waiting[0].addErrback(lambda why: None)  # no part waits for the first
    for each in waiting:
        each.errback(why)
