"""
The session table: all sessions by runtimeURL, and the connection of each.

The newest connection of a session replaces the older ones; later events of an older connection do not change
the session.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from msgnode.config.schema import Config
from msgnode.protocol.address import SESSION
from msgnode.protocol.close_codes import OVER_CAPACITY, REMOVED, SUPERSEDED, Closing
from msgnode.protocol.message import Message
from msgnode.sessions.connections import STOP_WAIT_SECONDS, Connections
from msgnode.sessions.counters import Counters
from msgnode.sessions.history.refusals import RefusalRing, name
from msgnode.sessions.journal import DeliveryJournal
from msgnode.sessions.limits.connection_limits import ConnectionLimits
from msgnode.sessions.limits.disk_watermark import Watermark
from msgnode.sessions.limits.memory_budget import Budget, text_size
from msgnode.sessions.limits.overload import Overload
from msgnode.sessions.limits.spool_share import NOBODY, Share, Shares
from msgnode.sessions.mailbox import Mailbox, MailboxSession
from msgnode.sessions.outbox import Outbox
from msgnode.sessions.persistence import MessageLog, SessionStore
from msgnode.sessions.queue import MessageQueue, QueueTotals
from msgnode.sessions.routing import Routes
from msgnode.sessions.session import Connection, Session, hashed
from msgnode.transport.data_plane import NO_DATA_PLANE

log = Logger()

# The reasons of dropped messages by the code of their receipts, with the text for operators.
_DROPPED = {
    408: ("stale", "its time to live ended while it was queued"),
    410: ("ended", "the session ended while it was queued"),
    503: ("overflow", "evicted, because the queue or the memory was full"),
    507: ("no-room", "not queued: there is no room"),
}
# The codes and the reasons of refused connections by their close code.
_CODES = {OVER_CAPACITY.code: 503, REMOVED.code: 403}
_WORDS = {REMOVED.code: "banned"}


class TrafficRecorder(Protocol):
    """
    The port to the traffic log: it records the outcome of messages and the events of sessions.
    """

    def message(self, message: Message, session: Session | None) -> None: ...
    def session(self, event: str, session: Session, connection: Connection | None) -> None: ...


class Sessions(Service):
    """
    The table of sessions by runtimeURL, with their connections.
    """

    def __init__(
        self,
        config: Config,
        routes: Routes,
        traffic_recorder: TrafficRecorder,
        counts: Counters,
        clock: IReactorTime,
        session_store: SessionStore,
        message_log: MessageLog,
        connection_limits: ConnectionLimits,
        budget: Budget,
        wall: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.counts = counts
        self.connections = Connections(config, connection_limits, counts, clock, chance, self._detach, wall)
        self.refusals = RefusalRing(wall)
        self.connections.on_refused = self._note_refused_connection
        self.draining = False
        self.watermark: Watermark | None = None
        self.data_plane = NO_DATA_PLANE
        self.shares: Shares | None = None  # of the spool; None without a spool
        self.overload = overload = Overload(self, clock)
        self.journal = DeliveryJournal(
            message_log,
            config.session.max_memory_bytes,
            overload.make_room,
            overload.suspend,
            overload.resume_all,
            clock,
            wall,
        )
        self.journal.shed = overload.make_room_on_disk
        self.journal.on_crowded = lambda: self.data_plane.change_all()
        self.receipt: Callable[[bytes, int, int], None] = _no_receipt
        self.sent_late: Callable[[bytes, Session], None] = (
            _ignore_late  # called for each queued message that is sent
        )
        self.on_end: Callable[[Session], object] = _ignore_end  # called for each session that ended
        # Called for each event of a session, by the word of the traffic log.
        self.on_event: Callable[[str, Session], object] = _ignore_event
        # Hands all sessions over to other nodes; fires when it is done, after `stop_seconds` at most.
        self.hand_over: Callable[[], Deferred[None]] = lambda: succeed(None)
        self.stop_seconds = 0.0  # that its stop may take in addition to `drain_seconds`
        # The id of all copies of a message, if other nodes may have one; None: there are no other nodes.
        self.copy_id: Callable[[Message], tuple[bytes, int] | None] | None = None
        self.attached: Counter[str] = Counter()  # sessions with a connection, by its connector
        self.queued = QueueTotals()  # of all sessions
        # Relays a connection whose session moves to another node; False: it has to be closed.
        self.relay_connection: Callable[[Connection, Session], bool] = _not_relayed
        self.is_relayed: Callable[[Connection], bool] = lambda connection: False
        # The ban of a runtimeURL, a user and a connection.
        self.ban_of: Callable[[str, str, Connection], Closing | None] = _find_no_ban
        self._not_ready: set[Session] = set()  # with a connection, to which messages may not go at once
        self._by_runtime: dict[str, Session] = {}
        self._by_token: dict[bytes, Session] = {}
        # Sessions that other nodes hold now, by sid: their messages are here until those have them.
        self.released: dict[int, Session] = {}
        # The ids of copies by sid and key, of before a restart, until moves between nodes need them.
        self.copies: dict[int, dict[int, tuple[bytes, int]]] = {}
        # Superseded connections still belong to their session, so its end must find them.
        self._superseded: dict[Session, set[Connection]] = {}
        self._expiries: dict[Mailbox, IDelayedCall] = {}  # the time of the next expiry receipt
        self._config = config
        self._routes = routes
        self._traffic_recorder = traffic_recorder
        self._clock = clock
        self._session_store = session_store
        self._budget = budget
        self._wall = wall
        self._last_sid = 0

    def __len__(self) -> int:
        return len(self._by_runtime)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._by_runtime.values())

    def get(self, runtime: str) -> Session | None:
        return self._by_runtime.get(runtime)

    def by_token(self, token: str) -> Session | None:
        """
        The session that has this token.
        """
        return self._by_token.get(hashed(token))

    def by_token_hash(self, token_hash: bytes) -> Session | None:
        """
        The session whose token has this hash.
        """
        return self._by_token.get(token_hash) if token_hash else None

    def issue_token(self, session: Session) -> str:
        """
        Issues a new token for the session; the old one is void.
        """
        self._by_token.pop(session.token_hash, None)
        token = session.issue_token()
        self._by_token[session.token_hash] = session
        self._session_store.changed(session)
        self._routes.token_changed(session)
        return token

    def void_token(self, session: Session) -> None:
        """
        Makes the session's token void: no client can come back with it.
        """
        if session.token_hash:
            self._by_token.pop(session.token_hash, None)
            session.token_hash = b""
            self._session_store.changed(session)
            self._routes.token_changed(session)

    # -- callbacks of sessions and mailboxes -------------------------------

    def ready_changed(self, session: Session) -> None:
        connection, ready = session.connection, session.ready
        if connection is None:
            return
        if ready is None and not connection.acks_by_request:
            self._not_ready.add(session)
        else:
            self._not_ready.discard(session)
        outbox = session.mailbox.outbox
        room = outbox.room if outbox is not None and ready is outbox else None
        self.data_plane.ready_changed(connection, ready is not None, room)

    def dropped(self, runtime: str, code: int) -> None:
        """
        Notes for operators that a message queued for this runtime, or refused by its queue, is dropped.
        """
        reason, text = _DROPPED[code]
        made = self.refusals.add(runtime, code, reason, text, runtime)
        if made is not None:
            made.outcome = "dropped"

    def note_refused_open(
        self, connection: Connection, runtime: str, code: int, reason: str, why: Closing
    ) -> None:
        """
        Notes for operators that a connection may not open the session `runtime`, "" for a new one.
        """
        text = f"may not open {runtime or 'a session'}; closed with {why.code} {why.word}"
        made = self.refusals.add(connection.peer, code, reason, text, SESSION)
        if made is not None:
            made.connector, made.peer = connection.connector, connection.peer
            made.session, made.user, made.type = name(runtime), name(connection.identity), "open"

    def _note_refused_connection(self, connection: Connection, why: Closing) -> None:
        self.note_refused_open(connection, "", _CODES.get(why.code, 403), _WORDS.get(why.code, "limit"), why)

    def now(self) -> float:
        return self._clock.seconds()

    def make_queue(self) -> MessageQueue:
        bounds = self._config.session
        return MessageQueue(bounds.queue_messages, bounds.queue_bytes, self.queued)

    def make_outbox(self, mailbox: Mailbox, client_requested: bool) -> Outbox:
        bounds = self._config.session
        return Outbox(mailbox, bounds.queue_messages, bounds.queue_bytes, client_requested, self.data_plane)

    def overflowed(self, session: Session) -> None:
        """
        A queue is full. A client that does not read is disconnected; its session stays.
        """
        connection = session.connection
        if connection is not None and self.connections.close_slow(connection):
            log.warn("{runtime} does not read; closing its connection", runtime=session.runtime)

    def may_keep(self, message: Message, mailbox: Mailbox) -> Share | None:
        """
        The share of the spool that this message uses while it is queued; None: it may not be queued.

        The node's own messages, and messages that only wait for a slice, may always be queued.
        """
        origin, watermark, shares = message.origin, self.watermark, self.shares
        session: MailboxSession = mailbox.session
        if origin is None or shares is None or session.due:
            return NOBODY
        if self.journal.crowded or (watermark is not None and watermark.low and session.connection is None):
            return None
        share = shares.find(origin)
        return None if shares.is_full(share, len(message.data)) else share

    def expire_at(self, until: float, mailbox: Mailbox) -> None:
        """
        Sends a receipt when the time to live of a message in this mailbox ends at that time.
        """
        timer = self._expiries.get(mailbox)
        if timer is not None:
            if timer.getTime() <= until:
                return
            timer.cancel()
        self._expiries[mailbox] = self._clock.callLater(max(0.0, until - self.now()), self._expire, mailbox)

    def _expire(self, mailbox: Mailbox) -> None:
        del self._expiries[mailbox]
        mailbox.expire()
        until = mailbox.next_expiry()
        if until is not None:
            self.expire_at(until, mailbox)

    def _cancel_expiry(self, mailbox: Mailbox) -> None:
        timer = self._expiries.pop(mailbox, None)
        if timer is not None:
            timer.cancel()

    def send(self, connection: Connection, data: bytes) -> None:
        self.connections.send(connection, data)

    # -- sessions ----------------------------------------------------------

    def create(self, runtime: str, anonymous: bool = False, host: str = "", generation: int = 1) -> Session:
        """
        Creates a session that was opened from this host. It owns all addresses at and below its runtimeURL.
        """
        self._last_sid += 1
        session = Session(runtime, self, self._last_sid)
        session.anonymous, session.host, session.opened_at = anonymous, host, self._wall()
        session.generation = generation
        self._budget.opened(session)
        self._by_runtime[runtime] = session
        self._session_store.opened(session)
        self._routes.join(session)
        self._note("opened", session, None)
        return session

    def adopt_token(self, session: Session, token_hash: bytes) -> None:
        """
        Gives the session the token that it had at another node.
        """
        session.token_hash = token_hash
        if token_hash:
            self._by_token[token_hash] = session
        self._session_store.changed(session)
        self._routes.token_changed(session)

    def rename(self, session: Session, runtime: str) -> None:
        """
        Gives an anonymous session its runtimeURL; its bindings and messages stay.
        """
        self._note("renamed", session, None)
        session.account.charge(text_size(runtime) - text_size(session.runtime))
        del self._by_runtime[session.runtime]
        self._by_runtime[runtime] = session
        session.anonymous = False
        self._routes.rename(session, runtime)
        self._forget_decisions(session)
        self._session_store.opened(session)
        self._note("opened", session, None)

    def remove_merged(self, session: Session) -> None:
        """
        Removes a session that was merged into another one; no client can come back to it. Its connections may
        open again after release_superseded.
        """
        if session.expiry is not None:
            session.expiry.cancel()
            session.expiry = None
        if session.identity_timer is not None and session.identity_timer.active():
            session.identity_timer.cancel()
        self._cancel_expiry(session.mailbox)
        connection = session.connection
        if connection is not None:
            session.detach()
            self._gone(session, connection)
            self._superseded.setdefault(session, set()).add(connection)
        self.void_token(session)
        del self._by_runtime[session.runtime]

    def restore(self, session: Session) -> None:
        """
        Adds a session of before a restart.
        """
        self._last_sid = max(self._last_sid, session.sid)
        self._by_runtime[session.runtime] = session
        self._budget.opened(session)
        if session.token_hash:
            self._by_token[session.token_hash] = session
        self._routes.join(session)

    @property
    def last_sid(self) -> int:
        """
        The sid of the session that began last.
        """
        return self._last_sid

    def reserve_sid(self, sid: int) -> None:
        """
        Reserves a number that is on disk: no new session gets it, although its session is not restored.
        """
        self._last_sid = max(self._last_sid, sid)

    def start_grace_period(self, session: Session, left: float | None) -> None:
        """
        Starts the rest of the session's grace period; `left` is when it lost its connection, by the wall
        clock.
        """
        session.since = self.now()
        away = 0.0 if left is None else max(0.0, self._wall() - left)
        grace = max(0.0, self._grace(session) - away)
        session.expiry = self._clock.callLater(grace, self.end, session, "expired")

    def attach(self, session: Session, connection: Connection) -> None:
        """
        Attaches the connection to this session.

        Session.flush, called after the client was answered, sends the queued messages.
        """
        if self.journal.message_log.failing is not None:
            self.journal.settle()  # if the disk works again, sessions resume, each after its answer
        self.connections.opened(connection)
        if connection.session is not session:
            self._detach(connection)
        if session.expiry is not None:
            session.expiry.cancel()
            session.expiry = None
        older = session.connection
        if older is not None and older is not connection:
            self._note("superseded", session, older)
            outbox = session.mailbox.outbox
            if outbox is not None and outbox.client_requested and not older.acks_by_request:
                # Two connections that count the same session would both count wrong.
                self._set_session(older, None)
                self.connections.send_close(older, SUPERSEDED)
            else:
                self._superseded.setdefault(session, set()).add(older)
        self._not_superseded(connection, session)
        self._set_session(connection, session)
        session.attach(connection)
        if older is not None:
            self.attached[older.connector] -= 1
        self.attached[connection.connector] += 1
        if older is not connection:
            session.since = self.now()
            session.count_attachment(session.since)
            self._note("attached", session, connection)
            if older is None:
                self._session_store.disconnected(session, None)

    def _detach(self, connection: Connection) -> None:
        session = connection.session
        self._set_session(connection, None)
        if session is None:
            return
        if session.connection is not connection:
            self._not_superseded(connection, session)
            return
        session.detach()
        self._gone(session, connection)
        session.since = self.now()
        self._session_store.changed(session)
        self._session_store.disconnected(session, self._wall())
        self._note("detached", session, connection)
        session.expiry = self._clock.callLater(self._grace(session), self.end, session, "expired")

    def _gone(self, session: Session, connection: Connection) -> None:
        """
        Notes that the session has lost this connection.
        """
        self.attached[connection.connector] -= 1
        self._not_ready.discard(session)

    def count_slow(self, most: int = 10_000) -> int:
        """
        Returns how many sessions have a client that is connected and does not read, or does not acknowledge,
        so that messages wait. No more than `most` are looked at.
        """
        looked_at = islice(self._not_ready, most)
        return sum(bool(each.connection is not None and each.mailbox.queued) for each in looked_at)

    def _set_session(self, connection: Connection, session: Session | None) -> None:
        # Nothing else sets it: the data plane repeats what was decided for a connection's session.
        before = connection.session
        if before is not None:
            self._count_carried(before, connection)
        connection.session = session
        self.connections.session_changed(connection, before, session)
        self.data_plane.session_changed(connection)

    def is_superseding(self, session: Session) -> bool:
        """
        Is an older connection of the session still open?
        """
        return session in self._superseded

    def count_carried(self, session: Session) -> None:
        """
        Adds what the data plane has carried for the session to its counters.
        """
        for connection in (session.connection, *self._superseded.get(session, ())):
            if connection is not None:
                self._count_carried(session, connection)

    def _count_carried(self, session: Session, connection: Connection) -> None:
        carried = self.data_plane.take_traffic(connection)
        if carried is not None:
            session.add_carried(*carried)

    def _forget_decisions(self, session: Session) -> None:
        for connection in (session.connection, *self._superseded.get(session, ())):
            if connection is not None:
                self.data_plane.session_changed(connection)

    def _not_superseded(self, connection: Connection, session: Session) -> None:
        older = self._superseded.get(session)
        if older is not None:
            older.discard(connection)
            if not older:
                del self._superseded[session]

    def suspend(self, session: Session, why: Closing) -> None:
        """
        Closes every connection of the session, which then waits for its client to reconnect.
        """
        connections = list(self._superseded.get(session, ()))
        if session.connection is not None:
            connections.append(session.connection)
        for connection in connections:
            self.connections.close(connection, why)

    # -- moves to other nodes --------------------------------------------------------

    def release(self, session: Session, why: Closing) -> None:
        """
        Lets the session go to another node, and it is found by its name no more. Its connections are closed;
        if they are superseded, some may stay open and be relayed. It stays in the routing table, so that what
        is still sent to it here can follow it.
        """
        connection = session.connection
        if why is SUPERSEDED:
            # Clients that do not acknowledge connect again whenever they are closed: two with one name would
            # take the session from each other without end.
            self._leave_connections(session)
        self.suspend(session, why)
        self._stop_timers(session)
        self._by_token.pop(session.token_hash, None)
        del self._by_runtime[session.runtime]
        self.released[session.sid] = session
        self._note("moved", session, connection)

    def hold_again(self, session: Session) -> None:
        """
        Takes back a session whose release could not be written; it waits for its client.
        """
        del self.released[session.sid]
        self._by_runtime[session.runtime] = session
        if session.token_hash:
            self._by_token[session.token_hash] = session
        self.start_grace_period(session, None)

    def forget_released(self, session: Session) -> None:
        """
        Forgets a released session: the other node has all of it.
        """
        del self.released[session.sid]
        self._cancel_expiry(session.mailbox)
        self._routes.forget(session)
        for kept in session.mailbox.undelivered():
            session.mailbox.send_receipt(kept, 202)
            kept.asker = 0
        session.end()
        self._budget.ended(session)
        self._session_store.ended(session)
        # In this order: of a session that is in the database only, no start would know that it has moved.
        written = self._session_store.committed()
        written.addBoth(lambda done: self.journal.forget(session.sid))

    def restore_released(self, session: Session) -> None:
        """
        Adds a released session of before a restart.
        """
        self._last_sid = max(self._last_sid, session.sid)
        self.released[session.sid] = session
        self._budget.opened(session)
        if not self._routes.is_name(session.runtime):
            self._routes.join(session)

    @staticmethod
    def _stop_timers(session: Session) -> None:
        for timer in (session.expiry, session.identity_timer):
            if timer is not None and timer.active():
                timer.cancel()
        session.expiry = None

    def _grace(self, session: Session) -> float:
        times = self._config.session
        if session.anonymous:
            return times.anonymous_expiry_seconds
        if session.used:
            return times.expiry_seconds
        return min(times.unused_expiry_seconds, times.expiry_seconds)

    def end(self, session: Session, event: str) -> None:
        """
        Ends a session that expired, or that its client closed, and removes its bindings.
        """
        if session.expiry is not None and session.expiry.active():
            session.expiry.cancel()
        session.expiry = None
        connection = session.connection
        self._by_token.pop(session.token_hash, None)
        self._cancel_expiry(session.mailbox)
        self._routes.forget(session)  # first, so that it gets no notification of its own end
        self._forget_decisions(session)
        session.end()
        if connection is not None:
            self._gone(session, connection)
        self._budget.ended(session)
        self._session_store.ended(session)
        self.journal.forget(session.sid)
        if self._by_runtime.get(session.runtime) is session:
            del self._by_runtime[session.runtime]
        self.on_end(session)
        self._note(event, session, connection)
        self.release_superseded(session)

    def release_superseded(self, session: Session) -> None:
        """
        Detaches the superseded connections from the session; each may open again.
        """
        for older in self._superseded.pop(session, ()):
            self._set_session(older, None)
            self.connections.made(older)  # as a new connection

    def supersede(self, connection: Connection, session: Session) -> None:
        """
        Makes a connection of another node's a superseded one of the session.
        """
        self.connections.add_transient(connection)
        self._superseded.setdefault(session, set()).add(connection)
        self._set_session(connection, session)

    def _leave_connections(self, session: Session) -> None:
        """
        Takes the connections that can be relayed to the other node from the session.
        """
        for connection in [*self._superseded.get(session, ()), session.connection]:
            if connection is not None and self.relay_connection(connection, session):
                self.connections.detach(connection)

    def _note(self, event: str, session: Session, connection: Connection | None) -> None:
        events = self.counts.sessions
        events[event] = events.get(event, 0) + 1
        self._traffic_recorder.session(event, session, connection)
        self.on_event(event, session)

    def stopService(self) -> Deferred[None]:
        """
        The node stops: pending requests are answered, and sessions handed over to other nodes, then every
        client gets the reason for its disconnection.
        """
        super().stopService()
        self.draining = True
        answered = self._session_store.committed()
        answered.addBoth(lambda done: self.hand_over())
        return answered.addBoth(lambda done: self._close_all())

    def _close_all(self) -> Deferred[None]:
        stopped = self.connections.close_all(min(STOP_WAIT_SECONDS, self._config.drain_seconds / 4))
        for session in self:
            if session.expiry is not None:
                session.expiry.cancel()
                session.expiry = None
            if session.identity_timer is not None and session.identity_timer.active():
                session.identity_timer.cancel()
        return stopped


def _not_relayed(connection: Connection, session: Session) -> bool:
    return False


def _ignore_end(session: Session) -> None:
    pass


def _find_no_ban(runtime: str, user: str, connection: Connection) -> Closing | None:
    return None


def _ignore_event(event: str, session: Session) -> None:
    pass


def _ignore_late(data: bytes, session: Session) -> None:
    pass


def _no_receipt(data: bytes, code: int, asker: int) -> None:
    raise NotImplementedError
