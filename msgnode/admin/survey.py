"""
Survey of all sessions: figures that would need a pass over every session, for metrics.

The pass is made in slices, after a scrape, and the next scrape has its result: without scrapes there is none.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import thread_time
from typing import TypeVar

from twisted.logger import Logger

from msgnode.node import Node
from msgnode.sessions.session import Session

log = Logger()
T = TypeVar("T")

AT_ONCE = 1000  # sessions that are looked at in the turn of the scrape itself
STEP = 64  # sessions and accounts between two looks at the time
SLICE_SECONDS = 0.002


class Figures:
    """
    The result of a pass: sessions with an identity, and the most that one session, user or address has.
    """

    def __init__(self) -> None:
        self.authenticated = 0
        self.most_bytes = {"session": 0, "user": 0, "ip": 0}
        self.most_sessions = {"user": 0, "ip": 0}


class Survey:
    """
    The newest figures of all sessions; a scrape asks for them by `look`.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._figures = Figures()
        self._running = False

    def look(self) -> Figures:
        """
        Returns the figures of the last pass, and begins the next one. With few sessions they are of now.
        """
        if len(self._node.sessions) + len(self._node.budget.accounts) <= AT_ONCE:
            for _ in self._pass():
                pass
        elif not self._running:
            self._running = True
            done = self._node.slices.work(self._pass())
            done.addErrback(partial(log.failure, "the sessions could not be surveyed"))
            done.addBoth(self._finished)
        return self._figures

    def _finished(self, result: object) -> None:
        self._running = False

    def _pass(self) -> Iterator[None]:
        found = Figures()
        yield from each_of(self._node.sessions, lambda each: self._add(each, found))
        of = {"_per_user": "user", "_per_ip": "ip"}
        for accounts in (list(self._node.budget.accounts.values()),):
            for number, account in enumerate(accounts):
                kind = of[account.kind]
                found.most_bytes[kind] = max(found.most_bytes[kind], account.bytes)
                found.most_sessions[kind] = max(found.most_sessions[kind], account.sessions)
                if number % 2000 == 1999:
                    yield
        self._figures = found

    @staticmethod
    def _add(session: Session, found: Figures) -> None:
        found.authenticated += bool(session.identity)
        found.most_bytes["session"] = max(found.most_bytes["session"], session.account.bytes)


def each_of(found: Iterable[T], look: Callable[[T], object]) -> Iterator[None]:
    """
    Looks at each of what is there now, in slices. The list of very many takes a turn of its own.
    """
    some = list(found)
    if len(some) > AT_ONCE:
        yield
    yield from in_slices(look(each) for each in some)


def in_slices(steps: Iterator[object]) -> Iterator[None]:
    """
    Takes all the steps, and yields after each slice of SLICE_SECONDS of CPU time.
    """
    until = thread_time() + SLICE_SECONDS
    for number, _ in enumerate(steps, 1):
        if number % STEP == 0 and thread_time() > until:
            yield
            until = thread_time() + SLICE_SECONDS
