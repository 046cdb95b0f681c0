"""
Input order: while one message of a connection is processed, its later frames are buffered.

This keeps the order of a connection even if the processing takes more than one turn of the reactor, and even
if the client reconnects. Meanwhile the node does not read from the client, and the input already read is
bounded.
"""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from msgnode.protocol.close_codes import OVER_CAPACITY, Closing
from msgnode.sessions.limits.partial_input import PartialInput
from msgnode.sessions.session import Connection, Session
from msgnode.transport.data_plane import NO_DATA_PLANE

log = Logger()

MAX_BUFFERED_BYTES = 64 * 1024  # bytes buffered behind work that may be cancelled
MAX_UNSTOPPED_BYTES = (
    1024 * 1024
)  # bytes buffered behind other work, when the client cannot be stopped from sending
FRAME_OVERHEAD_BYTES = 200  # bytes of memory for a frame in addition to its content
MAX_TURN_BYTES = 64 * 1024  # bytes of buffered frames processed in one turn

Take = Callable[[], object]


class Work:
    """
    One piece of work on one connection, from InputOrder.hold to InputOrder.release.
    """

    __slots__ = ("connection", "give_up", "most", "timer")

    def __init__(self, connection: Connection, most: int, give_up: Callable[[], object] | None) -> None:
        self.connection = connection
        self.most = most
        self.give_up = give_up
        self.timer: IDelayedCall | None = None

    def stop(self) -> None:
        if self.timer is not None and self.timer.active():
            self.timer.cancel()


class _Pending:
    """
    A connection with work in progress, and the frames buffered behind it.
    """

    def __init__(self, session: Session | None) -> None:
        self.session = session
        self.works: list[Work] = []
        self.frames: deque[tuple[int, Take]] = deque()
        self.size = 0
        self.paused = False
        self.waiting: list[Deferred[None]] = []


class InputOrder:
    """
    A buffer for the frames that a client sends behind a message that is still being processed.

    `pending` has the connections whose frames wait; a frame from one of them is buffered.

    `part` closes a connection; `is_there` says if it is still open. `together` collects the output of a
    buffered frame, so that all that it causes is in the journal before its first byte leaves. The node sets
    `receive`, which gets the buffered frames as if they had just arrived.
    """

    receive: Callable[[bytes, Connection], object]

    def __init__(
        self,
        part: Callable[[Connection, Closing], None],
        is_there: Callable[[Connection], bool],
        clock: IReactorTime,
        partial_input: PartialInput | None = None,
    ) -> None:
        self._partial_input = partial_input
        self.together: AbstractContextManager[Any] = nullcontext()
        self.pending: dict[Connection, _Pending] = {}
        self._newest: dict[Session, Connection] = {}  # the connections of `pending` by their session
        self._behind: dict[Connection, list[Connection]] = {}  # the connections that each one waits for
        self.data_plane = NO_DATA_PLANE
        self._firing = False
        self._part = part
        self._is_there = is_there
        self._clock = clock

    def __len__(self) -> int:
        return len(self.pending)

    @property
    def buffered_bytes(self) -> int:
        """
        The bytes buffered behind all connections, in memory.
        """
        return sum(pending.size for pending in self.pending.values())

    # -- work --------------------------------------------------------------------

    def hold(
        self,
        connection: Connection,
        give_up: Callable[[], object] | None = None,
        timeout: float | None = None,
        most: int = MAX_BUFFERED_BYTES,
    ) -> Work:
        """
        Buffers the connection's frames until the work is released; several works may hold it at once.

        With `give_up`, the work is cancelled after `timeout` seconds or with more than `most` bytes behind
        it: the buffered frames are dropped, then `give_up` is called. Without it, the work has no limit of
        time, and the node does not read from the client.
        """
        pending = self.pending.get(connection)
        if pending is None:
            session = connection.session
            if session is not None and session.connection is not connection:
                session = None
            pending = self.pending[connection] = _Pending(session)
            self.data_plane.block(connection)
            if session is not None:
                self._newest[session] = connection
        work = Work(connection, most, give_up)
        pending.works.append(work)
        if give_up is None:
            self._pause(pending, connection)
        if timeout is not None:
            work.timer = self._clock.callLater(timeout, self._give_up, work)
        return work

    def release(self, work: Work, again: Take | None = None) -> bool:
        """
        Ends the work; the buffered frames are processed, after `again`. False: the work was cancelled before.
        """
        pending = self.pending.get(work.connection)
        if pending is None or work not in pending.works:
            return False
        work.stop()
        pending.works.remove(work)
        if again is not None:
            pending.frames.appendleft((0, again))
        if not pending.works:
            self._take(pending, work.connection)
        return True

    def follow(self, session: Session, connection: Connection) -> None:
        """
        The session's client came back on this connection: its frames are processed after the earlier ones.
        """
        over = self.settled_for(session, connection)
        if over is not None:
            work = self.hold(connection)
            over.addCallback(lambda done: self.release(work))

    def settled_for(self, session: Session, connection: Connection) -> Deferred[None] | None:
        """
        Fires when the frames of the session's other connections are processed; None: they are.
        """
        before = self._newest.get(session)
        if before is None or before is connection or self._waits_for(before, connection):
            return None
        over = self.settled(before)
        if over is not None:
            self._behind.setdefault(connection, []).append(before)
            over.addCallback(lambda done: self._no_longer_behind(connection, before))
        return over

    def _waits_for(self, connection: Connection, other: Connection) -> bool:
        """
        Would the other connection wait for itself, if it waited for this one?
        """
        found, seen = [connection], {connection}
        while found:
            for each in self._behind.get(found.pop(), ()):
                if each is other:
                    return True
                if each not in seen:
                    seen.add(each)
                    found.append(each)
        return False

    def _no_longer_behind(self, connection: Connection, before: Connection) -> None:
        left = self._behind[connection]
        left.remove(before)
        if not left:
            del self._behind[connection]

    def settled(self, connection: Connection) -> Deferred[None] | None:
        """
        Fires when no frame of the connection is buffered any more; None: none is.
        """
        pending = self.pending.get(connection)
        if pending is None:
            return None
        over: Deferred[None] = Deferred()
        pending.waiting.append(over)
        return over

    def _give_up(self, work: Work) -> None:
        pending = self._remove(work.connection)
        for each in pending.works:
            each.stop()
        if work.give_up is not None:
            work.give_up()
        self._over(pending, work.connection)

    # -- frames that arrive meanwhile --------------------------------------------------------

    def buffer(self, data: bytes, connection: Connection, take: Take | None = None) -> None:
        """
        Buffers a frame; `take` is called for it later, or `receive` if there is none.
        """
        pending = self.pending[connection]
        size = len(data) + FRAME_OVERHEAD_BYTES
        if pending.paused and pending.size > MAX_UNSTOPPED_BYTES:
            log.warn("{peer} continues to send while the node does not read from it", peer=connection.peer)
            self._disconnect(pending, connection)
            return
        pending.frames.append((size, take or partial(self.receive, data, connection)))
        pending.size += size
        if not self._has_room(pending, connection):
            self._disconnect(pending, connection)
            return
        for work in pending.works:
            if work.give_up is not None and pending.size > work.most:
                self._give_up(work)
                return

    def _has_room(self, pending: _Pending, connection: Connection) -> bool:
        """
        Is there room for these frames in the limit of all partial input?
        """
        return self._partial_input is None or self._partial_input.grow_untimed(
            pending, pending.size, connection.peer
        )

    def _is_over(self, pending: _Pending) -> None:
        if self._partial_input is not None:
            self._partial_input.done(pending)

    def _disconnect(self, pending: _Pending, connection: Connection) -> None:
        self._remove(connection)
        for each in pending.works:
            each.stop()
        self._part(connection, OVER_CAPACITY)
        self._over(pending, connection)

    def _remove(self, connection: Connection) -> _Pending:
        pending = self.pending.pop(connection)
        self.data_plane.unblock(connection)
        if pending.session is not None and self._newest.get(pending.session) is connection:
            del self._newest[pending.session]
        return pending

    def _take(self, pending: _Pending, connection: Connection) -> None:
        """
        Processes the buffered frames, a part of them in each turn, until one of the frames is held itself.
        """
        self._remove(connection)
        taken = 0
        while self._is_there(connection):
            if taken > MAX_TURN_BYTES and pending.frames:
                self._clock.callLater(0, self.release, self.hold(connection))
            newer = self.pending.get(connection)
            if newer is not None:
                newer.frames.extend(pending.frames)
                newer.size += pending.size
                newer.waiting += pending.waiting
                if newer.paused and pending.paused:
                    connection.resume_reading()  # each has paused it
                newer.paused = newer.paused or pending.paused
                self._is_over(pending)
                self._has_room(newer, connection)
                return
            if not pending.frames:
                break
            size, take = pending.frames.popleft()
            pending.size -= size
            taken += size
            try:
                with self.together:
                    take()
            except Exception:
                log.failure("a buffered frame could not be processed")
        self._over(pending, connection)

    def _pause(self, pending: _Pending, connection: Connection) -> None:
        if not pending.paused and self._is_there(connection):
            pending.paused = True
            connection.pause_reading()

    def _over(self, pending: _Pending, connection: Connection) -> None:
        self._is_over(pending)
        if pending.paused and self._is_there(connection):
            connection.resume_reading()
        for over in pending.waiting:
            self._fire(over)

    def _fire(self, over: Deferred[None]) -> None:
        """
        Fires one waiter in each turn if one ends another's wait: the chain may be long.
        """
        if self._firing:
            self._clock.callLater(0, self._fire, over)
            return
        self._firing = True
        try:
            over.callback(None)
        finally:
            self._firing = False
