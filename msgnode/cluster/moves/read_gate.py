"""
The gate before clients of a node that did not run, or heard no other member, for a while.

Its sessions may have moved meanwhile. Nothing is read from a client until the members have said what they
hold, and the sessions that this node has lost are closed.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from msgnode.sessions.input_order import InputOrder, Work
from msgnode.sessions.session import Connection, Session
from msgnode.structures.time_slices import Slices

log = Logger()

TICK_SECONDS = 1.0
LEAP_SECONDS = 5.0
RELEASED_PER_SLICE = 20  # connections, or sessions


class ReadGate:
    """
    The gate. `compare` fires when the generations of all sessions were compared, and is called again if the
    gate is closed meanwhile; `closed` and `opened` are called when reading has to stop, and may go on.
    """

    def __init__(
        self,
        clock: IReactorTime,
        compare: Callable[[], Deferred[None]],
        closed: Callable[[], None],
        opened: Callable[[], None],
    ) -> None:
        self.is_open = True
        self.times_closed = 0
        self._clock = clock
        self._compare = compare
        self._closed = closed
        self._opened = opened
        self._ticked_at = clock.seconds()
        self._tick_call: IDelayedCall | None = None

    def start(self) -> None:
        self._ticked_at = self._clock.seconds()
        self._tick_call = self._clock.callLater(TICK_SECONDS, self._tick)

    def stop(self) -> None:
        if self._tick_call is not None:
            self._tick_call.cancel()
            self._tick_call = None

    def check(self) -> bool:
        """
        May a client be read now? Call it before a read is processed: the event loop may serve sockets first
        after the process was stopped.
        """
        leap = self._clock.seconds() - self._ticked_at - TICK_SECONDS
        if leap >= LEAP_SECONDS:
            self._ticked_at = self._clock.seconds()
            self.close(f"the node did not run for {leap:.0f} seconds")
        return self.is_open

    def close(self, why: str) -> None:
        """
        Close the gate until the generations are compared.
        """
        self.times_closed += 1
        if self.is_open:
            self.is_open = False
            log.warn("no client is read until sessions are compared with other members: {why}", why=why)
            self._closed()
        self._compare().addBoth(self._compared, self.times_closed)

    def _compared(self, result: object, time: int) -> None:
        if time == self.times_closed and not self.is_open:
            self.is_open = True
            self._opened()

    def _tick(self) -> None:
        self.check()
        self._ticked_at = self._clock.seconds()
        self._tick_call = self._clock.callLater(TICK_SECONDS, self._tick)


class HeldInput:
    """
    The input of this node's clients: it waits, in order, while the gate is closed. What is for them is queued
    meanwhile: it may follow a session that has moved, without coming twice. `flush` sends what is queued.
    """

    def __init__(
        self,
        connections: Iterable[Connection],
        sessions: Iterable[Session],
        input_order: InputOrder,
        slices: Slices,
        flush: Callable[[Session], None],
    ) -> None:
        self._connections = connections
        self._sessions = sessions
        self._flush = flush
        self._input_order = input_order
        self._slices = slices
        self._works: dict[Connection, Work] = {}
        self._waiting: list[Deferred[None]] | None = None  # None: the gate is open

    def hold(self) -> None:
        """
        The gate is closed.
        """
        self._waiting = self._waiting or []
        for connection in list(self._connections):
            if connection not in self._works:
                self._works[connection] = self._input_order.hold(connection)
        for session in self._sessions:
            session.pause()

    def release(self) -> None:
        """
        The gate is open.
        """
        waiting, self._waiting = self._waiting or [], None
        for done in waiting:
            done.callback(None)
        rest = self._slices.begin(self._release())
        if rest is not None:
            rest.addErrback(partial(log.failure, "the input of clients could not be released"))

    def ready(self) -> Deferred[None] | None:
        """
        Fires when clients may be read; None: now.
        """
        if self._waiting is None:
            return None
        done: Deferred[None] = Deferred()
        self._waiting.append(done)
        return done

    def _release(self) -> Iterator[None]:
        for count, session in enumerate(list(self._sessions), 1):
            if self._waiting is not None:
                return
            self._flush(session)
            if count % RELEASED_PER_SLICE == 0:
                yield
        count = 0
        while self._works and self._waiting is None:
            _, work = self._works.popitem()
            self._input_order.release(work)
            count += 1
            if count % RELEASED_PER_SLICE == 0:
                yield
