"""
Events without a logging context.

Twisted sets one for each event of a descriptor, which costs more than the event, and which only its old log
(`twisted.python.log`) reads.  The node's connections log by `twisted.logger`, so that they need none.
"""

import errno
from collections.abc import Callable, Mapping
from typing import Any

from twisted.logger import Logger
from twisted.python.log import callWithLogger

from msgnode.transport.cork import DIRECT_TRANSPORTS, Turn

log = Logger()


def is_accepted_connection(selectable: Any) -> bool:
    """
    Is it a connection that the node has accepted?
    """
    return type(selectable) in DIRECT_TRANSPORTS


def poll_quietly(reactor: Any, is_quiet: Callable[[Any], bool] = is_accepted_connection) -> Turn | None:
    """
    Spare the logging context for descriptors that `is_quiet`; returns the turns. None: the reactor is none
    that is known, and stays as it is.
    """
    if not _is_known(reactor):
        return None
    turn = Turn()
    selectables: Mapping[int, Any] = reactor._selectables
    dispatch = reactor._doReadOrWrite

    def poll(timeout: float | None) -> None:
        try:
            found = reactor._poller.poll(-1 if timeout is None else timeout, len(selectables))
        except OSError as why:
            if why.errno == errno.EINTR:
                return
            raise
        turn.is_open = True
        try:
            for fd, event in found:
                selectable = selectables.get(fd)
                if selectable is None:
                    continue
                if not is_quiet(selectable):
                    callWithLogger(selectable, dispatch, selectable, fd, event)
                    continue
                try:
                    dispatch(selectable, fd, event)
                except Exception:  # of connectionLost; the other events count all the same
                    log.failure("an event of {selectable} failed", selectable=selectable)
        finally:
            turn.end()

    reactor.doPoll = reactor.doIteration = poll
    return turn


def _is_known(reactor: Any) -> bool:
    try:
        from twisted.internet.epollreactor import EPollReactor
    except ImportError:  # this platform has no epoll
        return False
    needed = ("_selectables", "_doReadOrWrite", "_poller")
    kind = type(reactor)
    return (
        isinstance(reactor, EPollReactor)
        and kind.doPoll is EPollReactor.doPoll
        and kind.doIteration is EPollReactor.doIteration
        and all(hasattr(reactor, name) for name in needed)
    )
