"""
The polls of one Socket.IO client: the packets of their answers, and their acknowledgement.

The next poll acknowledges the messages in the last answer; the protocol has no
better acknowledgement.
"""

from itertools import islice
from typing import Protocol

from msgnode.connectors.http.requests import MAX_ANSWER_BYTES
from msgnode.connectors.socketio import codec
from msgnode.sessions.journal import DeliveryJournal
from msgnode.sessions.outbox import Outbox
from msgnode.transport.cork import Cork

PACKET_OVERHEAD_BYTES = 64  # bytes of memory for a packet, in addition to its content


class ParkedPoll(Protocol):
    """
    A waiting GET.
    """

    def answer(self, pieces: list[bytes]) -> None: ...


class PollOwner(Protocol):
    """
    The client that sends the polls.
    """

    version: int

    @property
    def outbox(self) -> Outbox | None: ...
    def answered(self) -> None: ...


class Events:
    """
    A cache of the last event packet, so that a message for many clients is encoded once.
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

    `waiting` is the waiting GET.  Packets without a number wait in `_beside`, and are sent once.

    `size` is the memory of the packets that wait here and not in the session, in bytes.
    """

    def __init__(self, poller: PollOwner, cork: Cork, events: Events, journal: DeliveryJournal) -> None:
        self.waiting: ParkedPoll | None = None
        self.size = 0
        self._beside: list[bytes] = []
        self._poller = poller
        self._cork = cork
        self._events = events
        self._journal = journal
        self._outbox: Outbox | None = None  # the outbox that `_handed` is a number of
        self._handed = 0  # the number of the last message sent

    def put(self, packet: bytes) -> None:
        self._beside.append(packet)
        self.size += len(packet) + PACKET_OVERHEAD_BYTES
        self.flush_soon()

    def take_beside(self) -> list[bytes]:
        beside, self._beside, self.size = self._beside, [], 0
        return beside

    def flush_soon(self) -> None:
        """
        Flush together with all other answers to the last read.
        """
        if self.waiting is not None:
            if self._cork.corked:
                self._cork.add(self)
            else:
                self._cork.settle()
                self.flush()

    def flush(self) -> None:
        """
        Answer the waiting GET with all packets there are.
        """
        if self.waiting is not None:
            packets = self.take_beside() + self.owed()
            if packets:
                self.answer(packets)

    def release(self) -> None:
        """
        Answer the waiting GET without a message.
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
        Returns the messages after the last one sent, as many as fit in one answer.
        """
        outbox = self._poller.outbox
        if outbox is None or outbox.blocked_on_disk:
            return []
        first = outbox.acknowledged + outbox.gaps
        if outbox is not self._outbox:
            self._outbox, self._handed = outbox, first
        begin = max(0, self._handed - first)
        found: list[bytes] = []
        size = 0
        for kept in islice(outbox.sent, begin, None):
            if size >= MAX_ANSWER_BYTES:
                break
            found.append(self._events.of(self._journal.data(kept)))
            size += kept.size
        self._handed = first + begin + len(found)
        return found

    def acknowledge(self) -> None:
        """
        Acknowledge the last answer, unless the client has requested `resume`: then it acknowledges by itself.
        """
        outbox = self._poller.outbox
        if outbox is not None and outbox is self._outbox and not outbox.client_requested:
            outbox.acknowledge(max(self._handed, outbox.acknowledged))
