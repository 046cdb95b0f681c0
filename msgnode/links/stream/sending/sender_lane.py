"""
A lane of a stream at its source: what waits for a number, and what has one and is not acknowledged.
"""

from collections import deque

from msgnode.links.stream.sending.entry import Entry, withdrawn
from msgnode.links.wire.stream_header import LaneAcknowledgement

FIRST_WINDOW = 32  # messages
MIN_WINDOW = 1.0
MAX_WINDOW = 1024.0
REORDERED = 3  # a number is lost if so many above it have come
LOOKED_AT = 64  # numbers that one acknowledgement may find lost


class NeverSent(ValueError):
    """
    An acknowledgement of a number that was never sent: one of the two nodes has lost its memory.
    """


class SenderLane:
    """
    A lane of a stream at its source.

    Each entry in `flight` has a number and is either under way, or in `lost` (to be sent again), or in `held`
    (the destination has it in memory). `window` is how many may be under way. `probing`: one entry was sent
    again, and the others of `lost` wait until the destination shows that it has it.
    """

    def __init__(self, next_number: int = 1) -> None:
        self.queue: deque[Entry] = deque()  # never sent
        self.flight: dict[int, Entry] = {}  # by number, ascending and without gaps
        self.next_number = next_number
        # The floor as the disk has it: the destination may forget what is below.
        self.durable_floor = next_number
        self.lost: set[int] = set()
        self.held: set[int] = set()
        self.window = float(FIRST_WINDOW)
        self.probing = False
        self._slow_start_until = MAX_WINDOW
        self._again: deque[int] = deque()  # those of `lost` in the order in which they are sent
        self._announced = FIRST_WINDOW  # by the destination

    def __len__(self) -> int:
        return len(self.queue) + len(self.flight)

    @property
    def floor(self) -> int:
        """
        All numbers below are settled.
        """
        return next(iter(self.flight)) if self.flight else self.next_number

    @property
    def under_way(self) -> int:
        return len(self.flight) - len(self.lost) - len(self.held)

    @property
    def may_number(self) -> bool:
        return self.under_way < self.window and self.next_number < self.floor + self._announced

    @property
    def is_stuck(self) -> bool:
        """
        Must the destination get its oldest entry before it can send more, whatever room others leave it?
        """
        if self.probing:
            return True
        is_full = self.next_number >= self.floor + self._announced
        return is_full and bool(self.held) and self.floor not in self.held

    def number(self, entry: Entry) -> None:
        """
        Give an entry the next number.
        """
        entry.number = self.next_number
        self.next_number += 1
        self.flight[entry.number] = entry

    def restore(self, entry: Entry, number: int) -> None:
        """
        Take an entry from the disk, which may have been sent; the lowest number comes first.
        """
        entry.number, entry.written, entry.sends = number, True, 1
        if not self.flight:
            self.durable_floor = number
        else:
            self._fill(number)
        self.flight[number] = entry
        self.next_number = max(self.next_number, number + 1)

    def finish_restore(self) -> None:
        """
        All that is on disk was restored: the numbers that are missing were withdrawn.
        """
        if self.flight:
            self._fill(self.next_number)

    def _fill(self, end: int) -> None:
        for missing in range(next(reversed(self.flight)) + 1, end):
            self.flight[missing] = withdrawn(missing)

    def withdraw(self, entry: Entry) -> None:
        """
        Take an entry out that has a number: a tombstone is sent in its place.
        """
        self.flight[entry.number] = withdrawn(entry.number)
        self._trim()

    def _trim(self) -> None:
        """
        Remove what was withdrawn from the beginning: the floor tells the destination not to wait for it.
        """
        flight = self.flight
        while flight:
            number, entry = next(iter(flight.items()))
            if not entry.settled:
                return
            del flight[number]
            self.lost.discard(number)
            self.held.discard(number)
            self.probing = self.probing and bool(self.lost)

    def remove_ended(self) -> None:
        """
        Remove what has become stale, or has left, from the queue.
        """
        alive = [entry for entry in self.queue if not entry.settled]
        self.queue.clear()
        self.queue.extend(alive)

    def first_under_way(self) -> Entry | None:
        """
        The oldest entry that was sent and of which nothing is known.
        """
        for number, entry in self.flight.items():
            if entry.sends and number not in self.lost and number not in self.held:
                return entry
        return None

    # -- acknowledgements -------------------------------------------------------

    def acknowledge(self, ack: LaneAcknowledgement, window: int) -> list[tuple[Entry, bool]]:
        """
        Take an acknowledgement. Returns what it settles, each with whether it was dropped as stale.
        ValueError if it makes no sense, NeverSent if it speaks of what was never sent.
        """
        self._check(ack)
        self._announced = window
        settled: list[tuple[Entry, bool]] = []
        stale = set(_numbers(ack.stale))
        for number in range(self.floor, ack.received + 1):
            entry = self.flight.pop(number)
            if number in self.held:
                entry.sent_at = 0.0  # it arrived long ago, and waited for another: that is no round trip
            settled.append((entry, number in stale))
        self._trim()
        if settled:
            self.probing = False
            self._grow(len(settled))
            self.lost = {number for number in self.lost if number > ack.received}
        if ack.ranges or self.held:
            self._hold(set(_numbers(ack.ranges)))
        return settled

    def _check(self, ack: LaneAcknowledgement) -> None:
        before = 0
        for low, high in ack.stale:
            if not before < low <= high <= ack.received:
                raise ValueError("stale numbers are not ascending ranges")
            before = high
        before = ack.received
        for low, high in ack.ranges:
            if not before < low <= high:
                raise ValueError("ranges are not ascending")
            before = high
        if before >= self.next_number:
            raise NeverSent("a number is acknowledged that was never sent")
        if ack.stale and ack.stale[-1][1] - ack.stale[0][0] > 4 * MAX_WINDOW:
            raise ValueError("stale numbers are too far apart")

    def _hold(self, held: set[int]) -> None:
        self.held = held = held & self.flight.keys()
        self.lost -= held
        if held:
            self.probing = False

    def find_lost(self, now: float, round_trip: float) -> bool:
        """
        Find entries that others have overtaken. True if there are any.
        """
        if not self.held:
            return False
        highest, found = max(self.held) - REORDERED, False
        for looked, (number, entry) in enumerate(self.flight.items()):
            if number > highest or looked == LOOKED_AT:
                break
            if number in self.held or number in self.lost or not entry.sends:
                continue
            if entry.sends == 1 or now - entry.sent_at >= round_trip:
                self.lost.add(number)
                self._again.append(number)
                found = True
        if found:
            self.shrink()
        return found

    # -- loss -------------------------------------------------------------------

    def lose_all(self) -> Entry | None:
        """
        Take all that is under way for lost. Returns the oldest entry, which is to be sent as a probe.
        """
        self.lost = {
            number for number, entry in self.flight.items() if entry.written and number not in self.held
        }
        self._again = deque(number for number in self.flight if number in self.lost)
        for number in self._again:
            self.flight[
                number
            ].sent_at = 0.0  # an acknowledgement may have been lost: no round trip (RFC 6298, 3)
        if not self._again and self.held:
            # The destination has said that it has them all, in memory, and is silent now.
            oldest = next(iter(self.flight))
            self.held.discard(oldest)
            self.lost.add(oldest)
            self._again.append(oldest)
        self.probing = bool(self._again)
        return self.flight[self._again[0]] if self._again else None

    def next_lost(self) -> Entry | None:
        """
        The next entry to send again, if the window allows.
        """
        while self._again and not self.probing:
            number = self._again[0]
            if number in self.lost:
                return self.flight[number] if self.under_way < self.window else None
            self._again.popleft()
        return None

    def sent(self, entry: Entry, now: float) -> None:
        entry.sends += 1
        entry.sent_at = now
        self.lost.discard(entry.number)

    def not_sent(self, entry: Entry) -> None:
        """
        The network did not take it: it is sent as soon as there is room.
        """
        self.probing = False
        if entry.number not in self.lost:
            self.lost.add(entry.number)
            self._again.append(entry.number)

    # -- the window -------------------------------------------------------------

    def _grow(self, settled: int) -> None:
        if self.window < self._slow_start_until:
            self.window += settled
        else:
            self.window += settled / self.window
        self.window = min(self.window, MAX_WINDOW)

    def shrink(self) -> None:
        self.window = self._slow_start_until = max(MIN_WINDOW, self.window / 2)

    # -- a new epoch ------------------------------------------------------------

    def abandon(self) -> list[Entry]:
        """
        Forget the numbers of all that has one. Returns those entries.
        """
        found = list(self.flight.values())
        self.flight.clear()
        self.lost.clear()
        self.held.clear()
        self._again.clear()
        self.probing = False
        self.durable_floor = self.next_number
        self.window, self._slow_start_until = float(FIRST_WINDOW), MAX_WINDOW
        self._announced = FIRST_WINDOW
        return found


def _numbers(ranges: list[tuple[int, int]]) -> list[int]:
    return [number for low, high in ranges for number in range(low, high + 1)]
