"""
Session merge: an anonymous session becomes one with the session of the name by which its client comes back.

On disk the merge is atomic, even if the node is killed; in memory it is done in slices, while its client
waits and others are served.
"""

from collections.abc import Iterator
from functools import partial
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from msgnode.bus.routing_table import RoutingTable
from msgnode.config.schema import Limits
from msgnode.sessions.allocation_keys import Keys, key_size
from msgnode.sessions.input_order import InputOrder
from msgnode.sessions.limits.memory_budget import Budget, binding_size
from msgnode.sessions.persistence import SessionStore
from msgnode.sessions.routing import LEARNED
from msgnode.sessions.session import Connection, Session
from msgnode.sessions.session_table import Sessions
from msgnode.structures.time_slices import ADDRESSES, Slices

log = Logger()

MAX_ABSORBED = 64  # merged sids of a session in the spool, until the database has the merge


class Registrations(Protocol):
    """
    The table of the sessions' registrations at the domain registry.
    """

    def move(self, session: Session, other: Session) -> Iterator[None]:
        """
        Moves all registrations of the session to the other, in slices.
        """


class SessionMerge:
    """
    The merge of addresses, allocation keys, registrations, messages and counters, as far as limits allow.
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
        Can they be merged now, or must the database first store earlier merges?
        """
        return len(session.absorbed) + len(other.absorbed) < MAX_ABSORBED

    def merge(self, session: Session, other: Session, connection: Connection, epoch: str) -> None:
        """
        Moves everything of the session to the other one, to which this connection is attached.

        `epoch` is that of the counters with which its client continues, or "".
        """
        self._sessions.remove_merged(session)
        other.take_over(session, epoch)
        self._session_store.moved(session.sid, other.sid)
        self._session_store.changed(other)
        self._input_order.follow(other, connection)
        rest = self._begin(session, other, connection)
        if rest is None:
            self._moved(session, other)
            return
        work = self._input_order.hold(connection)
        rest.addErrback(
            partial(log.failure, "another session could not be merged into {runtime}", runtime=other.runtime)
        )
        rest.addCallback(lambda done: self._moved(session, other))
        rest.addBoth(lambda done: self._input_order.release(work))

    def _begin(self, session: Session, other: Session, connection: Connection) -> Deferred[None] | None:
        # Pending requests, and messages behind them, still bind and release addresses of the session.
        over = self._input_order.settled_for(session, connection)
        if over is not None:
            return over.addCallback(lambda done: self._begin(session, other, connection))
        self._sessions.release_superseded(session)
        return self._slices.begin(self._move_all(session, other))

    def _moved(self, session: Session, other: Session) -> None:
        """
        Ends the merge. The spool has the merged sids until the database has the merge.
        """
        gone = [*session.absorbed, session.sid]
        forget_absorbed(other, gone, self._session_store)

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
        Moves one address with its key; an address without room is released.
        """
        key = session.keys.of(address) if session.keys is not None else None
        is_learned = session.bindings[address] == LEARNED
        if key is not None and session.keys is not None:
            session.keys.forget(address)
        if not self._has_room(address, key, is_learned, session, other):
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
        self, address: str, key: str | None, is_learned: bool, session: Session, other: Session
    ) -> bool:
        if other.ended:
            return False
        if is_learned and other.learned >= self._limits.learned_routes_per_session:
            return False
        size = key_size(key, 1) if key is not None else 0
        if address not in other.bindings:
            if len(other.bindings) >= self._limits.bindings_per_session:
                self._budget.refused["bindings_per_session"] += 1
                return False
            size += binding_size(address)
        # An account above both is already charged for the first session.
        session.account.charge(-size)
        try:
            return self._budget.has_room(other.account, size)
        finally:
            session.account.charge(size)


def forget_absorbed(session: Session, gone: list[int], store: SessionStore) -> None:
    """
    Drop the sids of sessions that were merged into this one, once the database has the merge.
    """

    def forget(done: None) -> None:
        session.absorbed = [sid for sid in session.absorbed if sid not in gone]

    store.committed().addCallbacks(forget, lambda why: None)
