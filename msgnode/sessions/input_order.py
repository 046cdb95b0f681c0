"""
Input order: while one message of a connection is worked on, its later frames wait.

The order of a connection is kept that way, though the work takes more than one
turn of the reactor, and though the client comes back by another connection.
Meanwhile nothing is read from the client, and what one read had brought already
is bounded.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from msgnode.protocol.close_codes import OVER_CAPACITY, Closing
from msgnode.sessions.limits.partial_input import PartialInput
from msgnode.sessions.session import Connection, Session

log = Logger()

MAX_KEPT = 64 * 1024  # bytes behind work that may be given up
MAX_UNREAD = 1024 * 1024  # bytes behind work that goes on, when the client cannot be kept from sending
FRAME = 200  # bytes of memory for a frame beside its own
AT_ONCE = 64 * 1024  # bytes of frames taken in one turn, once they need not wait

Take = Callable[[], object]


class Work:
    """
    One piece of work on one connection, begun by InputOrder.hold and ended by InputOrder.release.
    """

    __slots__ = ("connection", "give_up", "late", "most")

    def __init__(self, connection: Connection, most: int, give_up: Callable[[], object] | None) -> None:
        self.connection = connection
        self.most = most
        self.give_up = give_up
        self.late: IDelayedCall | None = None

    def stop(self) -> None:
        if self.late is not None and self.late.active():
            self.late.cancel()


class _Held:
    """
    A connection that is worked for, and what came behind.
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
    Buffers what a client sends behind a message that is still worked on.

    `held` has the connections whose frames wait; a frame that comes for one of them is kept.

    `part` closes a connection; `is_there`: is it still open?  `receive` is set
    by the node: what waited is received as if it came now.
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
        self.held: dict[Connection, _Held] = {}
        self._newest: dict[Session, Connection] = {}  # of those, by whose connection it is
        self._behind: dict[Connection, list[Connection]] = {}  # which ones it waits for
        self._telling = False
        self._part = part
        self._is_there = is_there
        self._clock = clock

    def __len__(self) -> int:
        return len(self.held)

    @property
    def kept_bytes(self) -> int:
        """
        What waits behind all of them, in memory.
        """
        return sum(held.size for held in self.held.values())

    # -- work --------------------------------------------------------------------

    def hold(
        self,
        connection: Connection,
        give_up: Callable[[], object] | None = None,
        patience: float | None = None,
        most: int = MAX_KEPT,
    ) -> Work:
        """
        Let the connection's frames wait until the work is released; several may hold it at once.

        With `give_up` the work ends in vain after `patience` seconds or with
        more than `most` bytes behind it: what waited is thrown away, then that
        is called.  Without, it takes as long as it takes, and the client is
        not read from.
        """
        held = self.held.get(connection)
        if held is None:
            session = connection.session
            if session is not None and session.connection is not connection:
                session = None
            held = self.held[connection] = _Held(session)
            if session is not None:
                self._newest[session] = connection
        work = Work(connection, most, give_up)
        held.works.append(work)
        if give_up is None:
            self._pause(held, connection)
        if patience is not None:
            work.late = self._clock.callLater(patience, self._give_up, work)
        return work

    def release(self, work: Work, again: Take | None = None) -> bool:
        """
        The work is done; what waited is taken, after `again`.  False: it had been given up.
        """
        held = self.held.get(work.connection)
        if held is None or work not in held.works:
            return False
        work.stop()
        held.works.remove(work)
        if again is not None:
            held.frames.appendleft((0, again))
        if not held.works:
            self._take(held, work.connection)
        return True

    def follow(self, session: Session, connection: Connection) -> None:
        """
        The session's client has come back by this connection: what it sends comes behind what came before.
        """
        over = self.settled_for(session, connection)
        if over is not None:
            work = self.hold(connection)
            over.addCallback(lambda done: self.release(work))

    def settled_for(self, session: Session, connection: Connection) -> Deferred[None] | None:
        """
        Fires when what came by other connections of the session is done; None: it is.
        """
        before = self._newest.get(session)
        if before is None or before is connection or self._waits_for(before, connection):
            return None
        over = self.settled(before)
        if over is not None:
            self._behind.setdefault(connection, []).append(before)
            over.addCallback(lambda done: self._is_behind_no_more(connection, before))
        return over

    def _waits_for(self, connection: Connection, other: Connection) -> bool:
        """
        Would the other wait for itself, if it waited for this connection?
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

    def _is_behind_no_more(self, connection: Connection, before: Connection) -> None:
        left = self._behind[connection]
        left.remove(before)
        if not left:
            del self._behind[connection]

    def settled(self, connection: Connection) -> Deferred[None] | None:
        """
        Fires when nothing of the connection waits any longer; None: nothing does.
        """
        held = self.held.get(connection)
        if held is None:
            return None
        over: Deferred[None] = Deferred()
        held.waiting.append(over)
        return over

    def _give_up(self, work: Work) -> None:
        held = self._let_go(work.connection)
        for each in held.works:
            each.stop()
        if work.give_up is not None:
            work.give_up()
        self._over(held, work.connection)

    # -- what comes meanwhile --------------------------------------------------------

    def keep(self, data: bytes, connection: Connection, take: Take | None = None) -> None:
        """
        This came behind it; `take` is called for it, `receive` if there is none.
        """
        held = self.held[connection]
        size = len(data) + FRAME
        if held.paused and held.size > MAX_UNREAD:
            log.warn("{peer} goes on sending while it must wait", peer=connection.peer)
            self._cut(held, connection)
            return
        held.frames.append((size, take or partial(self.receive, data, connection)))
        held.size += size
        if not self._has_room(held, connection):
            self._cut(held, connection)
            return
        for work in held.works:
            if work.give_up is not None and held.size > work.most:
                self._give_up(work)
                return

    def _has_room(self, held: _Held, connection: Connection) -> bool:
        """
        Is there room for what waits, in what all may have begun and not ended?
        """
        return self._partial_input is None or self._partial_input.grow_untimed(
            held, held.size, connection.peer
        )

    def _is_over(self, held: _Held) -> None:
        if self._partial_input is not None:
            self._partial_input.done(held)

    def _cut(self, held: _Held, connection: Connection) -> None:
        self._let_go(connection)
        for each in held.works:
            each.stop()
        self._part(connection, OVER_CAPACITY)
        self._over(held, connection)

    def _let_go(self, connection: Connection) -> _Held:
        held = self.held.pop(connection)
        if held.session is not None and self._newest.get(held.session) is connection:
            del self._newest[held.session]
        return held

    def _take(self, held: _Held, connection: Connection) -> None:
        """
        Take what waited, some of it in a turn, until one of the frames takes its time as well.
        """
        self._let_go(connection)
        taken = 0
        while self._is_there(connection):
            if taken > AT_ONCE and held.frames:
                self._clock.callLater(0, self.release, self.hold(connection))
            newer = self.held.get(connection)
            if newer is not None:
                newer.frames.extend(held.frames)
                newer.size += held.size
                newer.waiting += held.waiting
                if newer.paused and held.paused:
                    connection.resume_reading()  # each has it wait
                newer.paused = newer.paused or held.paused
                self._is_over(held)
                self._has_room(newer, connection)
                return
            if not held.frames:
                break
            size, take = held.frames.popleft()
            held.size -= size
            taken += size
            try:
                take()
            except Exception:
                log.failure("going on after a message took its time")
        self._over(held, connection)

    def _pause(self, held: _Held, connection: Connection) -> None:
        if not held.paused and self._is_there(connection):
            held.paused = True
            connection.pause_reading()

    def _over(self, held: _Held, connection: Connection) -> None:
        self._is_over(held)
        if held.paused and self._is_there(connection):
            connection.resume_reading()
        for over in held.waiting:
            self._tell(over)

    def _tell(self, over: Deferred[None]) -> None:
        """
        One turn each, where one thing that was over lets another be: they may stand in a long row.
        """
        if self._telling:
            self._clock.callLater(0, self._tell, over)
            return
        self._telling = True
        try:
            over.callback(None)
        finally:
            self._telling = False
