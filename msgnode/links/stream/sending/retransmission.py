"""
The timers of a stream at its source: what is not acknowledged in time is sent again, and what is stale ends.

The retransmission timeout is that of RFC 6298, with the time for which the destination may keep an
acknowledgement back.
"""

from collections.abc import Iterator
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall

from msgnode.links.stream.common import StreamParts
from msgnode.links.stream.sending.entry import Entry
from msgnode.links.stream.sending.sender_lane import SenderLane

INITIAL_SECONDS = 1.0
MIN_SECONDS = 0.1
MAX_SECONDS = 60.0
ACK_DELAY_SECONDS = 0.2  # for how long the destination may keep an acknowledgement back
AVOID_AFTER = 3  # timeouts in a row, then another first hop is asked for
MIN_TIMER_SECONDS = 0.01
LOOK_SECONDS = 10.0  # between two looks for what is overdue


class RetransmissionTimeout:
    """
    A retransmission timeout that follows the measured round trips, and doubles while nothing is acknowledged.
    """

    def __init__(self) -> None:
        self._smoothed: float | None = None
        self._variation = 0.0
        self.expired = 0  # times in a row

    @property
    def round_trip(self) -> float:
        """
        The smoothed round trip in seconds, with the delay of acknowledgements.
        """
        return INITIAL_SECONDS if self._smoothed is None else self._smoothed

    @property
    def is_measured(self) -> bool:
        return self._smoothed is not None

    @property
    def transit(self) -> float:
        """
        The seconds that a message is under way at least: half of the round trip, without the time for which
        the destination may keep an acknowledgement back. 0 while nothing is measured.
        """
        return 0.0 if self._smoothed is None else max(0.0, self._smoothed - ACK_DELAY_SECONDS) / 2

    @property
    def shortest(self) -> float:
        """
        The timeout in seconds if it was not backed off.
        """
        base = INITIAL_SECONDS
        if self._smoothed is not None:
            base = max(MIN_SECONDS, self._smoothed + 4 * self._variation)
        return min(MAX_SECONDS, base + ACK_DELAY_SECONDS)

    @property
    def seconds(self) -> float:
        backed_off: float = self.shortest * 2 ** min(self.expired, 16)
        return min(MAX_SECONDS, backed_off)

    def measured(self, seconds: float) -> None:
        """
        Add a round trip of something that was sent once.
        """
        if self._smoothed is None:
            self._smoothed, self._variation = seconds, seconds / 2
        else:
            self._variation += (abs(self._smoothed - seconds) - self._variation) / 4
            self._smoothed += (seconds - self._smoothed) / 8

    def back_off(self) -> None:
        self.expired += 1

    def reset(self) -> None:
        """
        An acknowledgement came, or the route is another one.
        """
        self.expired = 0


class TimedStream(Protocol):
    """
    A stream as its timer uses it.
    """

    opened: bool

    @property
    def is_waiting(self) -> bool: ...
    def lanes(self) -> Iterator[SenderLane]: ...
    def open(self) -> None: ...
    def ask(self) -> None: ...
    def probe(self, lanes: list[SenderLane], shrink: bool) -> None: ...
    def pump(self) -> None: ...
    def unblock(self) -> None: ...
    def expire(self) -> None: ...
    def end_overdue(self) -> None: ...


class Retransmission:
    """
    The retransmission timer of one stream, and its expiry timer.
    """

    def __init__(self, stream: TimedStream, parts: StreamParts, node: str) -> None:
        self.timeout = RetransmissionTimeout()
        self._stream = stream
        self._parts = parts
        self._node = node
        self._timer: IDelayedCall | None = None
        self._expiry_timer: IDelayedCall | None = None
        self._opened_at: float | None = None  # when the last OPEN was sent
        self._since = 0.0  # when nothing was known to be under way any more
        self._look_at = 0.0

    def stop(self) -> None:
        for timer in (self._timer, self._expiry_timer):
            if timer is not None and timer.active():
                timer.cancel()
        self._timer = self._expiry_timer = None

    # -- acknowledgements that do not come ----------------------------------------

    @property
    def may_open(self) -> bool:
        """
        Is no answer to an OPEN awaited?
        """
        return self._opened_at is None

    def opening(self) -> None:
        self._opened_at = self._parts.clock.seconds()

    def answered(self) -> None:
        """
        No answer to an OPEN is awaited any more: it came, none was sent, or another epoch begins.
        """
        self._opened_at = None
        self.begin_again()

    def begin_again(self) -> None:
        """
        An acknowledgement came, or the route is another one: the timeout is short again, also that which
        runs. Another lane may have lost its probe, and would wait for as long as nothing was acknowledged.
        Before the first round trip is measured, what was sent last has the time that it was given.
        """
        self.timeout.reset()
        if self._timer is not None and self.timeout.is_measured:
            soon = self.timeout.seconds
            if self._timer.getTime() > self._parts.clock.seconds() + soon:
                self._timer.reset(soon)

    def arm(self) -> None:
        """
        Start the timer, unless it runs.
        """
        if self._timer is None:
            self._since = now = self._parts.clock.seconds()
            due = now + self.timeout.seconds
            if self.timeout.expired:
                due = min([due, *(self._due(head) for _, head in self._heads() if head.sent_at)])
            self._start(due - now)

    def sent(self, until: float) -> None:
        """
        A message was sent that becomes stale at `until`. The timer only ever gets earlier by that, so that no
        number of messages puts it off.
        """
        if self.timeout.expired and self._timer is not None:
            now = self._parts.clock.seconds()
            due = max(until, now + self.timeout.shortest)
            if due < self._timer.getTime() - MIN_TIMER_SECONDS:
                self._timer.reset(due - now)

    def _heads(self) -> list[tuple[SenderLane, Entry]]:
        """
        The lanes that wait for an acknowledgement, each with the oldest entry that is under way.
        """
        return [(lane, head) for lane in self._stream.lanes() if (head := lane.first_under_way()) is not None]

    def _due(self, head: Entry) -> float:
        """
        When an entry is sent again. Once it is stale its tombstone does not wait for as long as the timeout
        is backed off: else its sender gets "in doubt", although the destination can be asked.
        """
        due = head.sent_at + self.timeout.seconds
        if 0 < head.sent_at < head.until < due:  # 0: from before a restart, or known to be lost
            due = max(head.until, head.sent_at + self.timeout.shortest)
        return due

    def _start(self, seconds: float) -> None:
        self._timer = self._parts.clock.callLater(max(MIN_TIMER_SECONDS, seconds), self._fired)

    def _fired(self) -> None:
        self._timer = None
        stream, now = self._stream, self._parts.clock.seconds()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            stream.end_overdue()
        if not stream.is_waiting or self._timer is not None:
            return
        heads = self._heads()
        if not stream.opened and self._opened_at is not None:
            due = self._opened_at + self.timeout.seconds
        elif heads:
            due = min(self._due(head) for _, head in heads)
        else:
            due = self._since + self.timeout.seconds
        if due > now:
            self._start(due - now)
            return
        late = [lane for lane, head in heads if head.sent_at + self.timeout.seconds <= now]
        stale = [lane for lane, head in heads if self._due(head) <= now]
        if late or not stale:
            self._expired(late)
        else:
            stream.probe(stale, shrink=False)  # a question, and no sign of another loss
        self.arm()

    def _expired(self, late: list[SenderLane]) -> None:
        stream = self._stream
        self.timeout.back_off()
        self._parts.counts["timeout"] += 1
        if self.timeout.expired >= AVOID_AFTER:
            self._parts.network.avoid_first_hop(self._node)
        if not stream.opened:
            stream.open()
        elif late:
            stream.probe(late, shrink=True)
        elif silent := [lane for lane in stream.lanes() if lane.flight and not lane.under_way]:
            stream.probe(silent, shrink=False)  # the network took nothing, or all is held
        else:
            stream.ask()
            stream.pump()

    def route_changed(self) -> None:
        """
        The oldest entry is sent as a probe on the new route; the rest follows when it is acknowledged.
        """
        self.begin_again()
        stream = self._stream
        if not stream.opened:
            self._opened_at = None
        else:
            stream.probe([lane for lane in stream.lanes() if lane.flight], shrink=False)
        stream.unblock()

    # -- time to live -------------------------------------------------------------

    def expect_expiry(self, when: float | None) -> None:
        """
        The first of what waits becomes stale at that time.
        """
        if when is None:
            return
        left = max(MIN_TIMER_SECONDS, when - self._parts.clock.seconds())
        if self._expiry_timer is None:
            self._expiry_timer = self._parts.clock.callLater(left, self._expire)
        elif when < self._expiry_timer.getTime() - MIN_TIMER_SECONDS:
            self._expiry_timer.reset(left)

    def _expire(self) -> None:
        self._expiry_timer = None
        self._stream.expire()
