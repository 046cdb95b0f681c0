"""
Two sessions become one: an anonymous one, and that of the name its client comes back by.

On disk that is done at once, whatever happens to the node; in memory in
slices, while its client waits and others are heard.
"""

from collections.abc import Iterator
from functools import partial
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from msgnode.bus.routing_table import RoutingTable
from msgnode.config.schema import Limits
from msgnode.sessions.allocation_keys import Keys, key_size
from msgnode.sessions.bindings import LEARNT
from msgnode.sessions.input_order import InputOrder
from msgnode.sessions.limits.memory_budget import Budget, binding_size
from msgnode.sessions.persistence import SessionStore
from msgnode.sessions.session import Connection, Session
from msgnode.sessions.session_table import Sessions
from msgnode.structures.time_slices import ADDRESSES, Slices

log = Logger()

MAX_ABSORBED = 64  # sids that a session's note in the spool names until the database is written


class Registrations(Protocol):
    """
    The table of what sessions have registered at the domain registry.
    """

    def move(self, session: Session, other: Session) -> Iterator[None]:
        """
        All that the session has is the other's, in slices.
        """


class SessionMerge:
    """
    Moves addresses, allocation keys, registrations, messages and counts, as far as the limits allow.
    """

    def __init__(
        self,
        sessions: Sessions,
        routes: RoutingTable,
        registered: Registrations,
        session_store: SessionStore,
        budget: Budget,
        limits: Limits,
        slices: Slices,
        input_order: InputOrder,
    ) -> None:
        self._sessions = sessions
        self._routes = routes
        self._registered = registered
        self._session_store = session_store
        self._budget = budget
        self._limits = limits
        self._slices = slices
        self._input_order = input_order

    @staticmethod
    def has_room(session: Session, other: Session) -> bool:
        """
        May they become one now, or must the database first take in what did before?
        """
        return len(session.absorbed) + len(other.absorbed) < MAX_ABSORBED

    def merge(self, session: Session, other: Session, connection: Connection, epoch: str) -> None:
        """
        All that the session has is the other's, which this connection speaks for.

        `epoch` is that of the counts its client goes on with, or "".
        """
        self._sessions.give_way(session)
        other.take_over(session, epoch)
        self._session_store.moved(session.sid, other.sid)
        self._session_store.changed(other)
        self._input_order.follow(other, connection)
        rest = self._begin(session, other, connection)
        if rest is None:
            self._moved(session, other)
            return
        work = self._input_order.hold(connection)
        rest.addErrback(partial(log.failure, "giving {runtime} what another had", runtime=other.runtime))
        rest.addCallback(lambda done: self._moved(session, other))
        rest.addBoth(lambda done: self._input_order.release(work))

    def _begin(self, session: Session, other: Session, connection: Connection) -> Deferred[None] | None:
        # What is under way, or waits behind it, still binds and frees addresses of the session.
        over = self._input_order.settled_for(session, connection)
        if over is not None:
            return over.addCallback(lambda done: self._begin(session, other, connection))
        self._sessions.unseat(session)
        return self._slices.begin(self._move_all(session, other))

    def _moved(self, session: Session, other: Session) -> None:
        """
        All is the other's.  The spool says who has become one until the database does.
        """
        gone = [*session.absorbed, session.sid]
        self._session_store.settled().addCallbacks(partial(_forget, gone, other), lambda why: None)

    def _move_all(self, session: Session, other: Session) -> Iterator[None]:
        try:
            for done, address in enumerate(list(session.bindings), 1):
                if address in session.bindings:
                    self._move(address, session, other)
                if done % ADDRESSES == 0:
                    yield
            yield from self._registered.move(session, other)
        finally:
            self._sessions.end(session, "renamed")

    def _move(self, address: str, session: Session, other: Session) -> None:
        """
        One address, with its key; what there is no room for is free.
        """
        key = session.keys.of(address) if session.keys is not None else None
        is_learnt = session.bindings[address] == LEARNT
        if key is not None and session.keys is not None:
            session.keys.forget(address)
        if not self._has_room(address, key, is_learnt, session, other):
            self._routes.unbind(address, session)
            if address not in other.bindings:
                self._session_store.bound(other.sid, address, 0)
            self._session_store.unkeyed(other.sid, address)
            return
        self._routes.move(address, session, other)
        if key is not None:
            if other.keys is None:
                other.keys = Keys(other.account)
            other.keys.add(key, [address])
            self._session_store.keyed(other.sid, key, [address])

    def _has_room(
        self, address: str, key: str | None, is_learnt: bool, session: Session, other: Session
    ) -> bool:
        if other.ended:
            return False
        if is_learnt and other.learnt >= self._limits.learned_routes_per_session:
            return False
        size = key_size(key, 1) if key is not None else 0
        if address not in other.bindings:
            if len(other.bindings) >= self._limits.bindings_per_session:
                self._budget.refused["bindings_per_session"] += 1
                return False
            size += binding_size(address)
        # What both pay to counts already for the session that gives it.
        session.account.charge(-size)
        try:
            return self._budget.has_room(other.account, size)
        finally:
            session.account.charge(size)


def _forget(gone: list[int], other: Session, done: None) -> None:
    """
    The database knows that they are one.
    """
    other.absorbed = [sid for sid in other.absorbed if sid not in gone]
