"""
The backlog of one node: all messages to it that were taken, until their outcome is known, and their records.
"""

from collections.abc import Callable, Iterator

from msgnode.links.stream.body import Malformed
from msgnode.links.stream.common import StreamParts
from msgnode.links.stream.sending.entry import Entry
from msgnode.links.stream.sending.removal import Removal
from msgnode.links.stream.sending.send_queue import Expiry, SendQueueBounds, count_of
from msgnode.links.stream.sending.sender_lane import MAX_WINDOW, NeverSent, SenderLane
from msgnode.links.stream.sending.turns import Turns
from msgnode.links.stream.storage.store import StoredPeer
from msgnode.links.stream.streams import (
    ACKNOWLEDGED,
    IN_DOUBT,
    NOT_DECRYPTED,
    NOT_READ,
    STALE,
    UNCONFIRMED,
    Envelope,
    Outcome,
)
from msgnode.links.wire.datagram import PRIORITIES
from msgnode.links.wire.stream_header import WRAPPED, Acknowledgement

FIRST_ROOM_BYTES = 1024 * 1024  # under way before the destination has said how much it takes
OVERDUE_SECONDS = 3600.0  # after its time to live, what was sent and is not acknowledged ends
OVERDUE_RECOVERED_SECONDS = 60.0  # if the node was started again since: only the stream knows of it
STALE_MARGIN_SECONDS = 5.0  # before its time to live ends, a destination may take a message for stale
TURN_MESSAGES = 256  # sent or dropped in one turn of the event loop

Report = Callable[[Entry, Envelope | None, bytes, Outcome], None]


class Backlog:
    """
    The backlog of one node, in lanes.

    `flight_bytes` is the size of all that has a number, `room` how much of that the node takes.
    """

    def __init__(self, parts: StreamParts, node: str, index: int, report: Report) -> None:
        self.bounds = SendQueueBounds(parts, node)
        self.transit: Callable[[], float] = lambda: 0.0  # seconds that a message is under way, about
        self.lanes: dict[int, SenderLane] = {}
        self._turns = Turns(self.lanes)
        self.expiry = Expiry()
        self.removal = Removal(parts.clock)
        self.flight_bytes = 0
        self.room = FIRST_ROOM_BYTES
        self.commit: Callable[[], None] = lambda: None
        self._parts = parts
        self._store = parts.store
        self._index = index
        self._report = report
        self._last_key = 0
        self._kept: list[Entry] = []  # may leave memory once they are on disk
        self._dead = 0  # stale entries that are in queues still

    def __len__(self) -> int:
        return self.bounds.messages

    @property
    def numbers(self) -> list[int]:
        """
        The next number of each lane.
        """
        return [self.lanes[lane].next_number if lane in self.lanes else 1 for lane in range(PRIORITIES)]

    @property
    def by_priority(self) -> list[tuple[int, SenderLane]]:
        """
        The lanes, the highest priority first.
        """
        return sorted(self.lanes.items(), reverse=True)

    def lane(self, priority: int) -> SenderLane:
        lane = self.lanes.get(priority)
        if lane is None:
            lane = self.lanes[priority] = SenderLane()
        return lane

    def entries(self) -> Iterator[tuple[int, Entry]]:
        """
        All entries whose outcome is not known, each with its lane.
        """
        for priority, lane in self.lanes.items():
            for entry in [*lane.flight.values(), *lane.queue]:
                if not entry.settled:
                    yield priority, entry
        yield from list(self.removal.waiting())

    @property
    def last_key(self) -> int:
        """
        The key of the entry that came last.
        """
        return self._last_key

    def is_unsettled(self, key: int) -> bool:
        """
        Is the outcome of the entry with that key, or of an earlier one, not known? The last one may be stale
        before others have arrived.
        """
        queues = [each for lane in self.lanes.values() for each in (lane.flight.values(), lane.queue)]
        oldest = [next((entry for entry in entries if not entry.settled), None) for entries in queues]
        oldest.append(next((entry for _, entry in self.removal.waiting()), None))
        return any(entry is not None and entry.key <= key for entry in oldest)

    # -- taken ----------------------------------------------------------------------

    def next_key(self) -> int:
        self._last_key += 1
        return self._last_key

    def keep(self, priority: int, entry: Entry) -> None:
        """
        Put an entry into the batch; it has its number by now, or waits.
        """
        if not entry.number:
            if self.removal.takes(entry):
                self.removal.add(priority, entry)
            else:
                self.lanes[priority].queue.append(entry)
            self.expiry.add(priority, entry, self.bounds.messages)
            self._kept.append(entry)
        assert entry.data is not None
        entry.place = self._store.keep(
            self._index, priority, entry.key, entry.data, entry.until, entry.number, entry.mark
        )
        self.bounds.add(entry)
        self.commit()

    def page_out(self) -> None:
        """
        All that was kept is on disk, and may leave memory.
        """
        kept, self._kept = self._kept, []
        for entry in kept:
            self.bounds.page_out(entry)

    def number(self, priority: int, entry: Entry) -> None:
        """
        Give an entry the next number of its lane.
        """
        self._turns.took(priority)
        self.lanes[priority].number(entry)
        self.flight_bytes += entry.size

    def has_room(self, priority: int, entry: Entry) -> bool:
        """
        May an entry have a number now? The only one of its lane always may.
        """
        lane = self.lanes[priority]
        if lane.lost or not lane.may_number:
            return False
        if not lane.flight:
            return True
        return self.flight_bytes + entry.size <= self.room and self._turns.has(priority, entry)

    def take_first(self, lane: SenderLane) -> Entry | None:
        """
        The first entry of a queue; None if that is stale, or has left.
        """
        entry = lane.queue.popleft()
        if entry.settled:
            self._dead = max(0, self._dead - 1)
            return None
        return entry

    def restore(self, stored: StoredPeer) -> None:
        """
        Go on with what is on disk. All that has a number may have been sent.
        """
        self._last_key = stored.last_key
        for priority, number in enumerate(stored.state.numbers):
            if number > 1:
                self.lanes[priority] = SenderLane(number)
        for found in stored.sending:
            place, mark = found.place, found.mark
            entry = Entry(found.key, None, found.size, found.until, None, None, mark, place, recovered=True)
            lane = self.lane(found.lane)
            self.bounds.add(entry)
            if found.number:
                lane.restore(entry, found.number)
                self.flight_bytes += entry.size
            else:
                lane.queue.append(entry)
                self.expiry.add(found.lane, entry, self.bounds.messages)
        for lane in self.lanes.values():
            lane.finish_restore()

    # -- outcomes ---------------------------------------------------------------------

    def acknowledge(self, ack: Acknowledgement) -> list[Entry]:
        """
        Take an acknowledgement, and return the entries it settles. Raises ValueError if it makes no sense,
        NeverSent if it speaks of what was never sent.
        """
        self.room = ack.room
        window = min(ack.window, int(MAX_WINDOW))
        found: list[Entry] = []
        for each in ack.lanes:
            lane = self.lanes.get(each.lane)
            if lane is None:
                if each.received or each.ranges:
                    raise NeverSent(f"nothing was sent in lane {each.lane}")
                continue
            settled = lane.acknowledge(each, window)
            if not settled:
                continue
            self._store.acknowledged(self._index, each.lane, each.received)
            self.commit()
            for entry, is_stale in settled:
                if entry.settled:
                    continue  # it was withdrawn
                self.flight_bytes -= entry.size
                found.append(entry)
                self.settle(entry, self._refused(entry) if is_stale else ACKNOWLEDGED)
        return found

    def _refused(self, entry: Entry) -> Outcome:
        """
        The outcome of an entry that the destination does not deliver: it was stale, or could not be read.
        """
        margin = STALE_MARGIN_SECONDS + 2 * self.transit()
        if entry.ended is not None or self._parts.clock.seconds() > entry.until - margin:
            return entry.ended or STALE
        return NOT_DECRYPTED if entry.flags & WRAPPED else NOT_READ

    def settle(self, entry: Entry, outcome: Outcome) -> None:
        """
        The outcome of an entry is known; it is in no lane any more.
        """
        payload = b""
        if entry.recovered or (outcome is not ACKNOWLEDGED and count_of(entry.mark) > 1):
            payload = self._payload(entry)
        envelope = self.envelope(entry)
        assert not entry.settled, "an outcome is final"
        entry.settled = True
        self.bounds.remove(entry)
        entry.data = entry.wire = None
        if entry.ended is None:
            entry.ended = outcome
        self._report(entry, envelope, payload, outcome)

    def _payload(self, entry: Entry) -> bytes:
        """
        The payload of an entry; empty if it cannot be read back.
        """
        try:
            return self._parts.codec.decode(self.bounds.page_in(entry))[1]
        except (OSError, Malformed):
            return b""

    def envelope(self, entry: Entry) -> Envelope | None:
        """
        The envelope of an entry; None if it cannot be read back.
        """
        if entry.envelope is None:
            try:
                entry.envelope = self._parts.codec.envelope(self.bounds.page_in(entry))
            except (OSError, ValueError):
                return None
        return entry.envelope

    def drop(self, priority: int, entry: Entry, outcome: Outcome) -> None:
        """
        Drop an entry that has no number.
        """
        self._store.removed(self._index, priority, entry.key)
        self.commit()
        self.settle(entry, outcome)

    def drop_waiting(self, priority: int, entry: Entry, outcome: Outcome) -> None:
        """
        Drop an entry that stays in its queue until it is the first there.
        """
        self._dead += 1
        self.drop(priority, entry, outcome)

    def expire(self) -> None:
        """
        Drop what is stale and was never sent, a bounded number in one turn. A tombstone has the number of an
        entry that did not leave for lack of a route.
        """
        for priority, entry in self.expiry.take_stale(self._parts.clock.seconds(), TURN_MESSAGES):
            if entry.settled:  # one that went back to its queue is there twice
                continue
            if not entry.number:
                self.drop_waiting(priority, entry, STALE)
            elif entry.written:  # else it is sent in a moment, or is here again
                self.withdraw(priority, entry)
                self.end_withdrawn(priority, entry, entry.ended or STALE)
        if self._dead > TURN_MESSAGES and self._dead > self.bounds.messages:
            for lane in self.lanes.values():
                lane.remove_ended()
            self._dead = 0

    def end_overdue(self) -> bool:
        """
        End what was sent, has been stale for long and is not acknowledged, a bounded number in one turn: it
        is in doubt, and a tombstone is sent in its place. True if there was any.
        """
        now = self._parts.clock.seconds()
        found = [
            (priority, entry)
            for priority, lane in self.lanes.items()
            for entry in lane.flight.values()
            if entry.sends and not entry.settled and _is_overdue(entry, now)
        ][:TURN_MESSAGES]
        for priority, entry in found:
            self.withdraw(priority, entry)
            self.end_withdrawn(priority, entry, UNCONFIRMED)
        return bool(found)

    def abandon(self) -> list[Entry]:
        """
        Take all numbers back, as another epoch begins. Entries that never left wait again; returns the
        others, which are in doubt.
        """
        doubtful: list[Entry] = []
        for priority, lane in self.lanes.items():
            again: list[Entry] = []
            for entry in lane.abandon():
                if entry.settled:
                    continue  # it was withdrawn
                self.flight_bytes -= entry.size
                if entry.sends or entry.ended is not None:
                    doubtful.append(entry)
                    self._store.removed(self._index, priority, entry.key)
                else:
                    entry.number, entry.written = 0, False
                    again.append(entry)
                    self._store.numbered(self._index, priority, entry.key, 0)
                    self.expiry.add(priority, entry, self.bounds.messages)
            lane.queue.extendleft(reversed(again))
        self.room = FIRST_ROOM_BYTES
        self.commit()
        return doubtful

    def in_doubt(self, entries: list[Entry]) -> None:
        """
        The destination has lost its memory, or another epoch was asked for.
        """
        for entry in entries:
            self.settle(entry, IN_DOUBT)

    # -- for those who take entries out, or write them again ----------------------------

    def take_flight(self) -> list[Entry]:
        """
        Take out all that has a number, and settle the numbers.
        """
        found = []
        for priority, lane in self.lanes.items():
            found += [entry for entry in lane.abandon() if not entry.settled]
            self._store.acknowledged(self._index, priority, lane.next_number - 1)
        self.flight_bytes = 0
        self.commit()
        return found

    def withdraw(self, priority: int, entry: Entry) -> None:
        """
        Take out an entry that has a number; a tombstone is sent in its place.
        """
        self.lanes[priority].withdraw(entry)
        self.flight_bytes -= entry.size

    def end_withdrawn(self, priority: int, entry: Entry, outcome: Outcome) -> None:
        """
        The outcome of an entry that was sent, and withdrawn.
        """
        self._store.removed(self._index, priority, entry.key)
        self.commit()
        self.settle(entry, outcome)

    def moved(self, priority: int, entry: Entry) -> None:
        """
        Another stream has the entry; the same batch has it there, and not here any more.
        """
        self._store.removed(self._index, priority, entry.key)
        self.commit()
        entry.settled = True
        self.bounds.remove(entry)
        entry.data = None

    def wrote_again(self, entry: Entry, data: bytes, place: int) -> None:
        """
        The entry was appended again by the compaction of the spool.
        """
        self.bounds.hold(entry, data)
        entry.place = place
        self._kept.append(entry)


def _is_overdue(entry: Entry, now: float) -> bool:
    return now >= entry.until + (OVERDUE_RECOVERED_SECONDS if entry.recovered else OVERDUE_SECONDS)
