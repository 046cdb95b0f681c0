"""
The receiving end of the stream from one node: it delivers once and in order, and says what it has.

The count of what was taken is in the same batch as what the delivery of it wrote, and only after that batch
is on disk it is acknowledged.
"""

from collections.abc import Callable
from functools import partial

from twisted.internet.interfaces import IDelayedCall

from msgnode.links.stream.body import MAX_ENVELOPE_BYTES, Malformed, split
from msgnode.links.stream.common import StreamParts
from msgnode.links.stream.deliverer import Deliverer, Path
from msgnode.links.stream.pieces import count
from msgnode.links.stream.receiver_lane import MAX_WINDOW, ReceiverLane
from msgnode.links.stream.storage.store import StoredPeer
from msgnode.links.wire.datagram import MAX_DATAGRAM_BYTES
from msgnode.links.wire.stream_header import (
    MESSAGE,
    TOMBSTONE,
    WRAPPED,
    Acknowledgement,
    Epoch,
    StreamHeader,
)

TURN_MESSAGES = 128  # delivered in one turn of the event loop
MIN_ROOM_BYTES = 64 * 1024
REASSEMBLY_SECONDS = 120.0  # after which a message that waits for others leaves memory; it is sent again
BODY_OVERHEAD_BYTES = MAX_ENVELOPE_BYTES + 1024  # the envelope, and what encryption adds
MIN_PIECE_BYTES = 1024  # of a peer whose carrier takes short datagrams only


class IncomingStream:
    """
    The stream from one node, at this node.

    `epoch` is None until the node has opened a stream, or after this node has forgotten it.
    `news` counts what an acknowledgement would say, `urgent` if it should be sent in this turn.
    """

    def __init__(self, parts: StreamParts, source: str, index: int) -> None:
        self.epoch: Epoch | None = None
        self.deliverer = Deliverer(parts, source, index, self._listener_done)
        self.deliverer.commit = lambda: parts.commit(self)
        self.news = 0
        self.urgent = False
        self._is_asked = False  # for what is not on disk yet
        self.on_news: Callable[[], None] = lambda: None
        self._parts = parts
        self._source = source
        self._index = index
        self._lanes: dict[int, ReceiverLane] = {}
        self._continuing: IDelayedCall | None = None
        self._window_was_shut = False
        self._sweep: IDelayedCall | None = None

    @property
    def _most_bytes(self) -> int:
        return self._parts.limits.message_bytes + BODY_OVERHEAD_BYTES

    @property
    def is_idle(self) -> bool:
        return not self.deliverer.pending and not any(map(len, self._lanes.values()))

    def begin(self, epoch: Epoch) -> None:
        """
        Forget the stream before, and receive one of that epoch.
        """
        for number, lane in self._lanes.items():
            lane.clear()
            self._parts.store.received(self._index, number, 0, [])
        self._lanes = {}
        self.epoch = epoch

    def write_counts(self) -> None:
        for number, lane in self._lanes.items():
            self._record(number, lane)

    def restore(self, stored: StoredPeer) -> None:
        self.epoch = stored.state.receiving
        if self.epoch is not None:
            for lane, (received, stale) in stored.counts.items():
                self._lanes[lane] = ReceiverLane(received, self._parts.budget, self._source, stale)

    # -- datagrams --------------------------------------------------------------

    def received(self, header: StreamHeader, payload: bytes, key: str, path: Path) -> None:
        """
        A datagram of the current epoch: messages, a piece of one, or a tombstone.
        """
        parts, number = self._parts, header.number
        bodies = self._bodies(header, payload)
        if bodies is None:
            parts.drop(self._source, "malformed")
            return
        lane = self._lanes.get(header.lane)
        if lane is None:
            lane = self._lanes[header.lane] = ReceiverLane(header.floor - 1, parts.budget, self._source)
        elif lane.skip_to(header.floor):
            self._record(header.lane, lane)
        if number + len(header.following) > lane.taken + MAX_WINDOW:
            parts.drop(self._source, "window")
            return
        for each, ttl in zip(bodies, (header.ttl_millis, *header.following), strict=True):
            self._receive(header, number, lane, each, ttl / 1000, key, path)
            number += 1

    def _receive(
        self,
        header: StreamHeader,
        number: int,
        lane: ReceiverLane,
        payload: bytes,
        ttl: float,
        key: str,
        path: Path,
    ) -> None:
        """
        A message of a datagram, a piece of one, or a tombstone.
        """
        parts = self._parts
        is_tombstone = header.kind == TOMBSTONE
        if lane.is_known(number):
            parts.counts["doubled"] += 1
            self._tell(urgent=True)
            return
        if number == lane.taken + 1 and header.pieces == 1 and not is_tombstone and not lane.stalled:
            if self.deliverer.has_room:
                lane.drop_partial(number)
                self._take(header.lane, lane, payload, header.flags, ttl, path)
            else:
                parts.counts["no-room"] += 1
                return
        else:
            if is_tombstone:
                found = lane.bury(number)
            else:
                found = lane.add(number, header.piece, header.pieces, payload, header.flags & WRAPPED, key)
            if found is None:
                parts.counts["no-room"] += 1
                return
            found.arrived, found.ttl = parts.clock.seconds(), ttl
            found.path = path
            if found.size > self._most_bytes:
                lane.drop_partial(number)
                parts.drop(self._source, "malformed")
                return
            if found.complete and not found.head:
                self._tell(urgent=True)  # a gap: the source may send again what is missing
        if len(lane):
            self._continue(header.lane, lane)
            if len(lane) and self._sweep is None:
                self._sweep = parts.clock.callLater(REASSEMBLY_SECONDS, self._drop_old)

    def _bodies(self, header: StreamHeader, payload: bytes) -> list[bytes] | None:
        """
        The bodies in a datagram, or its piece; None if it makes no sense.
        """
        if not self._is_sound(header, payload):
            return None
        if not header.following:
            return [payload]
        if header.pieces != 1 or header.kind != MESSAGE or header.flags & WRAPPED:
            return None
        try:
            return split(payload, 1 + len(header.following))
        except Malformed:
            return None

    def _is_sound(self, header: StreamHeader, payload: bytes) -> bool:
        return (
            1 <= header.floor <= header.number
            and header.piece < header.pieces <= count(self._most_bytes, MIN_PIECE_BYTES)
            and len(payload) <= MAX_DATAGRAM_BYTES
        )

    def _continue(self, number: int, lane: ReceiverLane) -> None:
        """
        Deliver what is complete and next in its lane, a bounded number in one turn.
        """
        taken = 0
        while (assembly := lane.next_complete()) is not None:
            lane.stalled = not self.deliverer.has_room
            if lane.stalled:
                return
            if taken == TURN_MESSAGES:
                lane.stalled = True  # nothing overtakes the rest
                self._continue_later()
                return
            taken += 1
            lane.take(assembly)
            left = assembly.ttl - (self._parts.clock.seconds() - assembly.arrived)
            if assembly.tombstone:
                self._pass_over(number, lane)
            else:
                self._take(number, lane, assembly.join(), assembly.flags, left, assembly.path)
        lane.stalled = False

    def _continue_later(self) -> None:
        if self._continuing is None:
            self._continuing = self._parts.clock.callLater(0, self._continue_all)

    def _continue_all(self) -> None:
        self._continuing = None
        for number, lane in list(self._lanes.items()):
            if lane.stalled:
                self._continue(number, lane)

    def _drop_old(self) -> None:
        """
        Drop what has waited too long: its source may have begun again, or have nothing to send any more.
        """
        self._sweep = None
        before = self._parts.clock.seconds() - REASSEMBLY_SECONDS
        for lane in self._lanes.values():
            if not lane.stalled:
                lane.drop_old(before)
        if any(map(len, self._lanes.values())):
            self._sweep = self._parts.clock.callLater(REASSEMBLY_SECONDS / 2, self._drop_old)

    def stop(self) -> None:
        for timer in (self._sweep, self._continuing):
            if timer is not None:
                timer.cancel()
        self._sweep = self._continuing = None

    # -- one message ------------------------------------------------------------

    def _take(
        self,
        number: int,
        lane: ReceiverLane,
        data: bytes,
        flags: int,
        ttl: float,
        path: Path,
    ) -> None:
        """
        Deliver the next message of a lane; if it is stale, its source gets to know that.
        """
        if ttl <= 0:
            self._pass_over(number, lane)
        else:
            taken, refused = partial(self._count, number, lane), partial(self._refuse, number, lane)
            self.deliverer.deliver(number, data, flags, ttl, path, taken, refused)

    def _count(self, number: int, lane: ReceiverLane) -> None:
        lane.advance()
        self._record(number, lane)

    def _pass_over(self, number: int, lane: ReceiverLane) -> None:
        """
        The next message is stale, or its source dropped it.
        """
        self._parts.counts["stale"] += 1
        self._refuse(number, lane)

    def _refuse(self, number: int, lane: ReceiverLane) -> None:
        """
        The next message is not delivered; the acknowledgement says so.
        """
        lane.advance(is_stale=True)
        self._record(number, lane)

    def _record(self, number: int, lane: ReceiverLane) -> None:
        """
        The count is in the batch of what the listener has just written.
        """
        lane.recorded = lane.taken
        self._parts.store.received(self._index, number, lane.taken, lane.stale)
        self._parts.commit(self)

    def _listener_done(self) -> None:
        if any(lane.stalled for lane in self._lanes.values()):
            self._continue_later()
        if self._window_was_shut and self.deliverer.has_room:
            self._tell(urgent=True)

    # -- acknowledgements -------------------------------------------------------

    def _tell(self, urgent: bool = False) -> None:
        self.news += 1
        self.urgent = self.urgent or urgent
        self.on_news()

    def wanted_now(self) -> None:
        """
        The source asks for an acknowledgement. What is not on disk yet is acknowledged as soon as it is.
        """
        self._is_asked = any(lane.durable != lane.recorded for lane in self._lanes.values())
        self._tell(urgent=True)

    def written(self) -> None:
        """
        Everything that was counted is on disk.
        """
        self.deliverer.written()
        before = self.news
        for lane in self._lanes.values():
            if lane.durable != lane.recorded:
                self.news += max(1, lane.recorded - lane.durable)
                lane.durable = lane.recorded
        if self.news != before:
            self.urgent |= self._is_asked
            self._is_asked = False
            self.on_news()

    def acknowledgement(self) -> Acknowledgement | None:
        """
        The acknowledgement of all lanes; None while there is no stream from it.
        """
        if self.epoch is None:
            return None
        parts = self._parts
        window = min(MAX_WINDOW, max(0, self.deliverer.room))
        self._window_was_shut = not window
        room = max(MIN_ROOM_BYTES, min(parts.budget.room, 0xFFFFFFFF))
        lanes = [lane.acknowledgement(number) for number, lane in self._lanes.items()]
        return Acknowledgement(self.epoch, window, room, lanes)
