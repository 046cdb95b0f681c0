"""
Outbox: numbered messages that were sent to a client, until the client acknowledges them.

A session has an outbox and an inbox if its client acknowledges, by `resume` in its open or because it polls.
A message stays in the outbox until it is acknowledged, and is sent again on the client's next connection. The
numbers belong to the session: a client may come back by another connector.

docs/protocol.md, "Acknowledged resume", describes the client's side.
"""

from collections import deque
from collections.abc import Callable, Iterator
from secrets import token_hex
from typing import Any, Protocol

from msgnode.protocol.errors import Rejected
from msgnode.sessions.journal import DeliveryJournal
from msgnode.sessions.queue import FOREVER, OVERHEAD_BYTES, QueuedMessage
from msgnode.transport.data_plane import NO_DATA_PLANE, DataPlane

# The states of the acknowledged delivery. `live`: connected; `away`: disconnected, and all undelivered
# messages are stored; `short` and `gapped`: the same two, but undelivered messages were dropped, which the
# answer to the next `re-open` says. docs/protocol.md draws this table.
TRANSITIONS = {
    ("none", "opened"): "live",
    ("live", "opened"): "live",
    ("live", "reopened"): "live",
    ("live", "lost"): "away",
    ("live", "dropped"): "short",
    ("short", "dropped"): "short",
    ("short", "opened"): "live",
    ("short", "reopened"): "live",
    ("short", "lost"): "gapped",
    ("away", "opened"): "live",
    ("away", "reopened"): "live",
    ("away", "dropped"): "gapped",
    ("gapped", "opened"): "live",
    ("gapped", "reopened"): "live",
    ("gapped", "dropped"): "gapped",
}


class OutboxConnection(Protocol):
    """
    A connection as an outbox uses it (session.Connection documents the members).
    """

    acks_by_request: bool

    def send(self, data: bytes) -> None: ...
    def outbox_ready(self) -> None: ...
    def abort(self) -> None: ...


class OutboxSession(Protocol):
    """
    The session as its outbox uses it.
    """

    @property
    def connection(self) -> OutboxConnection | None: ...

    def pause(self) -> None:
        """
        Queues all messages from now on.
        """

    def write_state(self) -> None:
        """
        Writes the state of the session and its outbox.
        """


class OutboxMailbox(Protocol):
    """
    The mailbox that the outbox belongs to.

    `last_key` counts all messages that were ever put into it; `missed` counts those that its client will
    never get.
    """

    sid: int
    last_key: int
    missed: int

    @property
    def session(self) -> OutboxSession: ...

    @property
    def journal(self) -> DeliveryJournal: ...

    def read_back(self, kept: QueuedMessage) -> bytes | None:
        """
        The bytes of the message, from memory or disk; None if it is lost.
        """

    def is_lost(self, kept: QueuedMessage) -> bool: ...

    def send_receipt(self, kept: QueuedMessage, code: int) -> None:
        """
        Sends a receipt to the sender of the message, if it asked for one.
        """

    def take_in(self, kept: QueuedMessage, number: int) -> None:
        """
        Takes over a message of another session's mailbox.
        """


class Outbox:
    """
    The numbered messages to the client of one session that are not acknowledged.

    `epoch` names one run of numbers, which begins at 1. The client has acknowledged all numbers up to
    `acknowledged`; then come `gaps` numbers whose messages were dropped, and then those of `sent`, oldest
    first, up to number `last`. `client_requested`: the client asked for acknowledgements; otherwise its
    connector counts. `redelivery_incomplete`: redelivery on the current connection stopped early. `state` is
    one of TRANSITIONS.
    """

    __slots__ = (
        "_data_plane",
        "_is_mirrored",
        "_journal",
        "_mailbox",
        "_most_bytes",
        "_most_messages",
        "_session",
        "acknowledged",
        "client_requested",
        "epoch",
        "gaps",
        "gaps_counted",
        "last",
        "redelivery_incomplete",
        "sent",
        "sent_bytes",
        "state",
    )

    def __init__(
        self,
        mailbox: OutboxMailbox,
        most_messages: int,
        most_bytes: int,
        client_requested: bool,
        data_plane: DataPlane = NO_DATA_PLANE,
    ) -> None:
        self.epoch = token_hex(8)
        self.state = "none"
        self.client_requested = client_requested
        self.redelivery_incomplete = False
        self.acknowledged = self.gaps = self.last = 0
        self.gaps_counted = 0  # the gaps that are already counted in the mailbox's `missed`
        self.sent: deque[QueuedMessage] = deque()
        self.sent_bytes = 0
        self._mailbox = mailbox
        self._session = mailbox.session
        self._journal = mailbox.journal
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._data_plane = data_plane
        self._is_mirrored = data_plane.is_native  # it has to know the room

    def transition(self, event: str) -> None:
        """
        Changes the state, by TRANSITIONS.
        """
        self.state = TRANSITIONS[self.state, event]

    @property
    def blocked_on_disk(self) -> bool:
        """
        Is nothing sent, because the disk fails?
        """
        return self._journal.message_log.failing is not None

    @property
    def full(self) -> bool:
        """
        Is nothing new sent, because too much is unacknowledged, or the disk fails?
        """
        if self.blocked_on_disk or self.redelivery_incomplete:
            return True
        return len(self.sent) >= self._most_messages or self.sent_bytes >= self._most_bytes

    def send(self, data: bytes, asker: int = 0) -> None:
        """
        Sends one message without queueing; the journal writes it before its first byte is sent.
        """
        mailbox, sent, journal = self._mailbox, self.sent, self._journal
        mailbox.last_key = key = mailbox.last_key + 1
        self.last = number = self.last + 1
        size = len(data)
        kept = QueuedMessage(key, data, size, FOREVER, 5, asker)
        sent.append(kept)
        self.sent_bytes += size
        journal.sent.append((mailbox.sid, kept, number))
        journal.bytes_in_memory += OVERHEAD_BYTES + size
        self._hand_over(data)
        if len(sent) >= self._most_messages or self.sent_bytes >= self._most_bytes or journal.crowded:
            mailbox.session.pause()
        elif self._is_mirrored:
            self._data_plane.room_changed(mailbox.session.connection, self.room)

    def send_queued(self, kept: QueuedMessage, data: bytes) -> None:
        """
        Sends a message from the queue.
        """
        self.last += 1
        self._journal.mark_sent(self._mailbox.sid, kept, self.last)
        self.sent.append(kept)
        self.sent_bytes += kept.size
        self._hand_over(data)

    def resend(self) -> bool:
        """
        Redelivers all unacknowledged messages on a new connection.

        False: one of them is lost. The connection is closed; the client learns of it when it reconnects.
        """
        connection = self._session.connection
        if connection is None:
            return True
        if connection.acks_by_request:
            connection.outbox_ready()  # it reads them itself, when its client asks
            return True
        for kept in list(self.sent):
            data = self._mailbox.read_back(kept)
            if data is None:
                connection.abort()
                return False
            self._hand_over(data)
        return True

    def _hand_over(self, data: bytes) -> None:
        connection = self._session.connection
        if connection is None:
            return
        if connection.acks_by_request:
            connection.outbox_ready()
        else:
            connection.send(data)

    def acknowledge(self, number: int) -> None:
        """
        Notes that the client has everything up to this number.
        """
        if not self.acknowledged <= number <= self.last:
            raise Rejected(f"'received' must be {self.acknowledged} to {self.last}, not {number}")
        mailbox = self._mailbox
        count = number - self.acknowledged
        if not count:
            return
        found = min(count, self.gaps)  # these had reached the client before they were dropped here
        self.gaps -= found
        self.gaps_counted = min(self.gaps_counted, self.gaps)
        self.acknowledged = number
        self._journal.acknowledged(mailbox.sid, number)
        done = [self.sent.popleft() for _ in range(count - found)]
        for kept in done:
            if kept.asker:
                mailbox.send_receipt(kept, 200)
        self.sent_bytes -= self._journal.release_all(done)
        if self._is_mirrored:
            self._data_plane.room_changed(mailbox.session.connection, self.room)

    # -- what the data plane carries --------------------------------------------

    @property
    def room(self) -> tuple[int, int]:
        """
        Messages and bytes until the outbox is full.
        """
        if self.full or self._journal.crowded:
            return 0, 0
        return self._most_messages - len(self.sent), self._most_bytes - self.sent_bytes

    def take_numbers(self, count: int) -> tuple[int, int, int]:
        """
        The session's sid, and the key and the number of the first of so many messages that are being sent.
        """
        mailbox = self._mailbox
        key, number = mailbox.last_key + 1, self.last + 1
        mailbox.last_key += count
        self.last += count
        return mailbox.sid, key, number

    def keep_carried(self, key: int, messages: list[bytes], offsets: list[int]) -> tuple[int, int]:
        """
        Keep the messages that `take_numbers` was called for, whose records the journal has; returns the room.

        `messages` has the bytes of each, `offsets` where in the records they are.
        """
        kept, size = self._journal.keep_carried(self._mailbox.sid, key, messages, offsets)
        self.sent.extend(kept)
        self.sent_bytes += size
        return self.room

    def drop_oldest(self) -> QueuedMessage | None:
        """
        Drops the oldest sent message; only if memory is full and there is no disk.
        """
        if not self.sent:
            return None
        kept = self.sent.popleft()
        self.sent_bytes -= kept.size
        self.gaps += 1
        return kept

    def drop_unreadable(self, count_missed: bool = False) -> None:
        """
        Drops messages that cannot be read back, when the client has nothing of `sent` and nothing is in
        flight.

        Gaps come first, so the remaining messages get the numbers behind them. `count_missed`: the client
        learns of these gaps even if it has passed them by its next `re-open`.
        """
        mailbox = self._mailbox
        lost = [kept for kept in self.sent if mailbox.is_lost(kept)]
        for kept in lost:
            self.sent.remove(kept)
            self.sent_bytes -= kept.size
            self.gaps += 1
            self.gaps_counted += count_missed
            mailbox.missed += count_missed
            self.transition("dropped")
            self._journal.remove(mailbox.sid, kept, missed=count_missed)
        if lost:
            self._renumber()
            mailbox.session.write_state()

    def _renumber(self) -> None:
        for number, kept in self.numbered():
            self._journal.mark_sent(self._mailbox.sid, kept, number)

    def numbered(self) -> Iterator[tuple[int, QueuedMessage]]:
        """
        The sent messages with their numbers, oldest first.
        """
        return enumerate(self.sent, self.acknowledged + self.gaps + 1)

    def reconcile(self, received: int, same_connection: bool = False) -> int:
        """
        The client has reconnected and has `received` messages; returns how many of those it misses were
        dropped.

        The remaining messages of `sent` get the numbers behind those, so no number is used twice.
        `same_connection`: some messages are still in flight.
        """
        missed = max(0, self.acknowledged - received)
        self.acknowledge(max(received, self.acknowledged))
        if not same_connection and not self.blocked_on_disk:
            self.drop_unreadable()
        missed += self.gaps
        self._mailbox.missed -= self.gaps_counted
        self.gaps_counted = 0
        self.acknowledged += self.gaps
        self.gaps = 0
        return missed

    def move(self, mailbox: OutboxMailbox) -> None:
        """
        Moves the counts and the unacknowledged messages to another session's mailbox.
        """
        self._mailbox, self._session = mailbox, mailbox.session
        mailbox.session.write_state()
        self._journal.acknowledged(mailbox.sid, self.acknowledged)
        for number, kept in self.numbered():
            mailbox.take_in(kept, number)

    def skip(self, missed: int) -> None:
        """
        Skips the numbers of messages that were dropped before they had one; the client counts them too.
        """
        if missed:
            self.acknowledged += missed
            self.last += missed
            self._renumber()

    def rewrite(self, is_old: Callable[[int], bool]) -> None:
        """
        Writes again the messages in segments that will be removed.
        """
        for number, kept in self.numbered():
            if is_old(kept.place):
                self._journal.rewrite(self._mailbox.sid, kept, number)

    # -- after a restart -------------------------------------------------------

    def restore(self, state: dict[str, Any], acknowledged: int) -> None:
        """
        Restores the state that as_dict wrote; `acknowledged` is the number in the spool.
        """
        self.epoch = state["epoch"]
        self.acknowledged = max(state["acknowledged"], acknowledged)
        self.gaps_counted = state.get("weeded", 0)
        self.state = "gapped" if self._mailbox.missed else "away"

    def restore_sent(self, kept: QueuedMessage, number: int) -> None:
        """
        Restores a message that had been sent with that number.
        """
        if number > self.acknowledged:
            if not self.sent:
                self.gaps = number - self.acknowledged - 1
            self.sent.append(kept)
            self.sent_bytes += kept.size

    def finish_restore(self, sent: int) -> None:
        """
        Ends the restore; `sent` is the number of the last sent message in the spool.
        """
        if not self.sent:
            self.gaps = max(0, sent - self.acknowledged)
        self.gaps_counted = min(self.gaps_counted, self.gaps)
        self.last = self.acknowledged + self.gaps + len(self.sent)

    def as_dict(self) -> dict[str, Any]:
        """
        The state that must survive a restart in addition to the messages; the key names are those on disk.
        """
        return {
            "epoch": self.epoch,
            "asked": self.client_requested,
            "acknowledged": self.acknowledged,
            "weeded": self.gaps_counted,
        }
