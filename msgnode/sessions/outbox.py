"""
Acknowledged delivery: both directions of one session, counted.

A session has an outbox when its client acknowledges, by `resume` in its open
or because it polls.  What was sent stays here until the client says it has it,
and is sent again on its next connection; what the client sent is counted, so
that it learns from where to send again.  The numbers belong to the session: a
client may come back by another connector.

docs/protocol.md, "Acknowledged resume", is for whoever writes the other side.
"""

from collections import deque
from collections.abc import Callable
from secrets import token_hex
from typing import Any, Protocol

from msgnode.protocol.address import SESSION
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import compose
from msgnode.sessions.journal import DeliveryJournal
from msgnode.sessions.queue import FOREVER, OVERHEAD, QueuedMessage

# Where the agreement between node and client stands.  `live`: connected;
# `held`: away, and everything owed is kept; `short` and `gapped`: the same, but
# something owed is gone for good, which the next `re-open` is told.
# docs/protocol.md draws this table.
STEPS = {
    ("none", "opened"): "live",
    ("live", "opened"): "live",
    ("live", "reopened"): "live",
    ("live", "lost"): "held",
    ("live", "dropped"): "short",
    ("short", "dropped"): "short",
    ("short", "opened"): "live",
    ("short", "reopened"): "live",
    ("short", "lost"): "gapped",
    ("held", "opened"): "live",
    ("held", "reopened"): "live",
    ("held", "dropped"): "gapped",
    ("gapped", "opened"): "live",
    ("gapped", "reopened"): "live",
    ("gapped", "dropped"): "gapped",
}


class OutboxConnection(Protocol):
    """
    A connection, as an outbox uses it (session.Connection says what each is).
    """

    counted: bool
    full: bool

    def send(self, data: bytes) -> None: ...
    def fetch(self) -> None: ...
    def drop(self) -> None: ...


class OutboxOwner(Protocol):
    """
    The session whose outbox it is.

    `last_key` counts all that was ever kept for it, `missed` what its client will never get.
    """

    runtime: str
    sid: int
    last_key: int
    missed: int

    @property
    def connection(self) -> OutboxConnection | None: ...

    @property
    def outbox(self) -> "Outbox | None": ...

    @property
    def journal(self) -> DeliveryJournal: ...

    def pause(self) -> None:
        """
        What comes now waits.
        """

    def read_back(self, kept: QueuedMessage) -> bytes | None:
        """
        The message, wherever it lies; None if it is lost.
        """

    def is_lost(self, kept: QueuedMessage) -> bool: ...

    def settle_receipt(self, kept: QueuedMessage, code: int) -> None:
        """
        Tell who asked what became of it.
        """

    def take_in(self, kept: QueuedMessage, number: int) -> None:
        """
        Owe what another session was owed.
        """

    def note(self) -> None:
        """
        Write down who it is, with its outbox.
        """

    def say(self, connection: Any, data: bytes) -> None:
        """
        Send what is not counted.
        """


class Outbox:
    """
    Acknowledged delivery of one session, in both directions.

    `epoch` names the agreement; numbers begin at 1 in it.

    To the client: numbers up to `acknowledged` it has; after `holes` that are
    gone for good come those of `sent`, oldest first, up to number `last`.  From the client:
    `received` is the highest number so far, `at` the one it sent last, which is
    lower while it sends again.  The node is still at work on `pending`; its
    work on `lost` was cut off by a restart, and those are taken again.  Only what
    is `on_disk` may the client forget: the journal says how far that is.
    `asked`: the client asked for all this, rather than that its connector counts.
    """

    __slots__ = (
        "_journal",
        "_most_bytes",
        "_most_messages",
        "_session",
        "acknowledged",
        "asked",
        "at",
        "behind",
        "epoch",
        "holes",
        "last",
        "lost",
        "on_disk",
        "pending",
        "received",
        "sent",
        "sent_bytes",
        "stands",
        "told",
        "weeded",
    )

    def __init__(self, session: OutboxOwner, most_messages: int, most_bytes: int, asked: bool) -> None:
        self.epoch = token_hex(8)
        self.stands = "none"
        self.asked = asked
        self.behind = False  # its connection was not sent again all it should have been
        self.acknowledged = self.holes = self.last = 0
        self.weeded = 0  # of the holes, those that the session's `missed` counts already
        self.sent: deque[QueuedMessage] = deque()
        self.sent_bytes = 0
        self.received = self.at = self.told = self.on_disk = 0
        self.pending: set[int] = set()
        self.lost: set[int] = set()
        self._session = session
        self._journal = session.journal
        self._most_messages = most_messages
        self._most_bytes = most_bytes

    def step(self, event: str) -> None:
        """
        Move on, by STEPS.
        """
        self.stands = STEPS[self.stands, event]

    # -- to the client -------------------------------------------------------

    @property
    def held(self) -> bool:
        """
        Nothing is sent, because it cannot be written down.
        """
        return self._journal.message_log.failing is not None

    @property
    def full(self) -> bool:
        """
        Nothing new is sent: too much is not acknowledged, or it cannot be written down.
        """
        if self.held or self.behind:
            return True
        return len(self.sent) >= self._most_messages or self.sent_bytes >= self._most_bytes

    def send(self, data: bytes, asker: int = 0) -> None:
        """
        Send one message that need not wait; written down before it leaves.
        """
        session, sent, journal = self._session, self.sent, self._journal
        session.last_key = key = session.last_key + 1
        self.last = number = self.last + 1
        size = len(data)
        kept = QueuedMessage(key, data, size, FOREVER, 5, asker)
        sent.append(kept)
        self.sent_bytes += size
        journal.sent.append((session.sid, kept, number))
        journal.held += OVERHEAD + size
        self._hand_over(data)
        if len(sent) >= self._most_messages or self.sent_bytes >= self._most_bytes or journal.crowded:
            session.pause()

    def send_kept(self, kept: QueuedMessage, data: bytes) -> None:
        """
        Send one that waited.
        """
        self.last += 1
        self._journal.left(self._session.sid, kept, self.last)
        self.sent.append(kept)
        self.sent_bytes += kept.size
        self._hand_over(data)

    def resend(self) -> bool:
        """
        Send everything that is not acknowledged once more, on a new connection.

        False: something of it is lost.  The connection ends there; the client hears of it when it is back.
        """
        connection = self._session.connection
        if connection is None:
            return True
        if connection.counted:
            connection.fetch()  # it reads them itself, when it is asked for them
            return True
        for kept in list(self.sent):
            data = self._session.read_back(kept)
            if data is None:
                connection.drop()
                return False
            self._hand_over(data)
        return True

    def _hand_over(self, data: bytes) -> None:
        connection = self._session.connection
        if connection is None:
            return
        if connection.counted:
            connection.fetch()
        else:
            connection.send(data)

    def acknowledge(self, number: int) -> None:
        """
        The client has everything up to this number.
        """
        if not self.acknowledged <= number <= self.last:
            raise Rejected(f"'received' must be {self.acknowledged} to {self.last}, not {number}")
        session = self._session
        count = number - self.acknowledged
        if not count:
            return
        found = min(count, self.holes)  # it had come, before it went from here
        self.holes -= found
        self.weeded = min(self.weeded, self.holes)
        self.acknowledged = number
        self._journal.acknowledged(session.sid, number)
        done = [self.sent.popleft() for _ in range(count - found)]
        for kept in done:
            if kept.asker:
                session.settle_receipt(kept, 200)
        self.sent_bytes -= self._journal.release_all(done)

    def drop_oldest(self) -> QueuedMessage | None:
        """
        Give up the oldest that was sent; only when memory is short and there is no disk.
        """
        if not self.sent:
            return None
        kept = self.sent.popleft()
        self.sent_bytes -= kept.size
        self.holes += 1
        return kept

    def weed(self, tell: bool = False) -> None:
        """
        Give up what cannot be read back, when the client has nothing of `sent` and nothing is on its way.

        Holes come first, so what is left follows them in number.  `tell`: also
        if the client is past them by the time it says `re-open`.
        """
        session = self._session
        lost = [kept for kept in self.sent if session.is_lost(kept)]
        for kept in lost:
            self.sent.remove(kept)
            self.sent_bytes -= kept.size
            self.holes += 1
            self.weeded += tell
            session.missed += tell
            self.step("dropped")
            self._journal.gone(session.sid, kept, missed=tell)
        if lost:
            self._number()
            session.note()

    def _number(self) -> None:
        for number, kept in enumerate(self.sent, self.acknowledged + self.holes + 1):
            self._journal.left(self._session.sid, kept, number)

    def reconcile(self, received: int, stands: bool = False) -> int:
        """
        The client is back and has that many; how many that it misses are gone for good.

        What is left of `sent` follows those in number, so nothing is given a number twice.
        `stands`: some of it is on its way still.
        """
        missed = max(0, self.acknowledged - received)
        self.acknowledge(max(received, self.acknowledged))
        if not stands and not self.held:
            self.weed()
        missed += self.holes
        self._session.missed -= self.weeded
        self.weeded = 0
        self.acknowledged += self.holes
        self.holes = 0
        return missed

    def move(self, session: OutboxOwner) -> None:
        """
        The counts go on in another session, with what is not acknowledged.
        """
        self._session = session
        session.note()
        self._journal.acknowledged(session.sid, self.acknowledged)
        for number, kept in enumerate(self.sent, self.acknowledged + self.holes + 1):
            session.take_in(kept, number)
        self.write_down()

    def skip(self, missed: int) -> None:
        """
        That many were dropped before they had a number; the client counts them too.
        """
        if missed:
            self.acknowledged += missed
            self.last += missed
            self._number()

    def rewrite(self, is_old: Callable[[int], bool]) -> None:
        """
        Write down again what lies where it will not stay.
        """
        session = self._session
        self.write_down()
        for number, kept in enumerate(self.sent, self.acknowledged + self.holes + 1):
            if is_old(kept.place):
                session.journal.rewrite(session.sid, kept, number)

    # -- from the client -----------------------------------------------------

    def hear(self) -> bool:
        """
        One more has come; False if it is a repetition of what is here.
        """
        self.at += 1
        self._journal.heard_from.add(self)
        if self.at > self.received:
            self.received = self.at
        elif self.at in self.lost:
            self.lost.discard(self.at)
        else:
            return False
        return True

    @property
    def finished(self) -> int:
        """
        Everything up to this number needs the client no more, once that is written down.
        """
        if not self.pending and not self.lost:
            return self.received
        return min(self.pending | self.lost) - 1

    def finish(self, number: int) -> None:
        """
        A request that took its time is answered.
        """
        self.pending.discard(number)
        self._journal.heard_from.add(self)

    def expect_again(self) -> None:
        """
        The client will send everything that is not on disk once more.
        """
        self.at = self.told = self.on_disk

    def write_down(self) -> None:
        session = self._session
        if session.outbox is self:
            session.journal.heard(session.sid, self.received, sorted(self.pending | self.lost))

    @property
    def untold(self) -> int:
        """
        How many the client does not know yet to be here.
        """
        return self.on_disk - self.told

    def tell(self) -> None:
        """
        Acknowledge to the client what has come; a client that polls asks for it itself.

        Who does not read is told the last number alone, once it does.
        """
        session = self._session
        connection = session.connection
        if session.outbox is not self or connection is None or connection.counted or connection.full:
            return
        self.told = self.on_disk
        ack = compose(0, "ack", SESSION, session.runtime, {"received": self.told})
        session.say(connection, ack.data)

    def as_dict(self) -> dict[str, Any]:
        """
        What has to survive a restart beside the messages.
        """
        return {
            "epoch": self.epoch,
            "asked": self.asked,
            "acknowledged": self.acknowledged,
            "weeded": self.weeded,
        }
