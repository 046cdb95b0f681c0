"""
Socket.IO's own acknowledgements of what a client sent.

They are what its application hears, so they leave after the message is written
down.  The `ok` to a POST tells only its library that the packets came: any
other answer would end the client, which drops what it had yet to send.
"""

from collections.abc import Callable
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.transport.cork import Cork

LOOK_AGAIN = 0.5  # seconds until a disk that took nothing is looked at again
MAX_OWED = 1000


class Disk(Protocol):
    """
    A function that says why nothing can be written; None while it can.
    """

    @property
    def failing(self) -> Exception | None: ...


class Acks:
    """
    Acknowledgements owed to one client; `put` sends it a packet, `flooded` is called if it asks for too many.
    """

    def __init__(
        self,
        put: Callable[[bytes], None],
        flooded: Callable[[], None],
        disk: Disk,
        cork: Cork,
        clock: IReactorTime,
    ) -> None:
        self._put = put
        self._flooded = flooded
        self._disk = disk
        self._cork = cork
        self._clock = clock
        self._owed: list[bytes] = []
        self._again: IDelayedCall | None = None

    def owe(self, number: bytes) -> None:
        """
        The message of that number was taken.  Called with the cork in.
        """
        self._owed.append(b"43%s[]" % number)
        if len(self._owed) > MAX_OWED:
            self._flooded()
        elif len(self._owed) == 1:
            self._cork.add(self)

    def flush(self) -> None:
        """
        The cork comes out: what was taken is written down by now, if it could be.
        """
        if self._disk.failing is None:
            owed, self._owed = self._owed, []
            for packet in owed:
                self._put(packet)
        elif self._owed and self._again is None:
            self._again = self._clock.callLater(LOOK_AGAIN, self._look)

    def stop(self) -> None:
        """
        The client is gone.
        """
        self._owed.clear()
        if self._again is not None and self._again.active():
            self._again.cancel()

    def _look(self) -> None:
        self._again = None
        with self._cork:
            self._cork.add(self)
