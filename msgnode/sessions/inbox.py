"""
Acknowledged input: a count of the messages from a client, by which it knows which ones to send again.

docs/protocol.md, "Acknowledged resume", describes the client's side.
"""

from typing import Any, Protocol

from msgnode.protocol.address import SESSION
from msgnode.protocol.message import compose
from msgnode.sessions.journal import DeliveryJournal


class InboxConnection(Protocol):
    """
    A connection as an inbox uses it (session.Connection documents the members).
    """

    acks_by_request: bool
    write_paused: bool

    def send(self, data: bytes) -> None: ...


class InboxSession(Protocol):
    """
    A session as its inbox uses it.
    """

    runtime: str

    @property
    def connection(self) -> InboxConnection | None: ...

    def send_uncounted(self, connection: Any, data: bytes) -> None:
        """
        Sends data without a number, such as an acknowledgement.
        """


class InboxMailbox(Protocol):
    """
    The mailbox that the inbox belongs to.
    """

    sid: int

    @property
    def session(self) -> InboxSession: ...

    @property
    def inbox(self) -> "Inbox | None": ...

    @property
    def journal(self) -> DeliveryJournal: ...


class Inbox:
    """
    A counter of the messages that the client of one session sent.

    `received` is the highest number so far; `position` is the number of the latest message, which is lower
    while the client sends messages again. The messages in `pending` are still being processed. The processing
    of those in `lost` was interrupted by a restart, and they are accepted again. The client may drop only
    messages up to `on_disk`, which the journal advances. `acked` is the number that was last acknowledged to
    the client.
    """

    __slots__ = ("_journal", "_mailbox", "acked", "lost", "on_disk", "pending", "position", "received")

    def __init__(self, mailbox: InboxMailbox) -> None:
        self.received = self.position = self.acked = self.on_disk = 0
        self.pending: set[int] = set()
        self.lost: set[int] = set()
        self._journal = mailbox.journal
        self._mailbox = mailbox

    def count_received(self) -> bool:
        """
        Counts one more message; False if it is a duplicate.
        """
        self.position += 1
        self._journal.received_from.add(self)
        if self.position > self.received:
            self.received = self.position
        elif self.position in self.lost:
            self.lost.discard(self.position)
        else:
            return False
        return True

    @property
    def is_current(self) -> bool:
        """
        Is the next message a new one, and not one that the client sends again?
        """
        return self.position == self.received

    def count_carried(self, count: int) -> None:
        """
        Counts the messages that the data plane has carried; all of them are new.
        """
        self._journal.received_from.add(self)
        self.received = self.position = self.position + count

    @property
    def finished(self) -> int:
        """
        The number up to which the node no longer needs the client's copies, once that is on disk.
        """
        if not self.pending and not self.lost:
            return self.received
        return min(self.pending | self.lost) - 1

    def finish(self, number: int) -> None:
        """
        Notes that a request that took more than one turn is answered.
        """
        self.pending.discard(number)
        self._journal.received_from.add(self)

    def restore(self, received: int, lost: set[int]) -> None:
        """
        Restores the counts after a restart.
        """
        self.received, self.lost = received, lost
        self.on_disk = self.finished
        self.expect_again()

    def expect_again(self) -> None:
        """
        Expects that the client sends every message that is not on disk again.
        """
        self.position = self.acked = self.on_disk

    def move(self, mailbox: InboxMailbox) -> None:
        """
        Moves the counts to another session.
        """
        self._mailbox = mailbox

    def write_state(self) -> None:
        mailbox = self._mailbox
        if mailbox.inbox is self:
            self._journal.received(mailbox.sid, self.received, sorted(self.pending | self.lost))

    @property
    def unacknowledged(self) -> int:
        """
        The number of messages that are on disk and not yet acknowledged to the client.
        """
        return self.on_disk - self.acked

    def send_ack(self) -> None:
        """
        Acknowledges to the client the messages that are on disk; a client that polls requests this itself.

        A client that does not read gets only the last number, once it reads again.
        """
        mailbox = self._mailbox
        session = mailbox.session
        connection = session.connection
        if (
            mailbox.inbox is not self
            or connection is None
            or connection.acks_by_request
            or connection.write_paused
        ):
            return
        self.acked = self.on_disk
        ack = compose(0, "ack", SESSION, session.runtime, {"received": self.acked})
        session.send_uncounted(connection, ack.data)
