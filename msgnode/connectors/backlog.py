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

from msgnode.slices import Slices

log = Logger()


class Reader(Protocol):
    """
    The connection whose read it was.
    """

    transport: Any

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
    `over` is called when all is carried, with the reason if the connection was lost meanwhile.
    """

    def __init__(
        self, rest: bytes, reader: Reader, slices: Slices, over: Callable[[Failure | None], None]
    ) -> None:
        self.lost: Failure | None = None
        self._rest = rest
        self._reader = reader
        reader.transport.pauseProducing()
        over_now = slices.work(self._work())
        over_now.addErrback(partial(log.failure, "working off what was read"))
        over_now.addCallback(lambda done: over(self.lost))

    def add(self, data: bytes) -> None:
        """
        This came behind it all the same: TLS had it already.
        """
        self._rest += data

    def _work(self) -> Iterator[Deferred[None] | None]:
        rest: bytes | None = self._rest
        while rest is not None:
            yield self._reader.settled()
            data, self._rest = self._rest, b""
            rest = self._reader.carry(data)
            if rest is not None:
                self._rest = rest + self._rest
            elif self._rest:
                rest = b""
