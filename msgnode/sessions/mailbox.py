"""
Mailbox: the undelivered messages of one session. It outlives the session's connections.

Messages wait in the queue while the client is disconnected or reads too slowly. Messages sent to a client
that acknowledges stay in the outbox until they are acknowledged, and messages from the client are counted in
the inbox. The journal writes all of this to disk.
"""

from collections.abc import Callable
from typing import Any, Protocol

from twisted.logger import Logger

from msgnode.protocol.errors import Malformed
from msgnode.protocol.message import Message, recall
from msgnode.sessions.counters import Counters
from msgnode.sessions.inbox import Inbox
from msgnode.sessions.journal import DeliveryJournal
from msgnode.sessions.limits.spool_share import Share
from msgnode.sessions.outbox import Outbox, OutboxConnection
from msgnode.sessions.queue import FOREVER, MessageQueue, QueuedMessage, default_ttl

log = Logger()

GIVEN_SECONDS = 15.0  # for another node to say that it has a message; then that may have been killed
ARRIVING_KEYS = 1 << 32  # keys for the messages that arrive from another node


class MailboxConnection(OutboxConnection, Protocol):
    """
    A connection as a mailbox uses it (session.Connection documents the members).
    """

    write_paused: bool


class MailboxSession(Protocol):
    """
    The session that the mailbox belongs to.
    """

    sid: int
    runtime: str
    due: bool

    @property
    def connection(self) -> MailboxConnection | None: ...

    @property
    def is_moved(self) -> bool:
        """
        Does its state say something about moves between nodes, which must stay on disk?
        """

    def pause(self) -> None:
        """
        Queues all messages from now on.
        """

    def write_state(self, fresh: bool = False) -> None:
        """
        Writes the state of the session and its mailbox; `fresh`: the earlier state is void.
        """

    def send_uncounted(self, connection: Any, data: bytes) -> None:
        """
        Sends data without a number, such as an acknowledgement.
        """

    def overflowed(self) -> None:
        """
        Notes that the queue was full, and that the oldest message was dropped.
        """


class MailboxHost(Protocol):
    """
    The callbacks from a mailbox to the object that has all sessions (Sessions).
    """

    counts: Counters
    journal: DeliveryJournal
    copy_id: Callable[[Message], tuple[bytes, int] | None] | None  # None: there are no other nodes

    def now(self) -> float: ...
    def make_queue(self) -> MessageQueue: ...
    def make_outbox(self, mailbox: "Mailbox", client_requested: bool) -> Outbox: ...

    def may_keep(self, message: Message, mailbox: "Mailbox") -> Share | None:
        """
        The share of the spool that this message uses while it is queued; None: it may not be queued.
        """

    def expire_at(self, until: float, mailbox: "Mailbox") -> None:
        """
        Calls `expire` at that time: a sender asked for a receipt of a message with a time to live.
        """

    def dropped(self, runtime: str, code: int) -> None:
        """
        Notes that a message for this runtime is dropped, with the code of its receipt.
        """

    def receipt(self, data: bytes, code: int, asker: int) -> None:
        """
        Sends a receipt for this message to the session with the sid `asker`.
        """


class Overlap(Protocol):
    """
    The copies of a publication that come to a session by two nodes, while it moves from one to the other.
    """

    def admits(self, message: Message) -> bool:
        """
        False if the other copy is here.
        """

    def follows(self, kept: QueuedMessage) -> bool:
        """
        Has the other node sent this copy, and has an earlier message of the same source come here by itself?
        """

    def note(self, kept: QueuedMessage) -> None:
        """
        Notes a message that is queued, by the id of its copies.
        """

    def rewrite(self) -> None:
        """
        Writes the ids of copies again, because segments that have them will be removed.
        """


class Mailbox:
    """
    The queue, the outbox and the inbox of one session.

    `outbox` and `inbox` are None if the client does not acknowledge. `last_key` counts all messages that were
    ever put into it. `missed` counts the messages that were dropped since the last `re-open` of a client that
    acknowledges; with `uncertain` the number is not known.

    While messages of the session arrive from another node, those that are sent to it here wait behind them.
    `overlap` knows the copies that both nodes get meanwhile.
    """

    __slots__ = (
        "__weakref__",
        "_behind",
        "_behind_base",
        "_behind_key",
        "_given_key",
        "_given_until",
        "_has_late",
        "_host",
        "_late_key",
        "_queue",
        "inbox",
        "journal",
        "last_key",
        "missed",
        "outbox",
        "overlap",
        "session",
        "sid",
        "uncertain",
    )

    def __init__(self, session: MailboxSession, host: MailboxHost) -> None:
        self.session = session
        self.sid = session.sid
        self.journal = host.journal
        self.outbox: Outbox | None = None
        self.inbox: Inbox | None = None
        self.last_key = 0
        self.missed = 0
        self.uncertain = False
        self.overlap: Overlap | None = None
        self._queue: MessageQueue | None = None
        self._behind: MessageQueue | None = None
        self._late_key = 0
        self._has_late = False  # did such a message come since the arrival began
        self._behind_base = 0  # the key after which those are
        self._behind_key = 0  # of the last message behind those that arrive; 0: none arrive
        self._given_key = 0  # up to there another node may have the messages, and answers for them
        self._given_until = 0.0  # as long as that is waited for
        self._host = host

    # -- the queue -------------------------------------------------------------

    @property
    def queued(self) -> int:
        """
        The number of queued messages.
        """
        queued = len(self._queue) if self._queue else 0
        return queued + len(self._behind) if self._behind else queued

    @property
    def queued_bytes(self) -> int:
        queued = self._queue.bytes if self._queue else 0
        return queued + self._behind.bytes if self._behind else queued

    @property
    def oldest_came(self) -> int:
        """
        When the oldest queued message came, in nanoseconds since 1970; 0 if that is not known.
        """
        return self._queue.oldest_came if self._queue else 0

    def waiting_messages(self) -> list[QueuedMessage]:
        """
        The queued messages, and those that wait behind what arrives from another node.
        """
        return [*(self._queue or ()), *(self._behind or ())]

    def queued_messages(self) -> list[QueuedMessage]:
        """
        The queued messages, oldest first within a priority.
        """
        return list(self._queue or ())

    def put(self, message: Message, asker: int = 0) -> bool:
        """
        Puts the message at the end of the queue.

        False: there is no room for it; a sender that asked gets a receipt.
        """
        host, queue = self._host, self._queue
        overlap = self.overlap
        if overlap is not None and not overlap.admits(message):
            return True
        share = host.may_keep(message, self)
        if share is None:
            self._refuse(message, asker)
            return False
        if self._behind_key:
            queue = self._behind
            if queue is None:
                queue = self._behind = host.make_queue()
            key = self._behind_key = self._behind_key + 1
        else:
            if queue is None:
                queue = self._queue = host.make_queue()
            key = self.last_key = self.last_key + 1
        kept = QueuedMessage(
            key,
            message.data,
            len(message.data),
            self._until(message),
            message.effective_priority,
            came=message.received_at,
        )
        if host.copy_id is not None:
            kept.copy = host.copy_id(message)
        if overlap is not None:
            overlap.note(kept)
        if asker:
            kept.asker = asker
            self._expire_in_time(kept)
        kept.share = share
        host.counts.waited += 1
        evicted = queue.put(kept)
        self.journal.append(self.sid, kept)
        if evicted:
            host.counts.overflowed += len(evicted)
            for other in evicted:
                self.drop(other, 503)
            self.session.overflowed()
        return True

    def _refuse(self, message: Message, asker: int) -> None:
        """
        Drops a message that may not be queued; a client that acknowledges learns that one is missing.
        """
        self._host.counts.turned_away += 1
        self._host.dropped(self.session.runtime, 507)
        if self.outbox is not None and self.outbox.client_requested:
            self.missed += 1
            self.outbox.transition("dropped")
            self.last_key += 1
            self.journal.missed(self.sid, self.last_key)
        if asker:
            message.code, message.reason = 507, "no-room"
            self._host.receipt(message.data, 507, asker)

    def note_gap(self) -> None:
        """
        Notes that messages for the client may be missing, of which the node does not know how many.
        """
        if self.outbox is not None and self.outbox.client_requested and not self.uncertain:
            self.uncertain = True
            self.session.write_state()

    def _until(self, message: Message) -> float:
        """
        The expiry time of a message. If both sides count, only the sender's own `ttl` limits it.
        """
        wait = FOREVER if message.ttl is None else message.ttl
        if self.outbox is None or not self.outbox.client_requested:
            to = message.to if isinstance(message.to, str) else ""
            wait = min(wait, default_ttl(message.type, to))
        return FOREVER if wait == FOREVER else self._host.now() + wait

    def _expire_in_time(self, kept: QueuedMessage) -> None:
        if kept.asker and kept.until != FOREVER:
            self._host.expire_at(kept.until, self)

    def pop(self) -> QueuedMessage | None:
        """
        The next message to send; None: the queue is empty.
        """
        while self._queue:
            kept = self._queue.pop()
            assert kept is not None
            if kept.until > self._host.now():
                return kept
            self._expire(kept)
        self._queue = None
        return None

    def send(self, kept: QueuedMessage, data: bytes, connection: MailboxConnection) -> None:
        """
        Sends a message that `pop` returned.
        """
        if self.outbox is not None:
            self.outbox.send_queued(kept, data)
            return
        self.send_receipt(kept, 202)
        # Before it is sent: a client that does not acknowledge gets no message twice.
        self.journal.remove(self.sid, kept, missed=False)
        connection.send(data)

    def expire(self) -> None:
        """
        Drops the messages whose time to live has ended; the senders that asked get receipts.
        """
        now = self._host.now()
        for kept in self._queue.remove(lambda each: self._expires_at(each) <= now) if self._queue else ():
            self._expire(kept)

    def next_expiry(self) -> float | None:
        """
        The expiry time of the next message whose sender asked for a receipt.
        """
        asked = [kept for kept in self._queue or () if kept.asker and kept.until != FOREVER]
        return min(map(self._expires_at, asked), default=None)

    def _expires_at(self, kept: QueuedMessage) -> float:
        return kept.until if kept.key > self._given_key else max(kept.until, self._given_until)

    def _expire(self, kept: QueuedMessage) -> None:
        self._host.counts.stale += 1
        self.drop(kept, 408)

    def drop(self, kept: QueuedMessage, code: int) -> None:
        """
        Drops a message that will never be sent; the code gives the reason.
        """
        outbox = self.outbox
        counted = outbox is not None and outbox.client_requested
        self._host.dropped(self.session.runtime, code)
        if outbox is not None and counted:
            self.missed += 1
            outbox.transition("dropped")
        self.send_receipt(kept, code)
        self.journal.remove(self.sid, kept, missed=counted)

    def purge(self, most: int, older: int = 0) -> list[QueuedMessage]:
        """
        Drops at most so many queued messages, by the order of an operator, and returns them; with `older`
        only those that came before this time, in nanoseconds since 1970.
        """
        gone: list[QueuedMessage] = []
        while self._queue and len(gone) < most:
            kept = self._queue.pop_older(older) if older else self._queue.shed()
            if kept is None:
                break
            gone.append(kept)
            self.drop(kept, 503)
        return gone

    # -- all messages ---------------------------------------------------------------

    def undelivered(self) -> list[QueuedMessage]:
        """
        All undelivered messages of the session, oldest first.
        """
        sent = list(self.outbox.sent) if self.outbox is not None else []
        return sent + (list(self._queue) if self._queue else [])

    def close(self) -> None:
        """
        The session has ended: drops all messages, and sends a receipt to each sender that asked.
        """
        undelivered = [*self.undelivered(), *(self._behind or ())]
        self._empty()
        for kept in undelivered:
            self._host.dropped(self.session.runtime, 410)
            self.send_receipt(kept, 410)
            self.journal.release(kept)

    def _empty(self) -> None:
        self._drop_queue()
        if self._behind is not None:
            self._behind.clear()
        self.outbox = self.inbox = self._behind = None

    def _drop_queue(self) -> None:
        if self._queue is not None:
            self._queue.clear()
        self._queue = None

    def send_receipt(self, kept: QueuedMessage, code: int) -> None:
        """
        Sends a receipt to the sender of the message, if it asked for one.
        """
        if not kept.asker:
            return
        try:
            data = self.journal.data(kept)
        except OSError:
            log.failure(
                "a message for {runtime} could not be read back for its receipt", runtime=self.session.runtime
            )
        else:
            self._host.receipt(data, code, kept.asker)

    def shed(self, enough: Callable[[], bool]) -> None:
        """
        Memory is full: pages out what is on disk, then drops the oldest messages until `enough()`.
        """
        for kept in self.undelivered():
            self.journal.page_out(kept)
        self.shed_queue(enough)
        outbox = self.outbox
        while not enough() and outbox is not None:
            oldest = outbox.drop_oldest()
            if oldest is None:
                break
            self._host.counts.shed += 1
            self._host.dropped(self.session.runtime, 503)
            self.send_receipt(oldest, 503)
            self.journal.release(oldest)
            outbox.transition("dropped")

    def shed_queue(self, enough: Callable[[], bool]) -> None:
        """
        Drops the oldest queued messages until `enough()`.
        """
        while not enough() and self._queue:
            self._host.counts.shed += 1
            self.drop(self._queue.shed(), 503)

    # -- acknowledged resume ---------------------------------------------------

    def start_epoch(self, counted: bool, client_requested: bool = False) -> None:
        """
        Starts a new epoch of numbers or, if not `counted`, stops counting; unacknowledged messages are queued
        again.
        """
        before, undelivered = self.outbox, self.undelivered()
        self.outbox = self.inbox = None
        if counted:
            self.outbox, self.inbox = self._host.make_outbox(self, client_requested), Inbox(self)
            self.outbox.transition("opened")
        if before is None:
            return
        self._drop_queue()
        self.session.write_state(fresh=True)
        for kept in [kept for kept in undelivered if self._prepare_requeue(kept)]:
            self._requeue(kept)
        self._write_behind_again()

    def _prepare_requeue(self, kept: QueuedMessage) -> bool:
        """
        Reads the message back, to queue it again; False if it is lost.
        """
        data = self.read_back(kept)
        self.journal.release(kept)
        if data is None or not self._set_priority(kept, data):
            self.missed += self.outbox is not None and self.outbox.client_requested
            return False
        kept.data = data
        return True

    def _set_priority(self, kept: QueuedMessage, data: bytes) -> bool:
        """
        Sets the priority of a message that was sent without queueing, from its own header.

        False: its header cannot be decoded.
        """
        if kept.until != FOREVER:
            return True
        try:
            message = recall(data)
        except Malformed as why:
            self._log_unreadable(str(why))
            return False
        kept.priority, kept.until = message.effective_priority, self._until(message)
        self._expire_in_time(kept)
        return True

    def _requeue(self, kept: QueuedMessage, queue: MessageQueue | None = None) -> None:
        """
        Puts a message back into the queue; messages without room are dropped.
        """
        if queue is None:
            queue = self._queue = self._queue if self._queue is not None else self._host.make_queue()
        evicted = queue.put(kept)
        self.journal.append(self.sid, kept)
        for other in evicted:
            self._host.counts.overflowed += 1
            self.drop(other, 503)

    def mark_uncertain(self) -> None:
        """
        Notes that an unknown number of messages may be lost; the client learns of it at its next `re-open`.
        """
        self.uncertain = True
        if self.outbox is not None and self.outbox.client_requested:
            self.start_epoch(True, client_requested=True)
            self.outbox.transition("lost")
        elif self.outbox is None:
            self._write_queue_again()
        self.session.write_state()

    def lose_carried(self) -> None:
        """
        Notes that the data plane carried messages that were not counted here; the connection ends.

        New numbers begin, which the client learns at its `re-open`: messages may be missing, or come again.
        """
        self.uncertain = True
        if self.outbox is not None:
            self.outbox.epoch = ""  # unknown to the client, even if memory is too short for a new one
            self.session.pause()
            self.start_epoch(True, client_requested=self.outbox.client_requested)
        self.session.write_state()

    def _write_queue_again(self) -> None:
        """
        Makes the earlier records of this session void, and writes its queue again.

        If its state is among what was lost, the numbers in the records that are left are of an unknown
        epoch, and must not count for the next one.
        """
        queued = self.queued_messages()
        self._drop_queue()
        self.session.write_state(fresh=True)
        for kept in queued:
            data = self.read_back(kept)
            self.journal.release(kept)
            if data is not None:
                kept.data = data
                self._requeue(kept)
        self._write_behind_again()

    def merge(self, other: "Mailbox", epoch: str) -> None:
        """
        Moves the messages of the other mailbox behind those in this one; the other is empty then.

        If `epoch` is the epoch of the other's outbox, its numbers continue here.
        """
        outbox, inbox = other.outbox, other.inbox
        if outbox is not None and outbox.client_requested and outbox.epoch == epoch:
            outbox.drop_unreadable(count_missed=True)
            moved = other.queued_messages()
            self.start_epoch(True, client_requested=True)
        else:
            moved, outbox = other.undelivered(), None
        moved += other._behind or ()
        other._empty()
        other.session.write_state(fresh=True)
        if outbox is not None and inbox is not None:
            self.outbox, self.inbox = outbox, inbox
            outbox.move(self)
            inbox.move(self)
            inbox.write_state()
        if self.outbox is not None and self.outbox.client_requested:
            self.missed += other.missed
            self.uncertain = self.uncertain or other.uncertain
        for kept in moved:
            if self._prepare_requeue(kept):
                self.last_key += 1
                kept.key = self.last_key
                self._expire_in_time(kept)
                self._requeue(kept)

    def take_in(self, kept: QueuedMessage, number: int) -> None:
        """
        Takes over a message that another session's mailbox had sent with that number.
        """
        data = self.journal.data(kept)
        self.journal.release(kept)
        self.last_key += 1
        kept.key, kept.data = self.last_key, data
        self.journal.append(self.sid, kept, number)

    # -- moves between nodes ---------------------------------------------------------

    @property
    def is_arriving(self) -> bool:
        """
        Are messages of the session still at another node?
        """
        return self._behind_key != 0

    def begin_arrival(self) -> int:
        """
        From now on messages from another node come before those that are sent to the session here; returns
        the key after which those are written.
        """
        if not self._behind_key:
            self._behind_base = self._behind_key = self.last_key + ARRIVING_KEYS
            self._late_key = self._behind_key - ARRIVING_KEYS // 2
            self._has_late = False
        return self._behind_base

    def end_arrival(self) -> None:
        """
        All messages of another node have come: those that waited behind them follow.
        """
        behind, self._behind = self._behind, None
        if not self._behind_key:
            return
        self.last_key, self._behind_key = self._behind_key, 0
        moved = sorted(behind or (), key=lambda each: each.key)
        if behind is not None:
            behind.clear()
        overlap = self.overlap
        last = [kept for kept in moved if overlap is not None and overlap.follows(kept)]
        keys = {kept.key for kept in last}
        for kept in [kept for kept in moved if kept.key not in keys]:
            if self._queue is None:
                self._queue = self._host.make_queue()
            for other in self._queue.put(kept):
                self._host.counts.overflowed += 1
                self.drop(other, 503)
            self._expire_in_time(kept)  # what is behind others does not expire
        for kept in last:
            self._put_last(kept)

    def _put_last(self, kept: QueuedMessage) -> None:
        """
        Queues a message that is in the journal again, after all others.
        """
        data = self.read_back(kept)
        self.journal.remove(self.sid, kept, missed=False)
        if data is None:
            return
        self.last_key += 1
        kept.key, kept.data = self.last_key, data
        self._expire_in_time(kept)
        self._requeue(kept)

    def adopt_late(
        self,
        data: bytes,
        until: float,
        priority: int,
        copy: tuple[bytes, int] | None = None,
        asker: int = 0,
    ) -> QueuedMessage:
        """
        Puts in a message that was sent to the session at the other node after it had left there: it comes
        right before those that were sent to it here.
        """
        self._has_late = True
        self._late_key += 1
        kept = QueuedMessage(self._late_key, data, len(data), until, priority, asker, copy=copy)
        if self._behind is None:
            self._behind = self._host.make_queue()
        self._requeue(kept, self._behind)
        return kept

    def withdraw(self, kept: QueuedMessage) -> bool:
        """
        Removes a message that `adopt_late` has put in: another copy of it is here. False if that was queued
        or sent meanwhile.
        """
        if self._behind is None or not self._behind.discard(kept):
            return False
        self.journal.remove(self.sid, kept, missed=False)
        return True

    def take_out(self, kept: QueuedMessage) -> bool:
        """
        Removes a message that was put in and is not for this session. False if it was sent meanwhile.
        """
        queue = next((each for each in (self._behind, self._queue) if each and each.discard(kept)), None)
        if queue is not None:
            self.journal.remove(self.sid, kept, missed=False)
        return queue is not None

    def _write_behind_again(self) -> None:
        """
        Writes the messages behind those that arrive, whose records are void, again.
        """
        for kept in list(self._behind or ()):
            data = self.read_back(kept)
            self.journal.release(kept)
            if data is not None:
                kept.data = data
                self.journal.append(self.sid, kept)
            elif self._behind is not None:
                self._behind.remove(lambda each, lost=kept: each is lost)  # type: ignore[misc]

    def adopt(
        self,
        data: bytes,
        until: float,
        priority: int,
        number: int = 0,
        copy: tuple[bytes, int] | None = None,
        asker: int = 0,
    ) -> QueuedMessage:
        """
        Puts in a message that waited at another node; `number` if it was sent there. Those that were sent
        come first, in the order of their numbers. One that follows late messages stays behind them.
        """
        if self._has_late and self._behind_key and not number:
            return self.adopt_late(data, until, priority, copy, asker)
        self.last_key += 1
        kept = QueuedMessage(self.last_key, data, len(data), until, priority, asker, copy=copy)
        if number and self.outbox is not None:
            self.journal.append(self.sid, kept, number)
            self.outbox.restore_sent(kept, number)
        else:
            self._requeue(kept)
            self._expire_in_time(kept)
        return kept

    def give(self, key: int) -> None:
        """
        Messages up to that key are on their way to another node, and do not expire here, because it answers
        for those that expire there; 0: none are. If it does not take them in GIVEN_SECONDS, they expire here.
        """
        self._given_key, self._given_until = key, self._host.now() + GIVEN_SECONDS

    def hand_over(self, key: int) -> None:
        """
        Removes the queued messages up to that key: another node has them on disk.
        """
        for kept in self._queue.remove(lambda each: each.key <= key) if self._queue else ():
            self.send_receipt(kept, 202)
            self.journal.remove(self.sid, kept, missed=False)

    def drop_claimed(self, epoch: str, received: int) -> None:
        """
        Removes messages that another node had sent with numbers of that epoch, and the client has had.
        """
        sent = sent_id(epoch, 0)[0]
        for queue in (self._queue, self._behind):
            for kept in queue.remove(lambda each: _is_among(each, sent, received)) if queue else ():
                self.send_receipt(kept, 202)
                self.journal.remove(self.sid, kept, missed=False)

    # -- on disk ---------------------------------------------------------------

    def restore_queue(self, queued: list[QueuedMessage], behind: int = 0) -> None:
        """
        Restores the queue after a restart; messages with keys above `behind`, if it is not 0, wait for those
        that arrive from another node.
        """
        self._behind_base = self._behind_key = behind
        self._late_key = behind - ARRIVING_KEYS // 2
        for kept in queued:
            self._expire_in_time(kept)
            for other in self._restored_queue(kept.key, behind).put(kept):
                self.drop(other, 503)

    def _restored_queue(self, key: int, behind: int) -> MessageQueue:
        if behind and key > behind - ARRIVING_KEYS // 2:
            if key > behind:
                self._behind_key = max(self._behind_key, key)
            else:
                self._late_key, self._has_late = max(self._late_key, key), True
            if self._behind is None:
                self._behind = self._host.make_queue()
            return self._behind
        if self._queue is None:
            self._queue = self._host.make_queue()
        return self._queue

    def rewrite(self, is_old: Callable[[int], bool]) -> None:
        """
        Writes again all messages in segments that will be removed.
        """
        if self.overlap is not None:
            self.overlap.rewrite()
        if not (self.outbox is not None or self.queued or self.uncertain or self.session.is_moved):
            return
        self.session.write_state()
        try:
            if self.outbox is not None and self.inbox is not None:
                self.inbox.write_state()
                self.outbox.rewrite(is_old)
            for kept in (*(self._queue or ()), *(self._behind or ())):
                if is_old(kept.place):
                    self.journal.rewrite(self.sid, kept, 0)
        except OSError:
            self._drop_unreadable()
            self.rewrite(is_old)

    def read_back(self, kept: QueuedMessage) -> bytes | None:
        """
        The bytes of the message, from memory or disk; None if it is lost, which is logged.
        """
        try:
            return self.journal.data(kept)
        except OSError as why:
            self._log_unreadable(str(why))
            return None

    def _log_unreadable(self, why: str) -> None:
        self._host.counts.unread += 1
        log.error("{runtime} will not get a message: {why}", runtime=self.session.runtime, why=why)

    def is_lost(self, kept: QueuedMessage) -> bool:
        return self.read_back(kept) is None

    def _drop_unreadable(self) -> None:
        """
        Drops the messages that cannot be read back, although the client may have some of them.
        """
        for queue in (self._queue, self._behind):
            for kept in queue.remove(self.is_lost) if queue else ():
                self.drop(kept, 503)
        outbox, connection = self.outbox, self.session.connection
        if outbox is None:
            return
        if not outbox.client_requested:
            outbox.drop_unreadable()  # a polling client names the last message it has, and may get one twice
            return
        if not any(self.is_lost(kept) for kept in outbox.sent):
            return
        # The client comes back with an expired epoch, and learns that messages may be missing.
        self.start_epoch(True, client_requested=True)
        if connection is None and self.outbox is not None:
            self.outbox.transition("lost")
        elif connection is not None:
            self.session.pause()
            connection.abort()


def sent_id(epoch: str, number: int) -> tuple[bytes, int]:
    """
    The id of a message that was sent with a number of that epoch at another node.
    """
    return b"epoch " + epoch.encode()[:50], number


def _is_among(kept: QueuedMessage, sent: bytes, received: int) -> bool:
    return kept.copy is not None and kept.copy[0] == sent and kept.copy[1] <= received
