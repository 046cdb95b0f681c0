"""
How the compiled data plane waits for events: as the poller of Twisted's reactor, or within it.

In the place of the reactor's epoll object the plane reads its own sockets and returns the events of all
others: one system call for both.  Twisted does not promise that its poller can be replaced, so that is
tried first.  Whatever is not as expected, the plane's epoll object is nested within the reactor's, which
costs one more system call for each round.
"""

import os
from select import EPOLLIN, EPOLLOUT
from typing import Any, NamedTuple, Protocol

from twisted.internet import epollreactor
from twisted.internet.interfaces import IReadDescriptor
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

log = Logger()

REPLACED = "its poller replaces that of Twisted's reactor"
NESTED = "its poller is nested in that of Twisted's reactor"
_NEEDED = {"_reads": set, "_writes": set, "_selectables": dict}  # of Twisted's epoll reactor
_METHODS = ("register", "modify", "unregister", "poll")


class Poller(Protocol):
    """
    A poller as Python's own epoll object, which serves some descriptors by itself.
    """

    def fileno(self) -> int: ...
    def register(self, fd: int, eventmask: int) -> None: ...
    def modify(self, fd: int, eventmask: int) -> None: ...
    def unregister(self, fd: int) -> None: ...
    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]: ...

    def round(self) -> bool:
        """
        Serve what is due, without waiting.  True: there is more.
        """


class Unsuitable(Exception):
    """
    The reactor is none that the plane works with.
    """


class Attached(NamedTuple):
    """
    REPLACED or NESTED, and why the latter.
    """

    how: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.how}: {self.why}" if self.why else self.how


def attach(reactor: Any, poller: Poller, nested: bool = False) -> Attached:
    """
    Have the reactor serve this poller from now on; Unsuitable if it cannot.
    """
    if not isinstance(reactor, epollreactor.EPollReactor):
        kind = type(reactor).__name__
        raise Unsuitable(f"the data plane needs Twisted's epoll reactor, and this is {kind}")
    why = "as asked" if nested else _surprise(reactor, poller)
    if not why:
        try:
            _replace(reactor, poller)
        except Exception as wrong:
            why = f"the poller could not be replaced: {wrong}"
    if not why:
        return Attached(REPLACED)
    reactor.addReader(NestedPoller(poller, reactor))
    return Attached(NESTED, why)


def _surprise(reactor: Any, poller: Poller) -> str:
    """
    The first thing that is not as expected of the reactor or the poller; "": all is.
    """
    for name, kind in _NEEDED.items():
        if type(getattr(reactor, name, None)) is not kind:
            return f"the reactor's {name} is no {kind.__name__}"
    before = getattr(reactor, "_poller", None)
    missing = [name for name in _METHODS if not callable(getattr(before, name, None))]
    if missing:
        return f"the reactor's poller has no {missing[0]}"
    return "" if _round_trip(poller) else "a byte through a pipe was not reported"


def _round_trip(poller: Poller) -> bool:
    """
    Is a byte in a pipe reported, and only then?
    """
    read, write = os.pipe()
    try:
        poller.register(read, EPOLLIN)
        before = poller.poll(0, 1)
        os.write(write, b"x")
        after = poller.poll(0, 1)
        poller.unregister(read)
        return before == [] and after == [(read, EPOLLIN)]
    except OSError:
        return False
    finally:
        os.close(read)
        os.close(write)


def _replace(reactor: Any, poller: Poller) -> None:
    """
    Register everything with the poller, and put it into the place of the reactor's; or leave all as it was.
    """
    registered: list[int] = []
    try:
        for fd in reactor._reads | reactor._writes:
            events = EPOLLIN * (fd in reactor._reads) | EPOLLOUT * (fd in reactor._writes)
            poller.register(fd, events)
            registered.append(fd)
    except OSError:
        for fd in registered:
            poller.unregister(fd)
        raise
    before, reactor._poller = reactor._poller, poller
    before.close()


@implementer(IReadDescriptor)
class NestedPoller:
    """
    A reader whose descriptor is the poller's own: it can be read when one of the poller's can.
    """

    def __init__(self, poller: Poller, reactor: Any) -> None:
        self._poller = poller
        self._reactor = reactor
        self._is_due = False

    def fileno(self) -> int:
        return self._poller.fileno()

    def logPrefix(self) -> str:
        return "data plane"

    def doRead(self) -> None:
        try:
            has_more = self._poller.round()
        except Exception:
            log.failure("a round of the data plane failed")  # Twisted would remove a reader that raises
            has_more = True
        # No descriptor is readable for the rest of a round.
        if has_more and not self._is_due:
            self._is_due = True
            self._reactor.callLater(0, self._go_on)

    def _go_on(self) -> None:
        self._is_due = False
        self.doRead()

    def connectionLost(self, reason: Failure) -> None:
        pass
