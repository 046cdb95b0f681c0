"""
Socket.IO's own acknowledgements of the messages that a client sent.

The application of the client gets them, so the node sends them after the
message is on disk.  The `ok` to a POST only says to its library that the packets
came: any other answer would end the client, which drops its unsent messages.
"""

from collections.abc import Callable
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.transport.cork import Cork

LOOK_SECONDS = 0.5  # seconds until a failing disk is checked again
MAX_OWED = 1000


class Disk(Protocol):
    """
    The part of the message log that says why it cannot write; None while it can.
    """

    @property
    def failing(self) -> str | None: ...


class Acks:
    """
    The unsent acknowledgements of one client; `put` sends one, `flooded` is called if there are too many.
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
        Acknowledge the message of that number at the next flush of the cork.  Called while the cork is held.
        """
        self._owed.append(b"43%s[]" % number)
        if len(self._owed) > MAX_OWED:
            self._flooded()
        elif len(self._owed) == 1:
            self._cork.add(self)

    def flush(self) -> None:
        """
        Send the acknowledgements if the messages are on disk; the cork calls this after the journal's flush.
        """
        if self._disk.failing is None:
            owed, self._owed = self._owed, []
            for packet in owed:
                self._put(packet)
        elif self._owed and self._again is None:
            self._again = self._clock.callLater(LOOK_SECONDS, self._look)

    def stop(self) -> None:
        """
        Drop the acknowledgements: the client is disconnected.
        """
        self._owed.clear()
        if self._again is not None and self._again.active():
            self._again.cancel()

    def _look(self) -> None:
        self._again = None
        with self._cork:
            self._cork.add(self)
