"""
A session: one runtime's place at the node.

A session outlives its connection. While the runtime is disconnected, or reads too slowly, its messages wait
in its mailbox; if it does not come back in time, the session expires, with every address bound to it.
"""

from hashlib import sha256
from hmac import compare_digest
from secrets import token_urlsafe
from typing import Any, Protocol

from twisted.internet.interfaces import IDelayedCall

from msgnode.protocol.address import SESSION
from msgnode.protocol.close_codes import Closing
from msgnode.protocol.message import Message
from msgnode.sessions.allocation_keys import Keys
from msgnode.sessions.limits.memory_budget import Account
from msgnode.sessions.mailbox import Mailbox, MailboxHost
from msgnode.sessions.persistence import SessionMove
from msgnode.sessions.principal import Principal
from msgnode.sessions.queue import QueuedMessage

HOUR_SECONDS = 3600.0


def hashed(token: str) -> bytes:
    return sha256(token.encode()).digest()


class Connection(Protocol):
    """
    A connection to one client; each connector has its own class.

    The node sets `session`. The connector reports with Connections.write_paused and Connections.write_resumed
    whether its transport accepts more, and calls Node.settle before data given to `send` leaves the process.
    `identity` is the client's identity by its certificate, `bearer` the token that came with its request,
    `acks_by_request` says whether its requests acknowledge earlier messages.
    """

    connector: str
    peer: str
    identity: str
    bearer: str
    acks_by_request: bool
    session: "Session | None"
    write_paused: bool

    def send(self, data: bytes) -> None:
        """
        Sends one whole JSON object. Never raises, even if the connection is lost.
        """

    def outbox_ready(self) -> None:
        """
        With `acks_by_request`: the session's outbox has messages.
        """

    def lose(self, why: Closing) -> None:
        """
        Sends the reason to the client, and closes the connection.
        """

    def abort(self) -> None:
        """
        Closes the connection at once, and drops all data that is not sent yet.
        """

    def pause_reading(self) -> None:
        """
        Stops reading from the client, if the transport can: the node is still processing its messages.
        """

    def resume_reading(self) -> None:
        """
        Resumes reading.
        """

    def report_undecodable(self, text: str, code: int) -> None:
        """
        Reports input that is no message and has no sender to answer, if the transport can.
        """


class Sink(Protocol):
    """
    The object that sends a message at once: a connection, or the outbox in front of it.
    """

    def send(self, data: bytes) -> None: ...


class SessionHost(MailboxHost, Protocol):
    """
    The callbacks from a session to the object that has all sessions (Sessions).
    """

    def overflowed(self, session: "Session") -> None:
        """
        Notes that the session's queue was full.
        """

    def ready_changed(self, session: "Session") -> None:
        """
        Notes that `ready` is set, which says where messages may go at once, by the session's connection.
        """

    def sent_late(self, data: bytes, session: "Session") -> None:
        """
        Notes that a queued message is sent now.
        """

    def send(self, connection: Connection, data: bytes) -> None:
        """
        Sends on this connection at once, ahead of all queued messages.
        """

    def is_relayed(self, connection: Connection) -> bool:
        """
        Is the connection open, and its session at another node?
        """


class Session:
    """
    A runtime's place at the node: its name, its token, its connection and its bindings.

    `runtime` is its key; `bindings` has the addresses bound to it, with the reasons; `keys` has its
    allocations by key. `mailbox` has its undelivered messages. `ready` accepts messages that overtake no
    other: the connection, or the outbox in front of it; None while messages must be queued.

    `is_node`: it is another node's place, which sends for its whole domain; no client can open such a name.
    `account` has the memory that the node uses for it, `host` the host that opened it ("" if it counts for no
    limit).
    `identity` is its user, by token or certificate, or empty; `proof` is the principal of its token, kept
    after it has expired, because the session stays its owner's.
    `successor` is the session that this one was merged into; `absorbed` has the sids of the sessions that
    were merged into this one and may still be in the database after a restart, `former` those of all of them,
    `names` the earlier runtimeURLs of these sessions and of this one.
    `sid` is its number on disk; 0 for a session of one message, which is not stored.
    `generation` rises with each move to another node, `move` has what these moves keep on disk.
    `in_*` and `out_*` count its messages since the node started; Sessions.count_carried adds those that the
    data plane carried.
    """

    __slots__ = (
        "__weakref__",
        "_host",
        "absorbed",
        "account",
        "anonymous",
        "as_tuple",
        "attachments",
        "attachments_before",
        "attachments_hour",
        "bindings",
        "children",
        "connection",
        "due",
        "ended",
        "expiry",
        "former",
        "generation",
        "host",
        "identity",
        "identity_timer",
        "in_bytes",
        "in_messages",
        "is_node",
        "keys",
        "last_in",
        "learned",
        "mailbox",
        "move",
        "names",
        "opened_at",
        "out_bytes",
        "out_messages",
        "proof",
        "ready",
        "refused",
        "runtime",
        "sid",
        "since",
        "successor",
        "token_hash",
        "used",
    )

    def __init__(self, runtime: str, host: SessionHost, sid: int = 0) -> None:
        self.runtime = runtime
        self.is_node = runtime.startswith("mn://")
        self.sid = sid
        self.absorbed: list[int] = []
        self.former: list[int] = []
        self.names: tuple[str, ...] = ()
        self.account = Account()
        self.host = ""
        self.identity = ""
        self.proof: Principal | None = None
        self.identity_timer: IDelayedCall | None = None  # for the next warning or expiry of its identity
        self.connection: Connection | None = None
        self.bindings: dict[str, int] = {}
        self.keys: Keys | None = None
        self.children: Keys | None = None  # bindings to children, by the object of the subscription
        self.learned = 0  # learned routes, counted by the routing table
        self.as_tuple = (self,)  # the recipients of a message to this session only, for the router
        self.anonymous = False
        self.due = False  # it waits for its slice of a message to very many
        self.ended = False  # nothing can be bound to it or queued for it any more
        self.used = False  # has it ever been bound to an address
        self.expiry: IDelayedCall | None = None
        self.successor: Session | None = None
        self.since = 0.0  # when its connection was opened or lost, by the node's clock
        # Connections that were attached in this hour of the node's clock, and in the hour before it.
        self.attachments = self.attachments_before = self.attachments_hour = 0
        self.opened_at = 0.0  # seconds since 1970; 0 if that was before a restart
        self.in_messages = self.in_bytes = self.out_messages = self.out_bytes = 0
        self.last_in = 0  # when its last message came, in nanoseconds since 1970
        self.refused = 0  # messages of it that were refused
        self.token_hash = b""
        self.generation = 1
        self.move: SessionMove | None = None
        self.ready: Sink | None = None
        self.mailbox = Mailbox(self, host)
        self._host = host

    @property
    def is_ephemeral(self) -> bool:
        """
        Is this a session of one message only, which is not stored?
        """
        return not self.sid

    @property
    def is_moved(self) -> bool:
        """
        Has it ever been at another node, or is it at one now?
        """
        return self.move is not None or self.generation != 1

    @property
    def has_left(self) -> bool:
        """
        Is it at another node now, and only its messages are still here?
        """
        return self.move is not None and bool(self.move.to)

    # -- the token ---------------------------------------------------------

    def issue_token(self) -> str:
        """
        Issues a new token; the old one is void. Only its hash is stored.
        """
        token = "mns_" + token_urlsafe(32)
        self.token_hash = hashed(token)
        return token

    def has_token(self, token: str | bytes) -> bool:
        """
        Is this the session's token, or the hash of it that another node has sent?
        """
        given = hashed(token) if isinstance(token, str) else token
        return bool(self.token_hash) and compare_digest(self.token_hash, given)

    # -- the connection ----------------------------------------------------

    def _set_ready(self, sink: Sink | None) -> None:
        # Nothing else sets `ready`: the data plane sends past it.
        before, self.ready = self.ready, sink
        if before is not sink:
            self._host.ready_changed(self)

    def attach(self, connection: Connection) -> None:
        """
        Attaches a connection. `flush` then sends the queued messages.
        """
        outbox = self.mailbox.outbox
        if outbox is not None and connection is not self.connection:
            outbox.redelivery_incomplete = False
        self._set_ready(None)
        self.connection = connection

    def count_attachment(self, now: float) -> None:
        """
        Counts a connection that was attached, for `reconnects`.
        """
        hour = int(now // HOUR_SECONDS)
        if hour != self.attachments_hour:
            self.attachments_before = self.attachments if hour == self.attachments_hour + 1 else 0
            self.attachments, self.attachments_hour = 0, hour
        self.attachments += 1

    def reconnects(self, now: float, is_new: bool) -> int:
        """
        About how often the client came back in the last hour, as if the hour before had been even; `is_new`:
        the first connection of the session was in this time.
        """
        hour, part = divmod(now, HOUR_SECONDS)
        behind = int(hour) - self.attachments_hour
        recent = self.attachments if behind == 0 else 0
        before = self.attachments_before if behind == 0 else self.attachments if behind == 1 else 0
        found = recent + round(before * (1 - part / HOUR_SECONDS))
        return max(0, found - is_new)

    def detach(self) -> None:
        """
        Detaches the connection.
        """
        self._set_ready(None)
        self.connection = None
        if self.mailbox.outbox is not None:
            self.mailbox.outbox.transition("lost")

    def end(self) -> None:
        """
        Ends the session: undelivered messages are dropped, and senders that asked get receipts.
        """
        self.ended = True
        self._set_ready(None)
        self.connection = None
        self.mailbox.close()
        self.token_hash = b""
        if self.identity_timer is not None and self.identity_timer.active():
            self.identity_timer.cancel()

    def pause(self) -> None:
        """
        Queues all messages from now on, because the transport accepts no more.
        """
        self._set_ready(None)

    def stand_by(self) -> None:
        """
        Queues all messages from now on, until `catch_up`.
        """
        self._set_ready(None)
        self.due = True

    def catch_up(self) -> None:
        """
        Ends `stand_by`: the session's slice is sent, or a message that must not overtake it.
        """
        self.due = False
        self.flush()

    def redeliver(self) -> None:
        """
        Redelivers the unacknowledged messages after a reconnect or a failure of the disk, then sends the
        queue.
        """
        outbox = self.mailbox.outbox
        if outbox is not None:
            outbox.redelivery_incomplete = outbox.blocked_on_disk or not outbox.resend()
        self.flush()

    def flush(self) -> None:
        """
        Sends the queued messages in order, until the queue is empty or too much is unacknowledged.
        """
        connection, mailbox = self.connection, self.mailbox
        while connection is self.connection and connection is not None and not connection.write_paused:
            outbox = mailbox.outbox
            if outbox is not None and outbox.full:
                return
            kept = mailbox.pop()
            if kept is None and mailbox.overlap is not None:
                return  # what is sent to it here is queued, while another node has messages of it
            if kept is None:
                self._set_ready(connection if outbox is None else outbox)
                return
            self._send_queued(kept, connection)

    def _send_queued(self, kept: QueuedMessage, connection: Connection) -> None:
        data = self.mailbox.read_back(kept)
        if data is None:
            self.mailbox.drop(kept, 503)
            return
        self._count_sent(data)
        self._host.sent_late(data, self)
        self.mailbox.send(kept, data, connection)

    # -- messages ------------------------------------------------------------

    def deliver(self, message: Message, asker: int = 0) -> bool:
        """
        Sends the message to the runtime. False: it was queued.

        `asker` is the sid of the session that asked for a receipt.
        """
        ready = self.ready
        if ready is None:
            if self.successor is not None:
                return self.successor.deliver(message, asker)
            self.enqueue(message, asker)
            return False
        self._count_sent(message.data)
        if asker and self.mailbox.outbox is not None:
            self.mailbox.outbox.send(message.data, asker)
        else:
            ready.send(message.data)
        return True

    def enqueue(self, message: Message, asker: int = 0) -> bool:
        """
        Queues the message, unless the session only waits for a slice. False: as for `append`.
        """
        if self.successor is not None:
            return not self.successor.deliver(message, asker)
        if self.due:
            self.catch_up()
            if self.ready is not None:
                self.deliver(message, asker)
                return True
        return self.append(message, asker)

    def append(self, message: Message, asker: int = 0) -> bool:
        """
        Puts the message at the end of the queue.

        False: there is no room, or the session has ended; a sender that asked gets a receipt.
        """
        if self.successor is not None:
            self.successor.deliver(message, asker)
            return True
        if self.ended:
            if asker:
                self._host.receipt(message.data, 410, asker)
            return False
        return self.mailbox.put(message, asker)

    def overflowed(self) -> None:
        self._host.overflowed(self)

    def answer(self, reply: Message, connection: Connection) -> None:
        """
        Sends a reply to the connection of the request; once that is lost, it is queued for the session.
        """
        if reply.from_ == SESSION and connection is self.connection:
            self._host.send(connection, reply.data)  # not counted
        elif connection is self.connection or (
            connection.session is not self and not self._host.is_relayed(connection)
        ):
            self.deliver(reply)
        elif not connection.write_paused:  # superseded, but still asking
            self._host.send(connection, reply.data)

    def send_uncounted(self, connection: Connection, data: bytes) -> None:
        """
        Sends data without a number: a message of mn:/session.
        """
        self._host.send(connection, data)

    def _count_sent(self, data: bytes) -> None:
        self._host.counts.sent += 1
        self._host.counts.sent_bytes += len(data)
        self.out_messages += 1
        self.out_bytes += len(data)

    def add_carried(self, received: int, received_bytes: int, sent: int, sent_bytes: int, last: int) -> None:
        """
        Counts what the data plane carried from and to its connection; `last` is when the last message came, 0
        if none did.
        """
        self.in_messages += received
        self.in_bytes += received_bytes
        self.out_messages += sent
        self.out_bytes += sent_bytes
        self.last_in = max(self.last_in, last)

    # -- merges --------------------------------------------------------------------

    def take_over(self, other: "Session", epoch: str) -> None:
        """
        Merges the other session into this one. If `epoch` is the epoch of its outbox, its numbers continue
        here.
        """
        other.successor = self
        other._set_ready(None)
        self.mailbox.merge(other.mailbox, epoch)
        self.used = self.used or other.used
        self.absorbed = [*self.absorbed, *other.absorbed, other.sid]
        self.write_state()

    # -- on disk ---------------------------------------------------------------

    def write_state(self, fresh: bool = False) -> None:
        """
        Writes the session's state, so that it survives a restart even without the database.

        `fresh`: the earlier state is void.
        """
        self.mailbox.journal.state(self.sid, self.as_dict(), fresh)

    def as_dict(self) -> dict[str, Any]:
        """
        The state that write_state writes; the key names are those on disk.
        """
        mailbox = self.mailbox
        more: dict[str, Any] = {"absorbed": self.absorbed} if self.absorbed else {}
        if self.generation != 1:
            more["generation"] = self.generation
        if self.move is not None:
            more["move"] = self.move
        return more | {
            "runtime": self.runtime,
            "token": self.token_hash.hex(),
            "anonymous": self.anonymous,
            "identity": self.identity,
            "host": self.host,
            "proof": self.proof.encoded() if self.proof is not None else "",
            "missed": mailbox.missed,
            "unsure": mailbox.uncertain,
            "outbox": mailbox.outbox.as_dict() if mailbox.outbox is not None else None,
        }
