"""
The journal: what the node owes its sessions, written down before it leaves.

Everything that one read of a socket brought about goes to the spool in one
write, just before the first byte of it leaves.  So whatever a recipient has
seen is on disk, and a sender is told that its messages are here after that.
"""

import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from twisted.internet.interfaces import IReactorTime

from msgnode.sessions.limits.spool_share import RECORD
from msgnode.sessions.persistence import MessageLog
from msgnode.sessions.queue import FOREVER, OVERHEAD, Payload, QueuedMessage

ACK_AFTER = 64  # messages; fewer are acknowledged by the clock
TELL_EVERY = 0.4  # seconds; the promise is 0.5
MAX_AFTER = 10_000  # calls that wait for a disk that takes nothing
TRY_AGAIN = 1.0  # seconds between attempts at a disk that takes nothing


class Acknowledging(Protocol):
    """
    One direction of a session, whose client is told when what it sent is on disk (outbox.py).
    """

    on_disk: int

    @property
    def finished(self) -> int:
        """
        The number up to which all messages have come and been carried.
        """

    @property
    def untold(self) -> int:
        """
        How many messages the client does not know of that they are on disk.
        """

    def write_down(self) -> None:
        """
        Add to the batch what has come since the last.
        """

    def tell(self) -> None:
        """
        Acknowledge to the client what is on disk.
        """


class DeliveryJournal:
    """
    The write-ahead journal of undelivered messages.

    When the disk takes nothing any more, `hold` is called with the sids of the
    sessions for which something was about to leave; when it does again, `go_on`.

    `held` is the memory that messages owed take, in bytes.  Above half of
    `most` new ones stay on disk only; above `most`, `make_room` is called.
    """

    def __init__(
        self,
        message_log: MessageLog,
        most: int,
        make_room: Callable[[], None],
        hold: Callable[[set[int]], None],
        go_on: Callable[[], None],
        clock: IReactorTime,
        wall: Callable[[], float],
    ) -> None:
        self.held = 0
        self.message_log = message_log
        self.sent: list[
            tuple[int, QueuedMessage, int]
        ] = []  # sid, message and number of what leaves in this batch
        self.most = most
        # Bytes owed on disk beyond which `shed` is called; `crowded`: it could not make enough room.
        self.most_on_disk = sys.maxsize
        self.crowded = False
        self.shed: Callable[[], None] = lambda: None
        self._lowered = False  # more was owed already when that limit was set
        self._shed_again = 0.0
        self._make_room = make_room
        self._hold = hold
        self._go_on = go_on
        self._leaving: list[int] = []  # sids of sessions that something leaves for in this batch
        self._input_order = False
        self._try_again = 0.0  # when a disk that took nothing is asked again
        self._clock = clock
        self._wall = wall
        self.heard_from: set[Acknowledging] = set()  # whose clients sent something since the last settle
        self._unwritten: set[Acknowledging] = set()  # the same, from when the disk took nothing
        self._after: deque[Callable[[], object]] = deque(maxlen=MAX_AFTER)
        self._untold: set[Acknowledging] = set()
        self._telling = False
        self._dirty = True  # a node may start on a disk that takes nothing
        self.unpaged = False  # is there more in memory than what is on its way to the disk?
        self._to_disk: list[QueuedMessage] = []  # may leave memory once they are on disk
        self._moved: list[tuple[QueuedMessage, int]] = []  # where they lie once all is written anew

    # -- what is owed ----------------------------------------------------------

    def keep(self, sid: int, kept: QueuedMessage, number: int = 0) -> None:
        """
        Owe this message; `number` if it leaves at once.
        """
        if self.sent:
            self._write_sent()
        self._dirty = True
        data = kept.data
        assert data is not None
        until = kept.until
        if until != FOREVER:
            until = self.by_wall(until)
        kept.place = self.message_log.keep(sid, kept.key, data, until, kept.priority, kept.asker, number)
        self.held += OVERHEAD + _taken(data)
        if kept.share is not None:
            kept.share.bytes += RECORD + kept.size
        if self.held > self.most >> 1:
            self._to_disk.append(kept)
        else:
            self.unpaged = True

    def _write_sent(self) -> None:
        """
        Note what left since; before any other record, which may void it.
        """
        sent, self.sent = self.sent, []
        self.message_log.keep_sent(sent)
        self._leaving += [sid for sid, _, _ in sent]
        if self.held > self.most >> 1:
            self._to_disk += [kept for _, kept, _ in sent]
        else:
            self.unpaged = True

    def by_wall(self, until: float) -> float:
        """
        A moment of the node's clock, by the wall clock, which a restart does not stop.
        """
        return until if until == FOREVER else until - self._clock.seconds() + self._wall()

    def by_clock(self, until: float) -> float:
        return until if until == FOREVER else until + self._clock.seconds() - self._wall()

    def adopt(self, kept: QueuedMessage) -> None:
        """
        Owe a message that is on disk since before a restart.
        """
        self.held += OVERHEAD

    def page_out(self, kept: QueuedMessage) -> None:
        """
        Keep this message on disk only, if it is there.
        """
        if kept.place and kept.data is not None and self.message_log.holds(kept.place, kept.size):
            self.held -= _let_go(kept.data)
            kept.data = None

    def rewrite(self, sid: int, kept: QueuedMessage, number: int) -> None:
        """
        Write it down once more, because where it lies goes or has never been.
        """
        if self.sent:
            self._write_sent()
        self._dirty = True
        data = self.data(kept)
        until = self.by_wall(kept.until)
        if kept.data is None and self.message_log.anew:
            # That file may be given up, and there may be no memory for all of it: it stays where it lies.
            self.message_log.release(kept.size)
            place = self.message_log.keep(sid, kept.key, data, until, kept.priority, kept.asker, number)
            self._moved.append((kept, place))
            return
        if kept.data is None:
            # Where it lies goes, and the disk may not take it again: in memory until it has.
            kept.data = data
            self.held += _taken(data)
            self._to_disk.append(kept)
        if kept.place:
            self.message_log.release(kept.size)
        kept.place = self.message_log.keep(sid, kept.key, data, until, kept.priority, kept.asker, number)

    def move(self, finished: bool) -> None:
        """
        Everything was written anew, and lies there from now on; or it is about to be, once more.
        """
        moved, self._moved = self._moved, []
        for kept, place in moved:
            if finished and kept.place and kept.data is None:
                kept.place = place

    def data(self, kept: QueuedMessage) -> bytes:
        return kept.data if kept.data is not None else self.message_log.read(kept.place, kept.size)

    def left(self, sid: int, kept: QueuedMessage, number: int) -> None:
        if self.sent:
            self._write_sent()
        self._dirty = True
        self._leaving.append(sid)
        self.message_log.left(sid, kept.key, number)

    def tells(self, sid: int) -> None:
        """
        A session is told in this batch what must be on disk by then.
        """
        self._dirty = True
        self._leaving.append(sid)

    def gone(self, sid: int, kept: QueuedMessage, missed: bool) -> None:
        """
        It is owed no more: it was taken, or with `missed` it never will be.
        """
        if self.sent:
            self._write_sent()
        self._dirty = True
        self.message_log.gone(sid, kept.key, missed)
        self.release(kept)

    def missed(self, sid: int, key: int) -> None:
        """
        One was never kept, and its session counts it as missed.
        """
        if self.sent:
            self._write_sent()
        self._dirty = True
        self.message_log.gone(sid, key, True)

    def release(self, kept: QueuedMessage) -> None:
        if self.sent:
            self._write_sent()
        self.held -= OVERHEAD if kept.data is None else OVERHEAD + _let_go(kept.data)
        if kept.share is not None:
            kept.share.bytes -= RECORD + kept.size
        if kept.place:
            self.message_log.release(kept.size)
            kept.place = 0

    def release_all(self, done: list[QueuedMessage]) -> int:
        """
        These are owed no more; how many bytes they have.
        """
        if self.sent:
            self._write_sent()
        size = in_memory = on_disk = 0
        for kept in done:
            size += kept.size
            if kept.share is not None:
                kept.share.bytes -= RECORD + kept.size
            data = kept.data
            if data is not None:
                in_memory += kept.size if data.__class__ is bytes else _let_go(data)
            if kept.place:
                on_disk += kept.size
                kept.place = 0
        self.held -= OVERHEAD * len(done) + in_memory
        self.message_log.release(on_disk)
        return size

    def acknowledged(self, sid: int, number: int) -> None:
        self._dirty = True
        self.message_log.acknowledged(sid, number)

    def state(self, sid: int, state: dict[str, object], fresh: bool = False) -> None:
        """
        What is to be known of a session after a restart.
        """
        if self.sent:
            self._write_sent()
        self._dirty = True
        self.message_log.state(sid, msgspec.json.encode(state), fresh)

    def forget(self, sid: int) -> None:
        if self.sent:
            self._write_sent()
        self._dirty = True
        self.message_log.forget(sid)

    # -- what has come ---------------------------------------------------------

    def heard(self, sid: int, received: int, pending: Sequence[int]) -> None:
        self.message_log.heard(sid, received, pending)

    def settle(self, now: bool = False) -> None:
        """
        Write down all that happened; connectors call it before a byte leaves.

        A disk that took nothing is asked again after a while, or `now`.
        """
        if not self._dirty and not self.heard_from and not self.sent:
            return
        if self.sent:
            self._write_sent()
        heard, self.heard_from = self.heard_from, set()
        for outbox in heard:
            outbox.write_down()
        self._dirty = False
        leaving, self._leaving = self._leaving, []
        failed = (
            self._input_order or self.message_log.failing is not None
        )  # the latter since the node's start
        if not self._write(now):
            self._dirty = self.unpaged = True  # it is tried again, and nobody is told meanwhile
            self._unwritten |= heard
            if not self._input_order:
                self._input_order = True
                self._hold(set(leaving))
        else:
            if self._unwritten:
                heard |= self._unwritten
                self._unwritten = set()
            for outbox in heard:
                outbox.on_disk = outbox.finished
            if failed:
                self._input_order = False
                self._go_on()
                self.settle()  # what that sends must not leave before it is written either
            if self._after:
                self._go_after()
            for kept in self._to_disk:
                self.page_out(kept)
            for outbox in heard:
                if outbox.untold >= ACK_AFTER:
                    outbox.tell()
                else:
                    self._untold.add(outbox)
        if self._to_disk:
            self._to_disk = []
            if self.held > self.most:
                self._make_room()
        if self.crowded or self.message_log.live > self.most_on_disk:
            self._look_at_the_limit()
        self._tell_soon()

    def limit_disk(self, most: int) -> None:
        """
        So much may be owed on disk from now on; what is owed already stays.
        """
        self.most_on_disk = most
        self._lowered = self.message_log.live > most

    def _look_at_the_limit(self) -> None:
        seconds, message_log = self._clock.seconds(), self.message_log
        if message_log.live > self.most_on_disk and not self._lowered and seconds >= self._shed_again:
            self.shed()
            if message_log.live > self.most_on_disk:
                self._shed_again = seconds + TRY_AGAIN
        self.crowded = message_log.live > self.most_on_disk
        self._lowered = self._lowered and self.crowded

    def when_written(self, call: Callable[[], object]) -> None:
        """
        Call this once all that happened so far is written down.
        """
        self._dirty = True
        self._after.append(call)

    def _go_after(self) -> None:
        after = list(self._after)
        self._after.clear()
        for call in after:
            call()
        self.settle()

    def _write(self, now: bool) -> bool:
        """
        False if the disk takes nothing; it is not asked with every message.
        """
        seconds = self._clock.seconds()
        if self.message_log.failing is not None and seconds < self._try_again and not now:
            return False
        self._try_again = seconds + TRY_AGAIN
        return self.message_log.settle()

    def _tell(self) -> None:
        self._telling = False
        self.settle()
        if self.message_log.failing is None:
            untold, self._untold = self._untold, set()
            for outbox in untold:
                if outbox.untold:
                    outbox.tell()
        self._tell_soon()

    def _tell_soon(self) -> None:
        if (self._untold or self._unwritten) and not self._telling:
            self._telling = True
            self._clock.callLater(TELL_EVERY, self._tell)


def _taken(data: bytes) -> int:
    """
    How much more memory these bytes take, now that one more message has them.
    """
    if isinstance(data, Payload):
        data.holders += 1
        return len(data) if data.holders == 1 else 0
    return len(data)


def _let_go(data: bytes) -> int:
    """
    How much less, now that one has them no more.
    """
    if isinstance(data, Payload):
        data.holders -= 1
        return 0 if data.holders else len(data)
    return len(data)
