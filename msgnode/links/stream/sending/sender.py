"""
The sending end of the stream to one node.

An entry gets its number when the window allows. The number is on disk before the first datagram leaves, and
never changes. Entries without one can go on in another epoch; those that were sent and are not acknowledged
when the destination has lost its memory are in doubt.
"""

from collections.abc import Callable, Iterator, Sequence

from twisted.internet.interfaces import IDelayedCall

from msgnode.links.peer_counts import PeerCounts
from msgnode.links.stream.body import CompressionEstimate
from msgnode.links.stream.common import StreamParts
from msgnode.links.stream.safety.node_keys import PeerKeys
from msgnode.links.stream.sending import departures
from msgnode.links.stream.sending.backlog import TURN_MESSAGES, Backlog, Report
from msgnode.links.stream.sending.entry import Done, EndedEach, Entry
from msgnode.links.stream.sending.retransmission import Retransmission
from msgnode.links.stream.sending.sender_lane import NeverSent, SenderLane
from msgnode.links.stream.sending.transmitter import Emitter, Transmitter
from msgnode.links.stream.storage.store import StoredPeer
from msgnode.links.stream.streams import IN_DOUBT, NO_KEY, Envelope
from msgnode.links.wire.node_name import domain_of
from msgnode.links.wire.stream_header import ACKNOWLEDGEMENT, OPEN, PROBE, Acknowledgement, Epoch


class OutgoingStream:
    """
    The stream to one node, at this node.

    `opened`: the destination has agreed to the epoch; nothing has a number before. `memory` is the instance
    of the destination that did. After a restart the destination is asked what it has, and until it answers
    nothing new has a number: if this node's disk is older than what was sent (it was restored from a backup),
    other messages had those numbers.
    """

    def __init__(
        self,
        parts: StreamParts,
        node: str,
        index: int,
        keys: PeerKeys,
        emitter: Emitter,
        report: Report,
        save: Callable[[], None],
    ) -> None:
        self.epoch: Epoch | None = None
        self.memory = b""
        self.opened = False
        self.counts = PeerCounts()
        self._node, self._domain = node, domain_of(node)
        self.estimate = CompressionEstimate(parts.clock)
        self.backlog = Backlog(parts, node, index, report)
        self.backlog.commit = lambda: parts.commit(self)
        self._epoch_written = False
        self._is_confirmed = True  # the destination has answered since the restart
        self._is_asked = False
        self._parts = parts
        self._index = index
        self._emit = emitter.emit
        self._save = save
        self._transmitter = Transmitter(
            parts, node, keys, self.backlog, emitter, lambda: self.retransmission.timeout.transit
        )
        self._unwritten: list[tuple[int, Entry]] = []
        self._leaving: dict[int, list[Entry]] = {}  # on disk, by lane: they leave at the end of the turn
        self._turn: IDelayedCall | None = None  # the end of a turn in which something has left
        self._pumping = False
        self._blocked = False  # the network takes nothing
        self.retransmission = Retransmission(self, parts, node)
        self.backlog.transit = lambda: self.retransmission.timeout.transit
        self.backlog.removal.on_idle = self.pump

    def __len__(self) -> int:
        return len(self.backlog)

    @property
    def can_decompress(self) -> bool:
        return self._transmitter.can_decompress

    @property
    def is_waiting(self) -> bool:
        """
        Does it wait for acknowledgements, or for the word of a destination that was started again?
        """
        return len(self.backlog) > 0 or (self.opened and not self._is_confirmed)

    def lanes(self) -> Iterator[SenderLane]:
        return iter(self.backlog.lanes.values())

    def _count_sent_again(self) -> None:
        self._parts.counts["sent-again"] += 1
        for counts in (self.counts, self._parts.peer_counts.of(self._domain)):
            counts.sent_again += 1

    def count_outcome(self, reason: str) -> None:
        """
        Count a message that was not accepted, or dropped.
        """
        for counts in (self.counts, self._parts.peer_counts.of(self._domain)):
            if reason == IN_DOUBT.reason:
                counts.in_doubt += 1
            else:
                counts.refused[reason] += 1

    # -- entries ----------------------------------------------------------------

    def send(
        self, envelope: Envelope, data: bytes, until: float, done: Done | EndedEach | None, mark: int = 0
    ) -> None:
        """
        Take a message. Raises NoRoom before anything is kept.
        """
        size, backlog = len(data), self.backlog
        backlog.bounds.check(size, mark)
        self._take(envelope.priority, Entry(backlog.next_key(), data, size, until, envelope, done, mark))

    def adopt(self, priority: int, entry: Entry, data: bytes) -> None:
        """
        Take a message that the stream to another node of the domain has not sent.
        """
        if not self._transmitter.can_decompress:
            data = self._parts.codec.decompressed(data)
        key, size, until, mark = self.backlog.next_key(), len(data), entry.until, entry.mark
        done, recovered = entry.done, entry.recovered
        self._take(priority, Entry(key, data, size, until, entry.envelope, done, mark, recovered=recovered))

    def _take(self, priority: int, entry: Entry) -> None:
        backlog = self.backlog
        lane = backlog.lane(priority)
        if (
            not lane.queue
            and self._may_number(priority, entry)
            and self._transmitter.way(entry) != "impossible"
        ):
            self._begin_flight(priority, entry)
        backlog.keep(priority, entry)
        if not entry.number:
            self.retransmission.expect_expiry(backlog.expiry.next)

    def restore(self, stored: StoredPeer) -> None:
        """
        Go on with what is on disk.
        """
        state = stored.state
        self.epoch, self.memory, self.opened = state.sending, state.memory, bool(state.memory)
        self._epoch_written = self.epoch is not None
        self._is_confirmed = not self.opened
        self.backlog.restore(stored)
        self.retransmission.expect_expiry(self.backlog.expiry.next)

    def _may_number(self, priority: int, entry: Entry) -> bool:
        if self.backlog.removal.is_running:
            return False  # what waits behind others may come back to the queue
        if not self._parts.network.has_route(self._node):
            return False  # without a number it may become stale, and move to another node
        return (
            self.opened
            and self._is_confirmed
            and not self._blocked
            and self.backlog.has_room(priority, entry)
        )

    def _begin_flight(self, priority: int, entry: Entry) -> None:
        self.backlog.number(priority, entry)
        self._unwritten.append((priority, entry))

    def written(self) -> None:
        """
        All that was kept or numbered is on disk, and may leave.
        """
        lanes = self.backlog.lanes
        for lane in lanes.values():
            lane.durable_floor = lane.floor
        self._epoch_written = self.epoch is not None
        unwritten, self._unwritten = self._unwritten, []
        for priority, entry in unwritten:
            if lanes[priority].flight.get(entry.number) is entry:
                entry.written = True
                self._leaving.setdefault(priority, []).append(entry)
        if self._leaving and self._turn is None:
            # Before the link's own call of this turn, so that all of it is one message there.
            self._turn = self._parts.clock.callLater(0, self._end_turn)
            self._leave()
        self.backlog.page_out()
        self.pump()

    def _leave(self) -> None:
        """
        Send what is on disk and has not left: the first of a turn at once, the others together at its end.
        """
        leaving, self._leaving = self._leaving, {}
        for priority, entries in leaving.items():
            lane = self.backlog.lanes[priority]
            flight, lost = lane.flight, lane.lost
            found = [
                entry
                for entry in entries
                if not entry.sends and flight.get(entry.number) is entry and entry.number not in lost
            ]
            if found:
                self._transmit(priority, lane, found)

    def _end_turn(self) -> None:
        self._turn = None
        if self._leaving:
            self._leave()
            self.retransmission.arm()

    # -- sending ----------------------------------------------------------------

    def pump(self) -> None:
        """
        Send what may be sent now, the highest priority first.
        """
        self.expire()
        if not self.is_waiting:
            return
        if not self._blocked:
            if self.opened:
                if not self._is_confirmed and not self._is_asked:
                    self.ask()
                    self._is_asked = not self._blocked
                self._pump_lanes()
            elif self.retransmission.may_open:
                self.open()
        self.retransmission.arm()

    def _pump_lanes(self) -> None:
        left = TURN_MESSAGES
        for priority, lane in self.backlog.by_priority:
            while left and not self._blocked and (entry := lane.next_lost()) is not None:
                self._count_sent_again()
                self._transmit(priority, lane, [entry])
                left -= 1
            while left and lane.queue and self._may_number(priority, lane.queue[0]):
                self._number_first(priority, lane)
                left -= 1
        if not left and not self._pumping:
            self._pumping = True
            self._parts.clock.callLater(0, self._pump_again)

    def _pump_again(self) -> None:
        self._pumping = False
        self.pump()

    def _number_first(self, priority: int, lane: SenderLane) -> None:
        """
        Give the first entry of the queue its number; it leaves once that is on disk.
        """
        entry = self.backlog.take_first(lane)
        if entry is None:
            return
        if self._transmitter.way(entry) == "impossible":
            self.backlog.drop(priority, entry, NO_KEY)
            return
        self._begin_flight(priority, entry)
        self._parts.store.numbered(self._index, priority, entry.key, entry.number)
        self._parts.commit(self)

    def _transmit(self, priority: int, lane: SenderLane, entries: Sequence[Entry]) -> None:
        sent = 0
        if not self._blocked:
            # Not with what is sent again: a destination whose window is shut would answer at once.
            asks = bool(lane.queue) and not entries[0].sends
            sent = self._transmitter.transmit(priority, lane.durable_floor, entries, asks)
            now = self._parts.clock.seconds()
            for entry in entries[:sent]:
                lane.sent(entry, now)
            if sent:
                self.retransmission.sent(entries[0].until)
        for entry in entries[sent:]:
            self._blocked = True
            if not entry.sends and entry.number not in lane.lost:
                self.backlog.expiry.add(priority, entry, len(self.backlog))
            lane.not_sent(entry)

    def open(self) -> None:
        """
        Ask the destination to agree to the epoch.
        """
        if self.epoch is None:
            self.begin_epoch()
        if self._epoch_written:
            self._blocked = not self._emit(OPEN)
            self.retransmission.opening()

    def unblock(self) -> None:
        """
        The network may have room, or a route, again.
        """
        if self._blocked:
            self._blocked = False
            if not self.opened:
                self.retransmission.answered()
        self.pump()

    def probe(self, lanes: list[SenderLane], shrink: bool) -> None:
        """
        Take all that is under way in these lanes for lost, and send the oldest of each first.
        """
        self._blocked = False
        for priority, lane in self.backlog.by_priority:
            if self._blocked or lane not in lanes:
                continue
            entry = lane.lose_all()
            if shrink:
                lane.shrink()
            if entry is not None:
                self._count_sent_again()
                self._transmit(priority, lane, [entry])

    def ask(self) -> None:
        """
        Ask for an acknowledgement, as the destination's window is shut.
        """
        self._blocked = not self._emit(ACKNOWLEDGEMENT, flags=PROBE)

    def confirm(self) -> None:
        """
        Ask the destination what it has, as it was started again: it may have lost its memory.
        """
        if self.opened:
            self._is_confirmed = self._is_asked = False
            self.pump()

    # -- what becomes of entries ------------------------------------------------

    def acknowledged(self, ack: Acknowledgement) -> None:
        """
        The destination says what it has. Raises ValueError if that makes no sense.
        """
        if ack.epoch != self.epoch or not self.opened:
            return
        now, timeout = self._parts.clock.seconds(), self.retransmission.timeout
        self._blocked = False
        try:
            settled = self.backlog.acknowledge(ack)
        except NeverSent:
            self._parts.counts["never-sent"] += 1
            self.begin_epoch()
            self.pump()
            return
        self._is_confirmed = True
        if settled:
            self.retransmission.begin_again()
            newest = next((each for each in reversed(settled) if each.sends == 1 and each.sent_at), None)
            if newest is not None:
                timeout.measured(now - newest.sent_at)
        for lane in self.lanes():
            lane.find_lost(now, timeout.round_trip)
        self.pump()

    def expire(self) -> None:
        """
        Drop what is stale and was never sent.
        """
        self.backlog.expire()
        self.retransmission.expect_expiry(self.backlog.expiry.next)

    def end_overdue(self) -> None:
        """
        End what the destination should have acknowledged long ago.
        """
        if self.backlog.end_overdue():
            self.pump()

    # -- epochs -----------------------------------------------------------------

    def begin_epoch(self) -> None:
        """
        Begin another epoch. What was sent and is not acknowledged is in doubt.
        """
        doubtful = self.backlog.abandon()
        self._unwritten, self._leaving = [], {}
        self.epoch, self.memory, self.opened = self._parts.next_epoch(), b"", False
        self._epoch_written, self._is_confirmed = False, True
        self.retransmission.answered()
        self._save()
        self.backlog.in_doubt(doubtful)

    def agreed(self, memory: bytes) -> None:
        """
        The destination has agreed to the epoch.
        """
        self.opened, self.memory = True, memory
        self.retransmission.answered()
        self._save()

    def forget(self) -> int:
        """
        Drop all entries, each with NO_PATH. Returns how many.
        """
        self._unwritten, self._leaving = [], {}
        return departures.forget(self.backlog)

    def stop(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        self.retransmission.stop()
        self.backlog.removal.stop()
