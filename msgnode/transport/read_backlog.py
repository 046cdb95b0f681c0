"""
Backlog of one read: input that is too much for one turn of the event loop.

A read of 16 KiB may hold thousands of lines or frames. The first hundred are handled at once, the others in
time slices. Until they are done, the client is not read from, and a connection that was lost is not yet
reported lost.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.structures.time_slices import Slices
from msgnode.transport.native_ports import Port

log = Logger()


class Reading:
    """
    Pauses and resumes reading from a connection: while a caller wants it paused, or a backlog is worked off.
    """

    transport: Any
    connectionLost: Callable[[Failure], None]
    _backlog: "Backlog | None" = None  # of a read with very many messages
    _pauses = 0
    port: Port | None = None  # of the data plane, which reads in the transport's place

    @property
    def waits(self) -> bool:
        return self._pauses > 0

    @property
    def is_stopped(self) -> bool:
        """
        Is nothing to be read now?
        """
        return self._pauses > 0 or self._backlog is not None

    def pause_reading(self) -> None:
        self._pauses += 1
        self.stop_transport()

    def resume_reading(self) -> None:
        self._pauses -= 1
        if self._pauses:
            return
        if self._backlog is None:
            self._resume_transport()
        else:
            self._backlog.go_on()

    def stop_transport(self) -> None:
        """
        Read nothing, for now.
        """
        if self.port is None:
            self.transport.pauseProducing()
        else:
            self.port.stop()

    def _resume_transport(self) -> None:
        if self.port is None:
            self.transport.resumeProducing()
        else:
            self.port.look()
            self.port.go_on()

    def read_by_port(self, port: Port) -> None:
        """
        The port reads from now on, until it leaves.
        """
        self.port = port
        port.start(self.is_stopped)

    def leave_port(self) -> bytes:
        """
        The transport reads again; what the port had read and not carried.
        """
        port, self.port = self.port, None
        if port is None:
            return b""
        port.leave()
        return port.take_left()

    def worked_off(self, lost: Failure | None) -> None:
        """
        End the backlog. `lost` is the reason if the connection was lost meanwhile.
        """
        self._backlog = None
        if lost is not None:
            self.connectionLost(lost)
        elif not self._pauses:
            self._resume_transport()


class Reader(Protocol):
    """
    The connection that a backlog belongs to.
    """

    @property
    def waits(self) -> bool:
        """
        Is reading paused?
        """

    def stop_transport(self) -> None:
        """
        Read nothing, for now.
        """

    def carry(self, data: bytes) -> bytes | None:
        """
        Handle the first part of `data`. Returns the rest, or None if everything is handled.
        """

    def settled(self) -> Deferred[None] | None:
        """
        A Deferred of unfinished work that must end first, or None.
        """


class Backlog:
    """
    The rest of a read that is too much for one turn of the event loop, worked off in time slices.

    `over` is called when everything is handled, with the reason if the connection was lost meanwhile.
    """

    def __init__(
        self, rest: bytes, reader: Reader, slices: Slices, over: Callable[[Failure | None], None]
    ) -> None:
        self._lost: Failure | None = None
        self._pause: Deferred[None] | None = None  # fires when reading is resumed
        self._rest = rest
        self._reader = reader
        reader.stop_transport()
        over_now = slices.work(self._work())
        over_now.addErrback(partial(log.failure, "the backlog of a read could not be handled"))
        over_now.addCallback(lambda done: over(self._lost))

    def add(self, data: bytes) -> None:
        """
        Append input that arrived although reading is paused: TLS had decrypted it already.
        """
        self._rest += data

    def end(self, lost: Failure) -> None:
        """
        The connection is lost. Input that arrived before is still handled.
        """
        self._lost = lost
        self.go_on()

    def go_on(self) -> None:
        """
        Resume, after reading was paused.
        """
        pause, self._pause = self._pause, None
        if pause is not None:
            pause.callback(None)

    def _waits(self) -> Deferred[None] | None:
        if not self._reader.waits or self._lost is not None:
            return None
        self._pause = Deferred()
        return self._pause

    def _work(self) -> Iterator[Deferred[None] | None]:
        rest: bytes | None = self._rest
        while rest is not None:
            yield None
            while (wait := self._reader.settled() or self._waits()) is not None:
                yield wait
            data, self._rest = self._rest, b""
            rest = self._reader.carry(data)
            if rest is not None:
                self._rest = rest + self._rest
            elif self._rest:
                rest = b""
