"""
A session: one runtime's place at the node.

It outlives its connection.  While the runtime is away, or reads too slowly,
its messages wait; if it does not come back in time the session expires, with
every address bound to it.
"""

from hashlib import sha256
from hmac import compare_digest
from secrets import token_urlsafe
from typing import NamedTuple, Protocol

from twisted.internet.interfaces import IDelayedCall

from msgnode.keys import Keys
from msgnode.message import Message
from msgnode.waiting import Waiting, patience


class Closing(NamedTuple):
    """
    Why the node closes a connection, and when to come back (docs/protocol.md, "Closing").

    `retry_after` is in seconds; None means: do not come back.
    """

    code: int
    word: str
    retry_after: float | None = None

    @property
    def reason(self) -> str:
        return self.word if self.retry_after is None else f"{self.word}; retry_after={self.retry_after:g}"


CLOSED = Closing(1000, "closed")
STOPPING = Closing(1001, "going away", 1)
FULL = Closing(1013, "full", 30)
REFUSED = Closing(4403, "refused")
NO_OPEN = Closing(4408, "no open", 1)
SLOW = Closing(4413, "slow consumer", 5)


def hashed(token: str) -> bytes:
    return sha256(token.encode()).digest()


class Connection(Protocol):
    """
    What carries bytes to one client; written by the connectors.

    The node sets `session`; the connector says with Sessions.paused and
    Sessions.ready whether its transport takes more.
    """

    connector: str
    peer: str
    session: "Session | None"
    full: bool

    def send(self, data: bytes) -> None:
        """
        One JSON object, whole.  Never raises, also when the client is gone.
        """

    def lose(self, why: Closing) -> None:
        """
        Say why, and end it.
        """

    def unreadable(self, text: str, code: int) -> None:
        """
        What came is no message and names nobody to answer; say so where the transport has a way.
        """


class Counts:
    """
    What became of messages, as plain numbers; /metrics reads them.
    """

    def __init__(self) -> None:
        self.received = self.received_bytes = 0
        self.sent = self.sent_bytes = 0
        self.unreadable = 0  # not JSON, not UTF-8, nobody to answer
        self.no_route = self.waited = self.stale = self.overflowed = 0
        self.echoes = 0  # own messages not sent back, because they carry `via`
        self.refused: dict[int, int] = {}
        self.sessions: dict[str, int] = {}  # events in the life of sessions
        self.handed_over = [0] * 65  # messages by the bit length of the microseconds they took

    def refuse(self, code: int) -> None:
        self.refused[code] = self.refused.get(code, 0) + 1


class Home(Protocol):
    """
    What a session asks of those who keep it (Sessions).
    """

    counts: Counts

    def now(self) -> float: ...
    def make_queue(self) -> Waiting: ...
    def overflowed(self, session: "Session") -> None: ...


class Session:
    """
    `runtime` is its key, `bindings` what it hears and why, `keys` its allocations by key.
    """

    __slots__ = (
        "_home",
        "_waiting",
        "alone",
        "anonymous",
        "bindings",
        "connection",
        "expiry",
        "keys",
        "learnt",
        "ready",
        "runtime",
        "token_hash",
        "used",
    )

    def __init__(self, runtime: str, home: Home) -> None:
        self.runtime = runtime
        self.connection: Connection | None = None
        self.bindings: dict[str, int] = {}
        self.keys: Keys | None = None
        self.learnt = 0  # bindings made because of a `from`, counted by the routing table
        self.alone = (self,)
        self.anonymous = False
        self.used = False  # did it ever bind anything
        self.expiry: IDelayedCall | None = None
        self.token_hash = b""
        self.ready: Connection | None = None  # where a message may go now, past nothing that waits
        self._waiting: Waiting | None = None
        self._home = home

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
    def waiting(self) -> int:
        return len(self._waiting) if self._waiting else 0

    @property
    def waiting_bytes(self) -> int:
        return self._waiting.bytes if self._waiting else 0

    def attach(self, connection: Connection) -> None:
        """
        Use this connection from now on.  `resume` then sends what waits.
        """
        self.connection = connection
        self.ready = None

    def detach(self) -> None:
        self.connection = self.ready = None

    def end(self) -> None:
        self.detach()
        self._waiting = None
        self.token_hash = b""

    def pause(self) -> None:
        """
        The transport takes no more; what comes now waits.
        """
        self.ready = None

    def resume(self) -> None:
        """
        Send what waits, in order, until all is sent or the transport is full again.
        """
        connection = self.connection
        while connection is self.connection and connection is not None and not connection.full:
            data = None
            if self._waiting is not None:
                data, stale = self._waiting.take(self._home.now())
                self._home.counts.stale += stale
            if data is None:
                self._waiting = None
                self.ready = connection
                return
            self._sent(data)
            connection.send(data)

    def deliver(self, message: Message) -> bool:
        """
        Hand the message to the runtime.  False: it waits.
        """
        ready = self.ready
        if ready is not None:
            self._sent(message.data)
            ready.send(message.data)
            return True
        self.keep(message)
        return False

    def keep(self, message: Message) -> None:
        home, waiting = self._home, self._waiting
        if waiting is None:
            waiting = self._waiting = home.make_queue()
        to = message.to if isinstance(message.to, str) else ""
        gone = waiting.put(message.data, home.now() + patience(message.type, to))
        home.counts.waited += 1
        if gone:
            home.counts.overflowed += gone
            home.overflowed(self)

    def answer(self, reply: Message, connection: Connection) -> None:
        """
        A reply goes to the connection that asked; once that is gone, it waits for the session.
        """
        if connection is self.connection or connection.session is not self:
            self.deliver(reply)
        elif not connection.full:  # superseded, but still asking
            self._sent(reply.data)
            connection.send(reply.data)

    def _sent(self, data: bytes) -> None:
        self._home.counts.sent += 1
        self._home.counts.sent_bytes += len(data)
