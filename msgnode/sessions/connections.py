"""
All client connections, with or without a session: how they open, and how the node closes them.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.config.schema import Config
from msgnode.protocol.close_codes import OPEN_TIMEOUT, OVER_CAPACITY, RATE, SLOW, STOPPING, Closing
from msgnode.sessions.counters import Counters
from msgnode.sessions.history.connection_records import ClosedConnections, ConnectionRecord
from msgnode.sessions.limits.connection_limits import ConnectionLimits
from msgnode.sessions.limits.unread_answers import Unread
from msgnode.sessions.session import Connection, Session

MAX_REFUSED = 1000  # messages refused over the rate limit before their connection is closed
STOP_WAIT_SECONDS = 2.0  # at most, until clients have got the notice that the node stops


class Connections:
    """
    The set of open connections.

    Each connection has `open_deadline_seconds` to open a session, and its client must read what is sent and
    respect refusals; otherwise the connection is closed. `detach` is called for each connection that no
    longer serves its session; `chance` returns numbers from 0 to 1, which spread the reconnect delays of
    clients.

    `by_connector` counts the open connections, `by_local_address` those for which `local_address` returns the
    address of this machine that they came to. `refuses` says why a new connection is refused, if it is, and
    `on_refused` is called for each.
    """

    def __init__(
        self,
        config: Config,
        limits: ConnectionLimits,
        counts: Counters,
        clock: IReactorTime,
        chance: Callable[[], float],
        detach: Callable[[Connection], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.unread = Unread(counts)
        # Called with each connection that is lost, or opens a session.
        self.left: Callable[[Connection], object] = _ignore
        # Does the node hold what the connection has sent?
        self.is_held: Callable[[Connection], bool] = _is_never_held
        self.by_connector: Counter[str] = Counter()
        self.by_local_address: Counter[str] = Counter()
        self.local_address: Callable[[Connection], str] = _nowhere
        self.closed = ClosedConnections(wall)
        self.refuses: Callable[[Connection], Closing | None] = _refuse_none
        self.on_refused: Callable[[Connection, Closing], object] = _ignore_refusal
        self._all: dict[Connection, ConnectionRecord] = {}
        self._last_number = 0
        self._open_deadlines: dict[Connection, IDelayedCall] = {}
        self._closing: set[Connection] = set()  # to be closed in the next turn, for not reading
        self._delayed: dict[Connection, IDelayedCall] = {}  # to be closed after a delay
        self._refused: dict[Connection, int] = {}  # messages refused over the rate limit
        self._stopped: Deferred[None] | None = None
        self._config = config
        self._limits = limits
        self._counts = counts
        self._clock = clock
        self._chance = chance
        self._detach = detach

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._all)

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._all

    @property
    def delayed_closes(self) -> int:
        """
        The number of connections that are closed after a delay.
        """
        return len(self._delayed)

    # -- how they open and close ------------------------------------------------

    def made(self, connection: Connection) -> None:
        """
        Adds a new connection, which has `open_deadline_seconds` to open a session, and longer while the node
        holds what it has sent.
        """
        self._add(connection)
        self._start_open_deadline(connection)
        why = None if self._limits.admit(connection) else OVER_CAPACITY
        why = why or self.refuses(connection)
        if why is not None:
            self.on_refused(connection, why)
            self.close(connection, why)

    def add_transient(self, connection: Connection) -> None:
        """
        Adds a connection for one request, which opens no session and counts in its connector's limits.
        """
        self._add(connection)

    def _add(self, connection: Connection) -> None:
        if connection not in self._all:
            self._last_number += 1
            record = ConnectionRecord(self._last_number, connection, self.closed.wall())
            self._all[connection] = record
            self.by_connector[connection.connector] += 1
            record.local_address = self.local_address(connection)
            if record.local_address:
                self.by_local_address[record.local_address] += 1

    def record(self, connection: Connection) -> ConnectionRecord | None:
        """
        The record of an open connection.
        """
        return self._all.get(connection)

    def session_changed(self, connection: Connection, before: Session | None, now: Session | None) -> None:
        """
        Notes which session the connection serves from now on.
        """
        record = self._all.get(connection)
        if record is None:
            return
        if before is not None:
            record.leave(before)
        if now is not None:
            record.join(now)

    def lost(self, connection: Connection, code: int = 0, reason: str = "") -> None:
        """
        Removes a lost connection; `code` and `reason` are those with which its client closed it, if it did. A
        session that already uses another connection is not affected.
        """
        record = self._all.pop(connection, None)
        self.left(connection)
        self._limits.gone(connection)
        self._refused.pop(connection, None)
        self.unread.gone(connection)
        self._cancel_delayed_close(connection)
        session = connection.session
        self.detach(connection)
        if record is not None:
            if session is not None:
                record.leave(session)
            record.peer = connection.peer  # in the PROXY protocol it is known late
            self.by_connector[record.connector] -= 1
            self._count_off(record.local_address)
            self.closed.add(record, code, reason)
        if self._stopped is not None and not self._stopped.called and not self._all:
            self._stopped.callback(None)

    def _count_off(self, address: str) -> None:
        self.by_local_address[address] -= 1
        if self.by_local_address[address] <= 0:
            del self.by_local_address[address]

    def detach(self, connection: Connection) -> None:
        """
        Detaches the connection from its session. It stays open, and no longer needs to open a session.
        """
        self._cancel_open_deadline(connection)
        self._detach(connection)

    def opened(self, connection: Connection) -> None:
        """
        Notes that the connection has opened a session.
        """
        self.left(connection)
        self._cancel_delayed_close(connection)
        self._cancel_open_deadline(connection)

    def _never_opened(self, connection: Connection) -> None:
        del self._open_deadlines[connection]
        if self.is_held(connection):
            self._start_open_deadline(connection)  # its `open` may be among what waits here
        else:
            self.send_close(connection, OPEN_TIMEOUT)

    def _start_open_deadline(self, connection: Connection) -> None:
        deadline = self._config.session.open_deadline_seconds
        self._open_deadlines[connection] = self._clock.callLater(deadline, self._never_opened, connection)

    def _cancel_open_deadline(self, connection: Connection) -> None:
        deadline = self._open_deadlines.pop(connection, None)
        if deadline is not None:
            deadline.cancel()

    def _cancel_delayed_close(self, connection: Connection) -> None:
        delayed = self._delayed.pop(connection, None)
        if delayed is not None:
            delayed.cancel()

    # -- how the node closes them ------------------------------------------------

    def close(self, connection: Connection, why: Closing, delay: float = 0) -> None:
        """
        Closes a connection from the node's side, after `delay` seconds; its session, if it has one, stays
        open.

        The connection is closed at once if `limits.delayed_closes` others are waiting.
        """
        self.detach(connection)
        if delay and connection in self._delayed:
            return
        if delay and len(self._delayed) < self._config.limits.delayed_closes:
            self._delayed[connection] = self._clock.callLater(delay, self._delayed_close, connection, why)
        else:
            self.send_close(connection, why)

    def _delayed_close(self, connection: Connection, why: Closing) -> None:
        del self._delayed[connection]
        if connection in self._all and connection.session is None:
            self.send_close(connection, why)

    def send_close(self, connection: Connection, why: Closing) -> None:
        """
        Sends the reason to the client, and closes the connection.
        """
        record = self._all.get(connection)
        if record is not None and record.closing is None:
            record.closing = why
        connection.lose(why.spread(self._chance()))

    def close_slow(self, connection: Connection) -> bool:
        """
        Closes a connection whose client does not read, in the next turn. False: it is being closed already.

        The current turn is too early: the message that was one too many may be on its way to other
        recipients.
        """
        if connection in self._closing:
            return False
        self._closing.add(connection)
        self._clock.callLater(0, self._close_if_open, connection, SLOW)
        return True

    def too_fast(self, connection: Connection) -> None:
        """
        Counts a message that was refused over the rate limit. A client that ignores many refusals is
        disconnected.
        """
        refused = self._refused[connection] = self._refused.get(connection, 0) + 1
        if refused == MAX_REFUSED:
            self._clock.callLater(0, self._close_if_open, connection, RATE)

    def _close_if_open(self, connection: Connection, why: Closing) -> None:
        self._closing.discard(connection)
        if connection in self._all:
            self.close(connection, why)

    def close_all(self, most: float) -> Deferred[None]:
        """
        The node stops: notifies every client. Fires when all connections are closed, after `most` seconds at
        the latest.
        """
        for connection in list(self._all):
            self.close(connection, STOPPING)
        stopped: Deferred[None] = Deferred()
        self._stopped = stopped
        if self._all:
            timeout = self._clock.callLater(most, stopped.callback, None)
            stopped.addBoth(lambda done: timeout.cancel() if timeout.active() else None)
        else:
            stopped.callback(None)
        return stopped

    # -- what is sent to them ------------------------------------------------------

    def send_or_close(self, connection: Connection, data: bytes) -> None:
        """
        Sends data that cannot wait in a session. A client that does not read is disconnected.
        """
        if connection.write_paused:
            self.close(connection, SLOW)
        else:
            self.send(connection, data)

    def send(self, connection: Connection, data: bytes) -> None:
        """
        Sends data ahead of everything queued for the session. The node stops reading from a client that does
        not read it.
        """
        self._counts.sent += 1
        self._counts.sent_bytes += len(data)
        connection.send(data)
        if connection.write_paused:
            self.unread.add(connection, len(data))

    def write_paused(self, connection: Connection) -> None:
        """
        Notes that the transport accepts no more; messages for its session are queued.
        """
        connection.write_paused = True
        session = connection.session
        if session is not None and session.connection is connection:
            session.pause()

    def write_resumed(self, connection: Connection) -> None:
        """
        Notes that the transport accepts data again.
        """
        connection.write_paused = False
        self.unread.read(connection)
        session = connection.session
        if session is not None and session.connection is connection:
            session.flush()
            inbox = session.mailbox.inbox
            if inbox is not None and inbox.unacknowledged:
                inbox.send_ack()


def _nowhere(connection: Connection) -> str:
    return ""


def _refuse_none(connection: Connection) -> Closing | None:
    return None


def _ignore_refusal(connection: Connection, why: Closing) -> None:
    pass


def _ignore(connection: Connection) -> None:
    pass


def _is_never_held(connection: Connection) -> bool:
    return False
