"""
The polls of one client of Socket.IO: what their answers carry, and what came.

What an answer carries of the session's outbox is acknowledged by the next
poll; the protocol has no better acknowledgement.
"""

from itertools import islice
from typing import Protocol

from msgnode.connectors.socketio import codec
from msgnode.sessions.journal import DeliveryJournal
from msgnode.sessions.outbox import Outbox
from msgnode.transport.cork import Cork

MAX_HANDED_OUT = 1024 * 1024  # bytes in one answer; the rest waits in the session
PACKET = 64  # bytes of memory for a packet beside its own


class ParkedPoll(Protocol):
    """
    A GET that waits.
    """

    def answer(self, pieces: list[bytes]) -> None: ...


class PollOwner(Protocol):
    """
    The client whose polls they are.
    """

    version: int

    @property
    def outbox(self) -> Outbox | None: ...
    def answered(self) -> None: ...


class Events:
    """
    Messages as events, each built once for all that it goes to in a row.
    """

    def __init__(self) -> None:
        self._data = self._event = b""

    def of(self, data: bytes) -> bytes:
        if data is not self._data:
            self._data, self._event = data, codec.message_event(data)
        return self._event


class Polls:
    """
    The polls of one client.

    `waiting` is the GET that waits; what is not counted is handed out once, beside the rest.

    `size` is what waits here and not in the session, in bytes.
    """

    def __init__(self, poller: PollOwner, cork: Cork, events: Events, journal: DeliveryJournal) -> None:
        self.waiting: ParkedPoll | None = None
        self.size = 0
        self._beside: list[bytes] = []
        self._poller = poller
        self._cork = cork
        self._events = events
        self._journal = journal
        self._outbox: Outbox | None = None  # the one that `_handed` counts in
        self._handed = 0  # the number of the last message handed out

    def put(self, packet: bytes) -> None:
        self._beside.append(packet)
        self.size += len(packet) + PACKET
        self.flush_soon()

    def take_beside(self) -> list[bytes]:
        beside, self._beside, self.size = self._beside, [], 0
        return beside

    def flush_soon(self) -> None:
        """
        With all else that the node answers to what it just read.
        """
        if self.waiting is not None:
            if self._cork.held:
                self._cork.add(self)
            else:
                self._cork.settle()
                self.flush()

    def flush(self) -> None:
        """
        Answer the GET that waits with all there is.
        """
        if self.waiting is not None:
            packets = self.take_beside() + self.owed()
            if packets:
                self.answer(packets)

    def release(self) -> None:
        """
        Answer the GET that waits with nothing.
        """
        if self.waiting is not None:
            self.answer([codec.NOOP])

    def answer(self, packets: list[bytes]) -> None:
        poll, self.waiting = self.waiting, None
        assert poll is not None
        self._poller.answered()
        poll.answer(codec.pieces(packets, self._poller.version))

    def owed(self) -> list[bytes]:
        """
        What comes after the last message that was handed out, as much as fits in an answer.
        """
        outbox = self._poller.outbox
        if outbox is None or outbox.held:
            return []
        first = outbox.acknowledged + outbox.holes
        if outbox is not self._outbox:
            self._outbox, self._handed = outbox, first
        begin = max(0, self._handed - first)
        found: list[bytes] = []
        size = 0
        for kept in islice(outbox.sent, begin, None):
            if size >= MAX_HANDED_OUT:
                break
            found.append(self._events.of(self._journal.data(kept)))
            size += kept.size
        self._handed = first + begin + len(found)
        return found

    def acknowledge(self) -> None:
        """
        The last answer has come; a client that said `resume` counts for itself.
        """
        outbox = self._poller.outbox
        if outbox is not None and outbox is self._outbox and not outbox.asked:
            outbox.acknowledge(max(self._handed, outbox.acknowledged))
