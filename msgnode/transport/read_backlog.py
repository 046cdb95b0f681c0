"""
What one read brought and is too much for one turn of the event loop.

A read of 16 KiB may hold thousands of lines or frames.  The first hundred are
carried at once, the others in slices; until they are, the client is not read
from, and its connection, though it may be gone, has not ended.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.structures.time_slices import Slices

log = Logger()


class Reading:
    """
    The switch for reading from a connection: not while anybody wants it to wait, nor while a read is worked
    off.
    """

    transport: Any
    connectionLost: Callable[[Failure], None]
    _backlog: "Backlog | None" = None  # of a read that held very many
    _pauses = 0

    @property
    def waits(self) -> bool:
        return self._pauses > 0

    def pause_reading(self) -> None:
        self._pauses += 1
        self.transport.pauseProducing()

    def resume_reading(self) -> None:
        self._pauses -= 1
        if self._pauses:
            return
        if self._backlog is None:
            self.transport.resumeProducing()
        else:
            self._backlog.go_on()

    def worked_off(self, lost: Failure | None) -> None:
        """
        There is no backlog any more; `lost`: nor a connection, since then.
        """
        self._backlog = None
        if lost is not None:
            self.connectionLost(lost)
        elif not self._pauses:
            self.transport.resumeProducing()


class Reader(Protocol):
    """
    The connection whose read it was.
    """

    transport: Any

    @property
    def waits(self) -> bool:
        """
        Is it not to be read from?
        """

    def carry(self, data: bytes) -> bytes | None:
        """
        Carry what `data` begins with; what is left for another turn, None if nothing is.
        """

    def settled(self) -> Deferred[None] | None:
        """
        What must come to its end first; None: nothing.
        """


class Backlog:
    """
    The part of a read that is too much for one turn of the event loop.

    `over` is called when all is carried, with the reason if the connection was lost meanwhile.
    """

    def __init__(
        self, rest: bytes, reader: Reader, slices: Slices, over: Callable[[Failure | None], None]
    ) -> None:
        self._lost: Failure | None = None
        self._pause: Deferred[None] | None = None  # until its client may be read from
        self._rest = rest
        self._reader = reader
        reader.transport.pauseProducing()
        over_now = slices.work(self._work())
        over_now.addErrback(partial(log.failure, "working off what was read"))
        over_now.addCallback(lambda done: over(self._lost))

    def add(self, data: bytes) -> None:
        """
        This came behind it all the same: TLS had it already.
        """
        self._rest += data

    def end(self, lost: Failure) -> None:
        """
        The connection is gone; what had come counts first.
        """
        self._lost = lost
        self.go_on()

    def go_on(self) -> None:
        """
        The client may be read from again.
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
