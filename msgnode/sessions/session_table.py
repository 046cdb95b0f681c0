"""
All sessions, and the connections that come and go beneath them.

A session is found by its runtimeURL.  The newest connection wins; what an
older one does later touches nothing.
"""

import random
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from msgnode.config.schema import Config
from msgnode.protocol.close_codes import (
    OPEN_TIMEOUT,
    OVER_CAPACITY,
    RATE,
    SLOW,
    STOPPING,
    SUPERSEDED,
    Closing,
)
from msgnode.protocol.message import Message
from msgnode.sessions.counters import Counters
from msgnode.sessions.journal import DeliveryJournal
from msgnode.sessions.limits.connection_limits import ConnectionLimits
from msgnode.sessions.limits.disk_watermark import Watermark
from msgnode.sessions.limits.memory_budget import Budget, text_size
from msgnode.sessions.limits.overload import Overload
from msgnode.sessions.limits.spool_share import NOBODY, Share, Shares
from msgnode.sessions.limits.unread_answers import Unread
from msgnode.sessions.outbox import Outbox
from msgnode.sessions.persistence import MessageLog, SessionStore
from msgnode.sessions.queue import MessageQueue
from msgnode.sessions.routing import Routes
from msgnode.sessions.session import Connection, Session, hashed

log = Logger()

MAX_REFUSED = 1000  # messages that came too fast, until their connection is closed
STOP_WAITS = 2.0  # seconds at most for clients to hear that the node stops


class TrafficRecorder(Protocol):
    """
    The port to the traffic log: writes down what became of messages and of sessions.
    """

    def message(self, message: Message, session: Session | None) -> None: ...
    def session(self, event: str, session: Session, connection: Connection | None) -> None: ...


class Sessions(Service):
    """
    Sessions by runtimeURL, and every connection, whether it has one or not.
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
        self.unread = Unread(counts)
        self.connections: set[Connection] = set()
        self.draining = False
        self.watermark: Watermark | None = None
        self.shares: Shares | None = None  # of the spool; None where there is none
        self.overload = short = Overload(self, clock)
        self.journal = DeliveryJournal(
            message_log,
            config.session.max_memory_bytes,
            short.make_room,
            short.hold,
            short.go_on,
            clock,
            wall,
        )
        self.journal.shed = short.make_room_on_disk
        self.receipt: Callable[[bytes, int, int], None] = _no_receipt
        self.sent_late: Callable[[bytes, Session], None] = _not_told  # of what waited and leaves now
        self.farewell: Callable[[Session], object] = _no_farewell  # told of each session that ended
        self._by_runtime: dict[str, Session] = {}
        self._by_token: dict[bytes, Session] = {}
        self._before_open: dict[Connection, IDelayedCall] = {}
        # They go on under their session, so its end has to find them.
        self._superseded: dict[Session, set[Connection]] = {}
        self._stale: dict[Session, IDelayedCall] = {}  # when a sender is told that its message went stale
        self._cutting: set[Connection] = set()  # will be closed for not reading
        self._delayed: dict[Connection, IDelayedCall] = {}  # will be closed a little later
        self._stopped: Deferred[None] | None = None
        self._config = config
        self._routes = routes
        self._traffic_recorder = traffic_recorder
        self._clock = clock
        self._session_store = session_store
        self._connection_limits = connection_limits
        self._budget = budget
        self._refused: dict[Connection, int] = {}  # messages refused because they came too fast
        self._wall = wall
        self._chance = chance
        self._last_sid = 0

    def __len__(self) -> int:
        return len(self._by_runtime)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._by_runtime.values())

    def get(self, runtime: str) -> Session | None:
        return self._by_runtime.get(runtime)

    def by_token(self, token: str) -> Session | None:
        """
        The session whose current token this is.
        """
        return self._by_token.get(hashed(token))

    def issue_token(self, session: Session) -> str:
        """
        A new token for the session; the old one is void.
        """
        self._by_token.pop(session.token_hash, None)
        token = session.issue_token()
        self._by_token[session.token_hash] = session
        self._session_store.changed(session)
        return token

    def void_token(self, session: Session) -> None:
        """
        Nobody comes back by the token it had.
        """
        if session.token_hash:
            self._by_token.pop(session.token_hash, None)
            session.token_hash = b""
            self._session_store.changed(session)

    # -- what a session asks of us -----------------------------------------

    def now(self) -> float:
        return self._clock.seconds()

    def make_queue(self) -> MessageQueue:
        bounds = self._config.session
        return MessageQueue(bounds.queue_messages, bounds.queue_bytes)

    def make_outbox(self, session: Session, asked: bool) -> Outbox:
        bounds = self._config.session
        return Outbox(session, bounds.queue_messages, bounds.queue_bytes, asked)

    def overflowed(self, session: Session) -> None:
        """
        More came than may wait.  A client that does not read is cut off; its session stays.
        """
        connection = session.connection
        if connection is not None and connection not in self._cutting:
            log.warn("{runtime} does not read; closing its connection", runtime=session.runtime)
            self._cutting.add(connection)
            # Not now: the message that was one too many may be on its way to others.
            self._clock.callLater(0, self._cut, connection, SLOW)

    def may_keep(self, message: Message, session: Session) -> Share | None:
        """
        Whose share this message takes while it waits for that session; None: it may not.

        What the node itself has to say always may, and what waits for a slice only.
        """
        origin, watermark, shares = message.origin, self.watermark, self.shares
        if origin is None or shares is None or session.due:
            return NOBODY
        if self.journal.crowded or (watermark is not None and watermark.low and session.connection is None):
            return None
        share = shares.find(origin)
        return None if shares.is_full(share, len(message.data)) else share

    def _cut(self, connection: Connection, why: Closing) -> None:
        self._cutting.discard(connection)
        if connection in self.connections:
            self.part(connection, why)

    def expire_at(self, until: float, session: Session) -> None:
        """
        Somebody wants to know when what waits there goes stale.
        """
        timer = self._stale.get(session)
        if timer is not None:
            if timer.getTime() <= until:
                return
            timer.cancel()
        self._stale[session] = self._clock.callLater(max(0.0, until - self.now()), self._drop_stale, session)

    def _drop_stale(self, session: Session) -> None:
        del self._stale[session]
        session.drop_stale()
        until = session.next_asked()
        if until is not None:
            self.expire_at(until, session)

    # -- connections -------------------------------------------------------

    def arrived(self, connection: Connection) -> None:
        """
        A connection is there; it has `open_deadline_seconds` to say who it is.
        """
        self.connections.add(connection)
        deadline = self._config.session.open_deadline_seconds
        self._before_open[connection] = self._clock.callLater(deadline, self._never_opened, connection)
        if not self._connection_limits.admit(connection):
            self.part(connection, OVER_CAPACITY)

    def _never_opened(self, connection: Connection) -> None:
        del self._before_open[connection]
        self._lose(connection, OPEN_TIMEOUT)

    def _lose(self, connection: Connection, why: Closing) -> None:
        connection.lose(why.spread(self._chance()))

    def lost(self, connection: Connection) -> None:
        """
        A connection is gone.  A session that uses another one by now is not touched.
        """
        self.connections.discard(connection)
        self._connection_limits.gone(connection)
        self._refused.pop(connection, None)
        self.unread.gone(connection)
        self._let_be(connection)
        self._stop_waiting(connection)
        self._leave(connection)
        if self._stopped is not None and not self._stopped.called and not self.connections:
            self._stopped.callback(None)

    def leave(self, connection: Connection) -> None:
        """
        The connection is still there, but takes nothing more.
        """
        self._stop_waiting(connection)
        self._leave(connection)

    def part(self, connection: Connection, why: Closing, delay: float = 0) -> None:
        """
        Close a connection from our side, after `delay` seconds; its session, if it has one, stays.

        At once, where `limits.delayed_closes` others wait for that.
        """
        self._stop_waiting(connection)
        self._leave(connection)
        if delay and connection in self._delayed:
            return
        if delay and len(self._delayed) < self._config.limits.delayed_closes:
            self._delayed[connection] = self._clock.callLater(delay, self._part_at_last, connection, why)
        else:
            self._lose(connection, why)

    def park(self, session: Session, why: Closing) -> None:
        """
        Close every connection of the session, which waits for its client to come back.
        """
        connections = list(self._superseded.get(session, ()))
        if session.connection is not None:
            connections.append(session.connection)
        for connection in connections:
            self.part(connection, why)

    @property
    def delayed_closes(self) -> int:
        return len(self._delayed)

    def _part_at_last(self, connection: Connection, why: Closing) -> None:
        del self._delayed[connection]
        if connection in self.connections and connection.session is None:
            self._lose(connection, why)

    def too_fast(self, connection: Connection) -> None:
        """
        A message was refused for coming too fast.  Who does not heed many of these is cut off.
        """
        refused = self._refused[connection] = self._refused.get(connection, 0) + 1
        if refused == MAX_REFUSED:
            self._clock.callLater(0, self._cut, connection, RATE)

    def tell(self, connection: Connection, data: bytes) -> None:
        """
        Send what cannot wait in a session.  Who does not read is cut off.
        """
        if connection.full:
            self.part(connection, SLOW)
        else:
            self.say(connection, data)

    def say(self, connection: Connection, data: bytes) -> None:
        """
        Send on this connection, whatever waits for its session.  Who does not read such is not read from.
        """
        self.counts.sent += 1
        self.counts.sent_bytes += len(data)
        connection.send(data)
        if connection.full:
            self.unread.add(connection, len(data))

    def paused(self, connection: Connection) -> None:
        """
        The client does not read; its messages wait.
        """
        connection.full = True
        session = connection.session
        if session is not None and session.connection is connection:
            session.pause()

    def ready(self, connection: Connection) -> None:
        """
        The client reads again.
        """
        connection.full = False
        self.unread.read(connection)
        session = connection.session
        if session is not None and session.connection is connection:
            session.resume()
            if session.outbox is not None and session.outbox.untold:
                session.outbox.tell()

    def _stop_waiting(self, connection: Connection) -> None:
        deadline = self._before_open.pop(connection, None)
        if deadline is not None:
            deadline.cancel()

    def _let_be(self, connection: Connection) -> None:
        """
        It need not be closed any more: it is gone, or has a session.
        """
        delayed = self._delayed.pop(connection, None)
        if delayed is not None:
            delayed.cancel()

    # -- sessions ----------------------------------------------------------

    def create(self, runtime: str, anonymous: bool = False, host: str = "") -> Session:
        """
        A new session, opened from this host.  Everything at and below its runtimeURL is its own from now on.
        """
        self._last_sid += 1
        session = Session(runtime, self, self._last_sid)
        session.anonymous, session.host = anonymous, host
        self._budget.opened(session)
        self._by_runtime[runtime] = session
        self._session_store.opened(session)
        self._routes.join(session)
        self._note("opened", session, None)
        return session

    def rename(self, session: Session, runtime: str) -> None:
        """
        An anonymous session is that runtime's from now on, with all it has.
        """
        self._note("renamed", session, None)
        session.account.charge(text_size(runtime) - text_size(session.runtime))
        del self._by_runtime[session.runtime]
        self._by_runtime[runtime] = session
        session.anonymous = False
        self._routes.rename(session, runtime)
        self._session_store.opened(session)
        self._note("opened", session, None)

    def give_way(self, session: Session) -> None:
        """
        It becomes one with another, and nobody comes back to it.  Its connections may open again once they
        are unseated.
        """
        if session.expiry is not None:
            session.expiry.cancel()
            session.expiry = None
        if session.identity_timer is not None and session.identity_timer.active():
            session.identity_timer.cancel()
        timer = self._stale.pop(session, None)
        if timer is not None:
            timer.cancel()
        connection = session.connection
        if connection is not None:
            session.detach()
            self._superseded.setdefault(session, set()).add(connection)
        self.void_token(session)
        del self._by_runtime[session.runtime]

    def restore(self, session: Session) -> None:
        """
        A session of before a restart.
        """
        self._last_sid = max(self._last_sid, session.sid)
        self._by_runtime[session.runtime] = session
        self._budget.opened(session)
        if session.token_hash:
            self._by_token[session.token_hash] = session
        self._routes.join(session)

    def retire(self, sid: int) -> None:
        """
        No new session gets this number: what is on disk for it is not restored, and still there.
        """
        self._last_sid = max(self._last_sid, sid)

    def expect(self, session: Session, left: float | None) -> None:
        """
        Wait for its client as long as is left; `left`: when it lost its connection, by the wall clock.
        """
        session.since = self.now()
        away = 0.0 if left is None else max(0.0, self._wall() - left)
        grace = max(0.0, self._grace(session) - away)
        session.expiry = self._clock.callLater(grace, self.end, session, "expired")

    def attach(self, session: Session, connection: Connection) -> None:
        """
        The connection speaks for this session from now on.

        Session.resume, called after the client was answered, sends what waits.
        """
        self._let_be(connection)
        if self.journal.message_log.failing is not None:
            self.journal.settle()  # if it takes something now, others go on, but nobody before its answer
        self._stop_waiting(connection)
        if connection.session is not session:
            self._leave(connection)
        if session.expiry is not None:
            session.expiry.cancel()
            session.expiry = None
        older = session.connection
        if older is not None and older is not connection:
            self._note("superseded", session, older)
            if session.outbox is not None and session.outbox.asked and not older.counted:
                # Two that count the same session would both count wrong.
                older.session = None
                self._lose(older, SUPERSEDED)
            else:
                self._superseded.setdefault(session, set()).add(older)
        self._not_superseded(connection, session)
        connection.session = session
        session.attach(connection)
        if older is not connection:
            session.since = self.now()
            self._note("attached", session, connection)
            if older is None:
                self._session_store.left(session, None)

    def _leave(self, connection: Connection) -> None:
        session, connection.session = connection.session, None
        if session is None:
            return
        if session.connection is not connection:
            self._not_superseded(connection, session)
            return
        session.detach()
        session.since = self.now()
        self._session_store.changed(session)
        self._session_store.left(session, self._wall())
        self._note("detached", session, connection)
        session.expiry = self._clock.callLater(self._grace(session), self.end, session, "expired")

    def _not_superseded(self, connection: Connection, session: Session) -> None:
        older = self._superseded.get(session)
        if older is not None:
            older.discard(connection)
            if not older:
                del self._superseded[session]

    def _grace(self, session: Session) -> float:
        times = self._config.session
        if session.anonymous:
            return times.anonymous_expiry_seconds
        if session.used:
            return times.expiry_seconds
        return min(times.unused_expiry_seconds, times.expiry_seconds)

    def end(self, session: Session, event: str) -> None:
        """
        Forget a session and all that is bound to it: it expired, or its client closed it.
        """
        if session.expiry is not None and session.expiry.active():
            session.expiry.cancel()
        session.expiry = None
        connection = session.connection
        self._by_token.pop(session.token_hash, None)
        timer = self._stale.pop(session, None)
        if timer is not None:
            timer.cancel()
        self._routes.forget(session)  # before: it is told nothing of its own end
        session.end()
        self._budget.ended(session)
        self._session_store.ended(session)
        self.journal.forget(session.sid)
        if self._by_runtime.get(session.runtime) is session:
            del self._by_runtime[session.runtime]
        self.farewell(session)
        self._note(event, session, connection)
        self.unseat(session)

    def unseat(self, session: Session) -> None:
        """
        The connections that were superseded speak for the session no longer; each may open again.
        """
        for older in self._superseded.pop(session, ()):
            older.session = None
            self.arrived(older)  # as if it had just come

    def _note(self, event: str, session: Session, connection: Connection | None) -> None:
        events = self.counts.sessions
        events[event] = events.get(event, 0) + 1
        self._traffic_recorder.session(event, session, connection)

    def stopService(self) -> Deferred[None]:
        """
        The node stops: what is in hand is answered, every client is told, and given a moment to hear it.
        """
        super().stopService()
        self.draining = True
        answered = self._session_store.settled()
        return answered.addBoth(lambda done: self._close_all())

    def _close_all(self) -> Deferred[None]:
        for connection in list(self.connections):
            self.part(connection, STOPPING)
        for session in self:
            if session.expiry is not None:
                session.expiry.cancel()
                session.expiry = None
            if session.identity_timer is not None and session.identity_timer.active():
                session.identity_timer.cancel()
        self._stopped = Deferred()
        if self.connections:
            wait = min(STOP_WAITS, self._config.drain_seconds / 4)
            patience = self._clock.callLater(wait, self._stopped.callback, None)
            self._stopped.addBoth(lambda done: patience.cancel() if patience.active() else None)
        else:
            self._stopped.callback(None)
        return self._stopped


def _no_farewell(session: Session) -> None:
    pass


def _not_told(data: bytes, session: Session) -> None:
    pass


def _no_receipt(data: bytes, code: int, asker: int) -> None:
    raise NotImplementedError
