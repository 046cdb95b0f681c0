"""
The delivery journal: undelivered messages are written to disk before they are sent.

Everything that one read of a socket causes goes to the spool in one write, just before the first byte of it
is sent. So every message that a recipient has seen is on disk, and a sender gets its acknowledgement after
that.
"""

import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from twisted.internet.interfaces import IReactorTime

from msgnode.sessions.limits.spool_share import RECORD_BYTES
from msgnode.sessions.persistence import MessageLog
from msgnode.sessions.queue import FOREVER, OVERHEAD_BYTES, Payload, QueuedMessage

ACK_AFTER = 64  # messages; fewer are acknowledged after ACK_SECONDS
ACK_SECONDS = 0.4  # documented as 0.5
MAX_WAITING_CALLS = 10_000  # calls that wait for a failing disk
RETRY_SECONDS = 1.0  # seconds between attempts to write to a failing disk


class Acknowledging(Protocol):
    """
    One direction of a session: its client gets an acknowledgement when its messages are on disk (inbox.py).
    """

    on_disk: int

    @property
    def finished(self) -> int:
        """
        The number up to which all messages have been received and processed.
        """

    @property
    def unacknowledged(self) -> int:
        """
        The number of messages on disk that are not yet acknowledged to the client.
        """

    def write_state(self) -> None:
        """
        Adds the messages received since the last batch to this one.
        """

    def send_ack(self) -> None:
        """
        Acknowledges to the client the messages that are on disk.
        """


class DeliveryJournal:
    """
    The write-ahead journal of undelivered messages.

    If a write fails, `suspend` is called once with the sids of the sessions that had something to send; after
    the next successful write, `resume`.

    `bytes_in_memory` is the memory of undelivered messages. Above half of `most`, new ones stay on disk only;
    above `most`, `make_room` is called. `bytes_apart` are bytes on disk of others than sessions, who
    have bounds of their own.
    """

    def __init__(
        self,
        message_log: MessageLog,
        most: int,
        make_room: Callable[[], None],
        suspend: Callable[[set[int]], None],
        resume: Callable[[], None],
        clock: IReactorTime,
        wall: Callable[[], float],
    ) -> None:
        self.bytes_in_memory = 0
        self.bytes_apart = 0
        self.message_log = message_log
        self.sent: list[
            tuple[int, QueuedMessage, int]
        ] = []  # sid, message and number of each message sent in this batch
        self.most = most
        # Undelivered bytes on disk beyond which `shed` is called; `crowded`: it could not make enough room.
        self.most_on_disk = sys.maxsize
        self.crowded = False
        self.shed: Callable[[], None] = lambda: None
        self.on_crowded: Callable[[], object] = lambda: None  # called when `crowded` becomes true
        self._lowered = False  # more was undelivered when that limit was set
        self._shed_after = 0.0
        self._make_room = make_room
        self._suspend = suspend
        self._resume = resume
        self._leaving: list[int] = []  # sids of sessions that are sent something in this batch
        self._suspended = False
        self._retry_at = 0.0  # when a failing disk is tried again
        self._clock = clock
        self._wall = wall
        self.received_from: set[Acknowledging] = set()  # inboxes with messages since the last flush
        self._unwritten: set[Acknowledging] = set()  # the same, from failed writes
        self._calls_before: list[Callable[[], object]] = []
        self._waiting_calls: deque[Callable[[], object]] = deque(maxlen=MAX_WAITING_CALLS)
        self._unacknowledged: set[Acknowledging] = set()
        self._acks_scheduled = False
        self._dirty = True  # a node may start with a failing disk
        self.unpaged = False  # is there more in memory than what is on its way to the disk?
        self._to_disk: list[QueuedMessage] = []  # may leave memory once they are on disk
        self._moved: list[tuple[QueuedMessage, int]] = []  # their places once the whole spool is rewritten
        self._carried_at = 0  # the place of the records that the data plane has given last

    # -- undelivered messages ----------------------------------------------------------

    def append(self, sid: int, kept: QueuedMessage, number: int = 0) -> None:
        """
        Appends an undelivered message; `number` if it is sent at once.
        """
        if self.sent:
            self._write_sent()
        self._dirty = True
        data = kept.data
        assert data is not None
        until = kept.until
        if until != FOREVER:
            until = self.by_wall(until)
        kept.place = self.message_log.append(sid, kept.key, data, until, kept.priority, kept.asker, number)
        if kept.copy is not None:
            self.message_log.copies(sid, kept.copy[0], ((kept.key, kept.copy[1]),))
        self.bytes_in_memory += OVERHEAD_BYTES + _memory_taken(data)
        if kept.share is not None:
            kept.share.bytes += RECORD_BYTES + kept.size
        if self.bytes_in_memory > self.most >> 1:
            self._to_disk.append(kept)
        else:
            self.unpaged = True

    def _write_sent(self) -> None:
        """
        Appends the records of sent messages; before any other record, which may make them void.
        """
        sent, self.sent = self.sent, []
        self.message_log.append_sent(sent)
        self._leaving += [sid for sid, _, _ in sent]
        if self.bytes_in_memory > self.most >> 1:
            self._to_disk += [kept for _, kept, _ in sent]
        else:
            self.unpaged = True

    def carried_offset(self) -> int:
        """
        The offset in the batch of the records that the data plane will give.
        """
        if self.sent:
            self._write_sent()
        return self.message_log.offset

    def append_carried(self, records: bytes, live: int) -> None:
        """
        Appends the records of messages that the data plane sends; their sizes add up to `live`.
        """
        self._dirty = True
        self._carried_at = self.message_log.append_records(records, live)

    def keep_carried(
        self, sid: int, key: int, messages: list[bytes], offsets: list[int]
    ) -> tuple[list[QueuedMessage], int]:
        """
        One session's messages of those records, with keys from `key` on, and their size in bytes.
        """
        self._leaving.append(sid)
        first = self._carried_at
        if not first:
            offsets = [0] * len(offsets)
        kept = [
            QueuedMessage(each, data, len(data), FOREVER, 5, 0, first + offset)
            for each, data, offset in zip(range(key, key + len(messages)), messages, offsets, strict=True)
        ]
        size = sum(map(len, messages))
        self.bytes_in_memory += OVERHEAD_BYTES * len(kept) + size
        if self.bytes_in_memory > self.most >> 1:
            self._to_disk += kept
        else:
            self.unpaged = True
        return kept, size

    def by_wall(self, until: float) -> float:
        """
        Converts a time of the node's clock to the wall clock, which continues through a restart.
        """
        return until if until == FOREVER else until - self._clock.seconds() + self._wall()

    def by_clock(self, until: float) -> float:
        return until if until == FOREVER else until + self._clock.seconds() - self._wall()

    def recover(self, kept: QueuedMessage) -> None:
        """
        Counts an undelivered message that is on disk since before a restart.
        """
        self.bytes_in_memory += OVERHEAD_BYTES

    def page_out(self, kept: QueuedMessage) -> None:
        """
        Drops this message from memory, if it is on disk.
        """
        if kept.place and kept.data is not None and self.message_log.holds(kept.place, kept.size):
            self.bytes_in_memory -= _memory_freed(kept.data)
            kept.data = None

    def rewrite(self, sid: int, kept: QueuedMessage, number: int) -> None:
        """
        Appends the message again, because its segment is removed or was never written.
        """
        if self.sent:
            self._write_sent()
        self._dirty = True
        data = self.data(kept)
        until = self.by_wall(kept.until)
        if kept.copy is not None:
            self.message_log.copies(sid, kept.copy[0], ((kept.key, kept.copy[1]),))
        if kept.data is None and self.message_log.rewriting:
            # That file may be discarded, and memory may not hold all messages: this one stays in its place.
            self.message_log.release(kept.size)
            place = self.message_log.append(sid, kept.key, data, until, kept.priority, kept.asker, number)
            self._moved.append((kept, place))
            return
        if kept.data is None:
            # Its place is removed, and the disk may fail to write it again: it stays in memory until it is
            # written.
            kept.data = data
            self.bytes_in_memory += _memory_taken(data)
            self._to_disk.append(kept)
        if kept.place:
            self.message_log.release(kept.size)
        kept.place = self.message_log.append(sid, kept.key, data, until, kept.priority, kept.asker, number)

    def move(self, finished: bool) -> None:
        """
        The whole spool was rewritten: messages are read from their new places. Without `finished`, the
        rewrite starts again.
        """
        moved, self._moved = self._moved, []
        for kept, place in moved:
            if finished and kept.place and kept.data is None:
                kept.place = place

    def data(self, kept: QueuedMessage) -> bytes:
        return kept.data if kept.data is not None else self.message_log.read(kept.place, kept.size)

    def mark_sent(self, sid: int, kept: QueuedMessage, number: int) -> None:
        if self.sent:
            self._write_sent()
        self._dirty = True
        self._leaving.append(sid)
        self.message_log.sent(sid, kept.key, number)

    def require_flush(self, sid: int) -> None:
        """
        Notes that this batch sends a session something that must be on disk before.
        """
        self._dirty = True
        self._leaving.append(sid)

    def remove(self, sid: int, kept: QueuedMessage, missed: bool) -> None:
        """
        Removes a message that was delivered, or with `missed` never will be.
        """
        if self.sent:
            self._write_sent()
        self._dirty = True
        self.message_log.removed(sid, kept.key, missed)
        self.release(kept)

    def missed(self, sid: int, key: int) -> None:
        """
        Notes a message that was never queued, and that its session counts as missed.
        """
        if self.sent:
            self._write_sent()
        self._dirty = True
        self.message_log.removed(sid, key, True)

    def release(self, kept: QueuedMessage) -> None:
        if self.sent:
            self._write_sent()
        self.bytes_in_memory -= (
            OVERHEAD_BYTES if kept.data is None else OVERHEAD_BYTES + _memory_freed(kept.data)
        )
        if kept.share is not None:
            kept.share.bytes -= RECORD_BYTES + kept.size
        if kept.place:
            self.message_log.release(kept.size)
            kept.place = 0

    def release_all(self, done: list[QueuedMessage]) -> int:
        """
        Releases messages that are no longer undelivered. Returns their size in bytes.
        """
        if self.sent:
            self._write_sent()
        size = in_memory = on_disk = 0
        for kept in done:
            size += kept.size
            if kept.share is not None:
                kept.share.bytes -= RECORD_BYTES + kept.size
            data = kept.data
            if data is not None:
                in_memory += kept.size if data.__class__ is bytes else _memory_freed(data)
            if kept.place:
                on_disk += kept.size
                kept.place = 0
        self.bytes_in_memory -= OVERHEAD_BYTES * len(done) + in_memory
        self.message_log.release(on_disk)
        return size

    def acknowledged(self, sid: int, number: int) -> None:
        self._dirty = True
        self.message_log.acknowledged(sid, number)

    def state(self, sid: int, state: dict[str, object], fresh: bool = False) -> None:
        """
        Writes the state that a session needs after a restart.
        """
        if self.sent:
            self._write_sent()
        self._dirty = True
        self.message_log.state(sid, msgspec.json.encode(state), fresh)

    def copies(self, sid: int, instance: bytes, copies: Sequence[tuple[int, int]]) -> None:
        """
        Writes the ids of messages of which another node may have copies: of each its key and its number.
        """
        if self.sent:
            self._write_sent()
        self._dirty = True
        self.message_log.copies(sid, instance, copies)

    def forget(self, sid: int) -> None:
        if self.sent:
            self._write_sent()
        self._dirty = True
        self.message_log.forget(sid)

    # -- received messages ---------------------------------------------------------

    def received(self, sid: int, received: int, pending: Sequence[int]) -> None:
        self.message_log.received(sid, received, pending)

    def settle(self, now: bool = False) -> None:
        """
        Writes all records to disk; connectors call it before a byte is sent.

        A failing disk is tried again after RETRY_SECONDS, or with `now` at once.
        """
        if not self._dirty and not self.received_from and not self.sent:
            return
        if self._calls_before:
            self._call_before()
        if self.sent:
            self._write_sent()
        inboxes, self.received_from = self.received_from, set()
        for inbox in inboxes:
            inbox.write_state()
        self._dirty = False
        leaving, self._leaving = self._leaving, []
        failed = self._suspended or self.message_log.failing is not None  # the latter since the node's start
        if not self._write(now):
            self._dirty = self.unpaged = True  # it is tried again; no acknowledgement is sent meanwhile
            self._unwritten |= inboxes
            if not self._suspended:
                self._suspended = True
                self._suspend(set(leaving))
        else:
            if self._unwritten:
                inboxes |= self._unwritten
                self._unwritten = set()
            for inbox in inboxes:
                inbox.on_disk = inbox.finished
            if failed:
                self._suspended = False
                self._resume()
                self.settle()  # what that sends must be written first, too
            if self._waiting_calls:
                self._call_waiting()
            for kept in self._to_disk:
                self.page_out(kept)
            for inbox in inboxes:
                if inbox.unacknowledged >= ACK_AFTER:
                    inbox.send_ack()
                else:
                    self._unacknowledged.add(inbox)
        if self._to_disk:
            self._to_disk = []
            if self.bytes_in_memory > self.most:
                self._make_room()
        if self.crowded or self.message_log.live - self.bytes_apart > self.most_on_disk:
            self._check_disk_limit()
        self._schedule_acks()

    def limit_disk(self, most: int) -> None:
        """
        Sets the limit of undelivered bytes on disk; what is on disk already stays.
        """
        self.most_on_disk = most
        self._lowered = self.bytes_on_disk > most

    @property
    def bytes_on_disk(self) -> int:
        """
        The bytes of sessions' undelivered messages on disk.
        """
        return self.message_log.live - self.bytes_apart

    def _check_disk_limit(self) -> None:
        seconds = self._clock.seconds()
        if self.bytes_on_disk > self.most_on_disk and not self._lowered and seconds >= self._shed_after:
            self.shed()
            if self.bytes_on_disk > self.most_on_disk:
                self._shed_after = seconds + RETRY_SECONDS
        before, self.crowded = self.crowded, self.bytes_on_disk > self.most_on_disk
        self._lowered = self._lowered and self.crowded
        if self.crowded and not before:
            self.on_crowded()

    def before_write(self, call: Callable[[], object]) -> None:
        """
        Calls this when the batch is about to be written: what it appends is part of it. It must not raise.
        """
        self._dirty = True
        self._calls_before.append(call)

    def _call_before(self) -> None:
        calls, self._calls_before = self._calls_before, []
        for call in calls:
            call()

    def when_written(self, call: Callable[[], object]) -> None:
        """
        Calls this once everything up to now is on disk.
        """
        self._dirty = True
        self._waiting_calls.append(call)

    def _call_waiting(self) -> None:
        waiting = list(self._waiting_calls)
        self._waiting_calls.clear()
        for call in waiting:
            call()
        self.settle()

    def _write(self, now: bool) -> bool:
        """
        False if the disk fails; a failing disk is not tried with every message.
        """
        seconds = self._clock.seconds()
        if self.message_log.failing is not None and seconds < self._retry_at and not now:
            return False
        self._retry_at = seconds + RETRY_SECONDS
        return self.message_log.flush()

    def _send_acks(self) -> None:
        self._acks_scheduled = False
        self.settle()
        if self.message_log.failing is None:
            unacknowledged, self._unacknowledged = self._unacknowledged, set()
            for inbox in unacknowledged:
                if inbox.unacknowledged:
                    inbox.send_ack()
        self._schedule_acks()

    def _schedule_acks(self) -> None:
        if (self._unacknowledged or self._unwritten) and not self._acks_scheduled:
            self._acks_scheduled = True
            self._clock.callLater(ACK_SECONDS, self._send_acks)


def _memory_taken(data: bytes) -> int:
    """
    The bytes of memory that one more reference to this data takes.
    """
    if isinstance(data, Payload):
        data.holders += 1
        return len(data) if data.holders == 1 else 0
    return len(data)


def _memory_freed(data: bytes) -> int:
    """
    The bytes of memory that one reference less to this data frees.
    """
    if isinstance(data, Payload):
        data.holders -= 1
        return 0 if data.holders else len(data)
    return len(data)
