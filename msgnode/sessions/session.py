"""
A session: one runtime's place at the node.

It outlives its connection.  While the runtime is away, or reads too slowly,
its messages wait; if it does not come back in time the session expires, with
every address bound to it.
"""

from collections.abc import Callable, Iterable
from hashlib import sha256
from hmac import compare_digest
from secrets import token_urlsafe
from typing import Any, Protocol

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from msgnode.protocol.address import SESSION
from msgnode.protocol.close_codes import Closing
from msgnode.protocol.errors import Malformed
from msgnode.protocol.message import Message, recall
from msgnode.sessions.allocation_keys import Keys
from msgnode.sessions.counters import Counters
from msgnode.sessions.journal import DeliveryJournal
from msgnode.sessions.limits.memory_budget import Account
from msgnode.sessions.limits.spool_share import Share
from msgnode.sessions.outbox import Outbox
from msgnode.sessions.principal import Principal
from msgnode.sessions.queue import FOREVER, MessageQueue, QueuedMessage, default_ttl

log = Logger()


def hashed(token: str) -> bytes:
    return sha256(token.encode()).digest()


class Connection(Protocol):
    """
    A connection to one client; each connector has its own.

    The node sets `session`; the connector says with Sessions.paused and
    Sessions.ready whether its transport takes more, and calls Node.settle
    before what it was given to send leaves the process.  `identity` is who the
    client is by its certificate, `bearer` the token its request brought along,
    `counted` whether its requests acknowledge.
    """

    connector: str
    peer: str
    identity: str
    bearer: str
    counted: bool
    session: "Session | None"
    full: bool

    def send(self, data: bytes) -> None:
        """
        One JSON object, whole.  Never raises, also when the client is gone.
        """

    def fetch(self) -> None:
        """
        Where `counted`: something is in the session's outbox.
        """

    def lose(self, why: Closing) -> None:
        """
        Say why, and end it.
        """

    def drop(self) -> None:
        """
        End it at once, with all that was given to it and has not left.
        """

    def pause_reading(self) -> None:
        """
        Take nothing more from the client, if its transport can: the node is still at work on what it sent.
        """

    def resume_reading(self) -> None:
        """
        Read again.
        """

    def unreadable(self, text: str, code: int) -> None:
        """
        What came is no message and names nobody to answer; say so where the transport has a way.
        """


class Sink(Protocol):
    """
    The place that a message may go to at once: a connection, or the outbox before it.
    """

    def send(self, data: bytes) -> None: ...


class SessionHost(Protocol):
    """
    The callbacks from a session to those who keep it (Sessions).
    """

    counts: Counters
    journal: DeliveryJournal

    def now(self) -> float: ...
    def make_queue(self) -> MessageQueue: ...
    def make_outbox(self, session: "Session", asked: bool) -> Outbox: ...
    def overflowed(self, session: "Session") -> None: ...
    def may_keep(self, message: Message, session: "Session") -> Share | None: ...
    def expire_at(self, until: float, session: "Session") -> None: ...
    def receipt(self, data: bytes, code: int, asker: int) -> None: ...
    def sent_late(self, data: bytes, session: "Session") -> None: ...
    def say(self, connection: Connection, data: bytes) -> None: ...


class Session:
    """
    A session.

    `runtime` is its key, `bindings` what it hears and why, `keys` its allocations by key.

    `account` is what the node remembers for it, `host` from where it was
    opened ("" where that counts for nobody).
    `identity` is who it is now, by its token or its certificate, or empty;
    `proof` what its token proved, kept when that has ended: it stays its owner's.
    `successor` is the session that it became one with, and `absorbed` the sids of those that this one has
    become one with and may still find in the database after a restart, `former` of all of them, `names`
    the runtimeURLs that they and it had before.
    `sid` stands for it on disk.  `missed` counts what a client that
    acknowledges will never get, since it was last told; `unsure` that nobody
    knows whether there are more.
    """

    __slots__ = (
        "__weakref__",
        "_home",
        "_waiting",
        "absorbed",
        "account",
        "alone",
        "anonymous",
        "bindings",
        "children",
        "connection",
        "due",
        "ended",
        "expiry",
        "former",
        "host",
        "identity",
        "identity_timer",
        "keys",
        "last_key",
        "learnt",
        "missed",
        "names",
        "outbox",
        "proof",
        "ready",
        "runtime",
        "sid",
        "since",
        "successor",
        "token_hash",
        "unsure",
        "used",
    )

    def __init__(self, runtime: str, home: SessionHost, sid: int = 0) -> None:
        self.runtime = runtime
        self.sid = sid
        self.absorbed: list[int] = []
        self.former: list[int] = []
        self.names: tuple[str, ...] = ()
        self.account = Account()
        self.host = ""
        self.identity = ""
        self.proof: Principal | None = None
        self.identity_timer: IDelayedCall | None = None  # what its identity comes to next
        self.connection: Connection | None = None
        self.bindings: dict[str, int] = {}
        self.keys: Keys | None = None
        self.children: Keys | None = None  # bindings by the object they were subscribed as children of
        self.learnt = 0  # bindings made because of a `from`, counted by the routing table
        self.alone = (self,)
        self.anonymous = False
        self.due = False  # it stands by for a slice of a message to very many
        self.ended = False  # nothing can be bound to it or kept for it any more
        self.used = False  # did it ever bind anything
        self.expiry: IDelayedCall | None = None
        self.successor: Session | None = None
        self.since = 0.0  # when its connection came or went, by the node's clock
        self.token_hash = b""
        self.ready: Sink | None = None  # where a message may go now, past nothing that waits
        self.outbox: Outbox | None = None
        self.last_key = 0  # of what was ever kept for it
        self.missed = 0
        self.unsure = False
        self._waiting: MessageQueue | None = None
        self._home = home

    @property
    def visits(self) -> bool:
        """
        Is it there for one message only, and kept nowhere?
        """
        return not self.sid

    # -- the token ---------------------------------------------------------

    def issue_token(self) -> str:
        """
        A new token; the old one is void.  Only its hash is kept.
        """
        token = "mns_" + token_urlsafe(32)
        self.token_hash = hashed(token)
        return token

    def has_token(self, token: str) -> bool:
        return bool(self.token_hash) and compare_digest(self.token_hash, hashed(token))

    # -- the connection ----------------------------------------------------

    @property
    def journal(self) -> DeliveryJournal:
        return self._home.journal

    @property
    def waiting(self) -> int:
        return len(self._waiting) if self._waiting else 0

    @property
    def waiting_bytes(self) -> int:
        return self._waiting.bytes if self._waiting else 0

    def attach(self, connection: Connection) -> None:
        """
        Use this connection from now on.  `resume` then sends what waits.
        """
        if self.outbox is not None and connection is not self.connection:
            self.outbox.behind = False
        self.connection = connection
        self.ready = None

    def detach(self) -> None:
        self.connection = self.ready = None
        if self.outbox is not None:
            self.outbox.step("lost")

    def end(self) -> None:
        """
        Nobody will come for what is kept; who asked for a receipt hears that.
        """
        self.ended = True
        owed = self.owed()
        self.connection = self.ready = self._waiting = self.outbox = None
        for kept in owed:
            self.settle_receipt(kept, 410)
            self.journal.release(kept)
        self.token_hash = b""
        if self.identity_timer is not None and self.identity_timer.active():
            self.identity_timer.cancel()

    def pause(self) -> None:
        """
        The transport takes no more; what comes now waits.
        """
        self.ready = None

    def stand_by(self) -> None:
        """
        What comes now waits for `catch_up`.
        """
        self.ready = None
        self.due = True

    def catch_up(self) -> None:
        """
        Its slice has come, or something that must not overtake it.
        """
        self.due = False
        self.resume()

    def go_on(self) -> None:
        """
        A new connection, or a disk that writes again: what is not acknowledged once more, then the rest.
        """
        outbox = self.outbox
        if outbox is not None:
            outbox.behind = outbox.held or not outbox.resend()
        self.resume()

    def resume(self) -> None:
        """
        Send what waits, in order, until all is sent or the client has enough to acknowledge.
        """
        connection = self.connection
        while connection is self.connection and connection is not None and not connection.full:
            outbox = self.outbox
            if outbox is not None and outbox.full:
                return
            kept = self._next()
            if kept is None:
                self._waiting = None
                self.ready = connection if outbox is None else outbox
                return
            self._send_kept(kept, connection)

    def _next(self) -> QueuedMessage | None:
        while self._waiting:
            kept = self._waiting.take()
            assert kept is not None
            if kept.until > self._home.now():
                return kept
            self._went_stale(kept)
        return None

    def _send_kept(self, kept: QueuedMessage, connection: Connection) -> None:
        data = self.read_back(kept)
        if data is None:
            self._drop(kept, 503)
            return
        self._sent(data)
        self._home.sent_late(data, self)
        if self.outbox is not None:
            self.outbox.send_kept(kept, data)
            return
        self.settle_receipt(kept, 202)
        # Before it leaves: who does not acknowledge gets nothing twice.
        self.journal.gone(self.sid, kept, missed=False)
        connection.send(data)

    # -- messages ------------------------------------------------------------

    def deliver(self, message: Message, asker: int = 0) -> bool:
        """
        Hand the message to the runtime.  False: it waits.

        `asker` is the sid of the session that wants to know what becomes of it.
        """
        ready = self.ready
        if ready is None:
            if self.successor is not None:
                return self.successor.deliver(message, asker)
            self.keep(message, asker)
            return False
        self._sent(message.data)
        if asker and self.outbox is not None:
            self.outbox.send(message.data, asker)
        else:
            ready.send(message.data)
        return True

    def keep(self, message: Message, asker: int = 0) -> bool:
        """
        Let the message wait, unless it is only for a slice that it would.  False: as `owe`.
        """
        if self.successor is not None:
            return not self.successor.deliver(message, asker)
        if self.due:
            self.catch_up()
            if self.ready is not None:
                self.deliver(message, asker)
                return True
        return self.owe(message, asker)

    def owe(self, message: Message, asker: int = 0) -> bool:
        """
        Put it behind what waits.  False: there is no room for it, or nobody will come; who asked is told.
        """
        home, waiting = self._home, self._waiting
        if self.successor is not None:
            self.successor.deliver(message, asker)
            return True
        if self.ended:
            if asker:
                home.receipt(message.data, 410, asker)
            return False
        share = home.may_keep(message, self)
        if share is None:
            self._turn_away(message, asker)
            return False
        if waiting is None:
            waiting = self._waiting = home.make_queue()
        self.last_key += 1
        kept = QueuedMessage(
            self.last_key, message.data, len(message.data), self._until(message), message.effective_priority
        )
        if asker:
            kept.asker = asker
            if kept.until != FOREVER:
                home.expire_at(kept.until, self)
        kept.share = share
        home.counts.waited += 1
        gone = waiting.put(kept)
        self.journal.keep(self.sid, kept)
        if gone:
            home.counts.overflowed += len(gone)
            for other in gone:
                self._drop(other, 503)
            home.overflowed(self)
        return True

    def _turn_away(self, message: Message, asker: int) -> None:
        """
        It is not kept; a client that counts hears that one is missing.
        """
        self._home.counts.turned_away += 1
        if self.outbox is not None and self.outbox.asked:
            self.missed += 1
            self.outbox.step("dropped")
            self.last_key += 1
            self.journal.missed(self.sid, self.last_key)
        if asker:
            message.code, message.reason = 507, "no-room"
            self._home.receipt(message.data, 507, asker)

    def _until(self, message: Message) -> float:
        """
        When it goes stale.  Where both sides count, only the sender's own `ttl` says so.
        """
        wait = FOREVER if message.ttl is None else message.ttl
        if self.outbox is None or not self.outbox.asked:
            to = message.to if isinstance(message.to, str) else ""
            wait = min(wait, default_ttl(message.type, to))
        return FOREVER if wait == FOREVER else self._home.now() + wait

    def drop_stale(self) -> None:
        """
        Give up what is not worth sending any more, and say so to who asked.
        """
        if self._waiting is not None:
            for kept in self._waiting.stale(self._home.now()):
                self._went_stale(kept)

    def next_asked(self) -> float | None:
        """
        When the next message goes stale whose sender wants to know.
        """
        asked = [kept.until for kept in self._waiting or () if kept.asker and kept.until != FOREVER]
        return min(asked, default=None)

    def _went_stale(self, kept: QueuedMessage) -> None:
        self._home.counts.stale += 1
        self._drop(kept, 408)

    def _drop(self, kept: QueuedMessage, code: int) -> None:
        """
        It will never be sent.
        """
        counted = self.outbox is not None and self.outbox.asked
        if counted:
            assert self.outbox is not None
            self.missed += 1
            self.outbox.step("dropped")
        self.settle_receipt(kept, code)
        self.journal.gone(self.sid, kept, missed=counted)

    def shed(self, enough: Callable[[], bool]) -> None:
        """
        The node is short of memory: to disk with what is there, else away with the oldest until `enough()`.
        """
        for kept in self.owed():
            self.journal.page_out(kept)
        while not enough() and self._waiting:
            self._home.counts.shed += 1
            self._drop(self._waiting.shed(), 503)
        outbox = self.outbox
        while not enough() and outbox is not None:
            oldest = outbox.drop_oldest()
            if oldest is None:
                break
            self._home.counts.shed += 1
            self.settle_receipt(oldest, 503)
            self.journal.release(oldest)
            outbox.step("dropped")

    def shed_waiting(self, enough: Callable[[], bool]) -> None:
        """
        The spool is full: away with the oldest of what waits until `enough()`.
        """
        while not enough() and self._waiting:
            self._home.counts.shed += 1
            self._drop(self._waiting.shed(), 503)

    def owed(self) -> list[QueuedMessage]:
        """
        Everything the node still owes it, oldest first.
        """
        sent = list(self.outbox.sent) if self.outbox is not None else []
        return sent + (list(self._waiting) if self._waiting else [])

    def settle_receipt(self, kept: QueuedMessage, code: int) -> None:
        """
        Tell who asked what became of it.
        """
        if not kept.asker:
            return
        try:
            data = self.journal.data(kept)
        except OSError:
            log.failure("reading back a message for {runtime}", runtime=self.runtime)
        else:
            self._home.receipt(data, code, kept.asker)

    def answer(self, reply: Message, connection: Connection) -> None:
        """
        A reply goes to the connection that asked; once that is gone, it waits for the session.
        """
        if reply.from_ == SESSION and connection is self.connection:
            self._home.say(connection, reply.data)  # not counted
        elif connection is self.connection or connection.session is not self:
            self.deliver(reply)
        elif not connection.full:  # superseded, but still asking
            self._home.say(connection, reply.data)

    def say(self, connection: Connection, data: bytes) -> None:
        """
        Send what is not counted: a word of mn:/session.
        """
        self._home.say(connection, data)

    def _sent(self, data: bytes) -> None:
        self._home.counts.sent += 1
        self._home.counts.sent_bytes += len(data)

    # -- acknowledged resume ---------------------------------------------------

    def start_epoch(self, counted: bool, asked: bool = False) -> None:
        """
        New numbers, or none; what was not acknowledged waits again.
        """
        before, owed = self.outbox, self.owed()
        self.outbox = outbox = self._home.make_outbox(self, asked) if counted else None
        if outbox is not None:
            outbox.step("opened")
        if before is None:
            return
        self._waiting = None
        self.note(fresh=True)
        for kept in [kept for kept in owed if self._read_again(kept)]:
            self._queue(kept)

    def _read_again(self, kept: QueuedMessage) -> bool:
        """
        Take it from where it lies; False if it is lost.
        """
        data = self.read_back(kept)
        self.journal.release(kept)
        if data is None or not self._judge_again(kept, data):
            self.missed += self.outbox is not None and self.outbox.asked
            return False
        kept.data = data
        return True

    def _judge_again(self, kept: QueuedMessage, data: bytes) -> bool:
        """
        What was sent never waited; now it has its place among what does, by what it says of itself.

        False: it says nothing that can be read.
        """
        if kept.until != FOREVER:
            return True
        try:
            message = recall(data)
        except Malformed as why:
            self._cannot_read(str(why))
            return False
        kept.priority, kept.until = message.effective_priority, self._until(message)
        if kept.asker and kept.until != FOREVER:
            self._home.expire_at(kept.until, self)
        return True

    def doubt(self) -> None:
        """
        Something it is owed may be gone, nobody knows how much; its client hears that when it is back.
        """
        self.unsure = True
        if self.outbox is not None and self.outbox.asked:
            self.start_epoch(True, asked=True)
            self.outbox.step("lost")
        self.note()

    # -- two become one --------------------------------------------------------

    def take_over(self, other: "Session", epoch: str) -> None:
        """
        What the other is owed waits behind what this one is.  With its epoch its counts go on here, too.
        """
        outbox = other.outbox
        if outbox is not None and outbox.asked and outbox.epoch == epoch:
            outbox.weed(tell=True)
            owed = list(other.waiting_messages())
            self.start_epoch(True, asked=True)
        else:
            owed, outbox = other.owed(), None
        other.give_way(self)
        if outbox is not None:
            self.outbox = outbox
            outbox.move(self)
        if self.outbox is not None and self.outbox.asked:
            self.missed += other.missed
            self.unsure = self.unsure or other.unsure
        for kept in owed:
            if self._read_again(kept):
                self._put_behind(kept)
        self.used = self.used or other.used
        self.absorbed = [*self.absorbed, *other.absorbed, other.sid]
        self.note()

    def give_way(self, successor: "Session") -> None:
        """
        It is owed nothing any more, and what comes for it is its successor's.
        """
        self.successor = successor
        self.ready = self._waiting = self.outbox = None
        self.note(fresh=True)

    def waiting_messages(self) -> Iterable[QueuedMessage]:
        return self._waiting or ()

    def take_in(self, kept: QueuedMessage, number: int) -> None:
        """
        Owe what another session was owed.
        """
        data = self.journal.data(kept)
        self.journal.release(kept)
        self.last_key += 1
        kept.key, kept.data = self.last_key, data
        self.journal.keep(self.sid, kept, number)

    def _put_behind(self, kept: QueuedMessage) -> None:
        self.last_key += 1
        kept.key = self.last_key
        if kept.asker and kept.until != FOREVER:
            self._home.expire_at(kept.until, self)
        self._queue(kept)

    def _queue(self, kept: QueuedMessage) -> None:
        """
        It waits; what there is no room for any more is dropped.
        """
        if self._waiting is None:
            self._waiting = self._home.make_queue()
        gone = self._waiting.put(kept)
        self.journal.keep(self.sid, kept)
        for other in gone:
            self._home.counts.overflowed += 1
            self._drop(other, 503)

    # -- on disk ---------------------------------------------------------------

    def note(self, fresh: bool = False) -> None:
        """
        Write down who it is, so that it is known after a restart whatever became of the database.
        """
        self.journal.state(self.sid, self.as_dict(), fresh)

    def rewrite(self, is_old: Callable[[int], bool]) -> None:
        """
        Write down again all that is owed and lies where it will not stay.
        """
        if self.outbox is None and not self._waiting and not self.unsure:
            return
        self.note()
        try:
            if self.outbox is not None:
                self.outbox.rewrite(is_old)
            for kept in self._waiting or ():
                if is_old(kept.place):
                    self.journal.rewrite(self.sid, kept, 0)
        except OSError:
            self._weed()
            self.rewrite(is_old)

    def read_back(self, kept: QueuedMessage) -> bytes | None:
        """
        The message, wherever it lies; None if it is lost, and the log says where.
        """
        try:
            return self.journal.data(kept)
        except OSError as why:
            self._cannot_read(str(why))
            return None

    def _cannot_read(self, why: str) -> None:
        self._home.counts.unread += 1
        log.error("{runtime} will not get a message: {why}", runtime=self.runtime, why=why)

    def is_lost(self, kept: QueuedMessage) -> bool:
        return self.read_back(kept) is None

    def _weed(self) -> None:
        """
        Give up what cannot be read back, though nobody knows what the client has of it.
        """
        for kept in self._waiting.remove(self.is_lost) if self._waiting else ():
            self._drop(kept, 503)
        outbox, connection = self.outbox, self.connection
        if outbox is None:
            return
        if not outbox.asked:
            outbox.weed()  # who polls names the last it has, and may see one twice
            return
        if not any(self.is_lost(kept) for kept in outbox.sent):
            return
        # The client comes back with an epoch that is over, and hears that something may be missing.
        self.start_epoch(True, asked=True)
        if connection is None and self.outbox is not None:
            self.outbox.step("lost")
        elif connection is not None:
            self.pause()
            connection.drop()

    def adopt(self, waiting: list[QueuedMessage]) -> None:
        """
        What waited before a restart waits again.
        """
        if waiting:
            self._waiting = self._home.make_queue()
            for kept in waiting:
                if kept.asker and kept.until != FOREVER:
                    self._home.expire_at(kept.until, self)
                for other in self._waiting.put(kept):
                    self._drop(other, 503)

    def as_dict(self) -> dict[str, Any]:
        absorbed = {"absorbed": self.absorbed} if self.absorbed else {}
        return absorbed | {
            "runtime": self.runtime,
            "token": self.token_hash.hex(),
            "anonymous": self.anonymous,
            "identity": self.identity,
            "host": self.host,
            "proof": self.proof.encoded() if self.proof is not None else "",
            "missed": self.missed,
            "unsure": self.unsure,
            "outbox": self.outbox.as_dict() if self.outbox is not None else None,
        }
