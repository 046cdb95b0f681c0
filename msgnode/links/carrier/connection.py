"""
A connection of a link: one WebSocket between two nodes, from the hello to the close entry.

The node that dialled says hello first, after it has checked the other's certificate; the other answers with
its own hello only to a node that it accepts. A connection that is up belongs to a NodeLink, whose queue it
empties. It knows nothing of WebSocket; below it is a Wire.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.links.carrier import codec
from msgnode.links.carrier.pings import Pings
from msgnode.links.carrier.send_queue import SendQueue
from msgnode.links.carrier.wire import ACCEPTED, BAD_REQUEST, TIMEOUT, Refused, Wire
from msgnode.links.overlay.trust import TrustedKey
from msgnode.links.wire.entries import (
    CHECK,
    MAX_ENTRIES,
    MAX_MESSAGE_BYTES,
    AnyEntry,
    Close,
    Data,
    Digest,
    Hello,
    Ping,
    Pong,
    State,
    Summary,
)
from msgnode.structures.log_limits import printable

BATCH_BYTES = 32 * 1024  # of a message, unless one entry is larger
TLS_SHARE = 3  # the TLS handshake may take a third of the time for the hello
MAX_HELLO_BYTES = 16 * 1024  # of a message before the hello
MAX_PONGS = 16  # that wait; a peer that sends pings and does not read gets the latest
MAX_TURN_ENTRIES = 128  # that are passed on in one turn of the event loop
WEIGHT_BYTES = 256  # of a datagram that count as one entry more: it may have many short messages
STATE_WEIGHT = 8  # an advertisement counts as this many entries: its signature may have to be verified


Content = Data | State | Digest | Summary


class Keeper(Protocol):
    """
    The owner of all connections: the link table.
    """

    clock: IReactorTime
    # Within it, output is held back: what the entries of one message cause is written at once.
    together: Callable[[], AbstractContextManager[Any]]

    @property
    def hello_seconds(self) -> float:
        """
        The seconds from the start of a connection to the hello.
        """

    def hello(self) -> Hello: ...

    def prove_dialled(self, domain: str, chain: Sequence[bytes]) -> None:
        """
        Check the certificate of a node that was dialled. Refused if it does not prove the domain.
        """

    def admit(self, connection: "LinkConnection", hello: Hello) -> TrustedKey:
        """
        Check a hello. Refused says why it is not accepted.
        """

    def make_pings(self, connection: "LinkConnection") -> Pings: ...
    def established(self, connection: "LinkConnection") -> None: ...
    def received(self, connection: "LinkConnection", entry: Content) -> None: ...
    def has_room(self, connection: "LinkConnection") -> None: ...

    def ended(self, connection: "LinkConnection", reason: str) -> None:
        """
        The connection carries nothing any more.
        """

    def gone(self, connection: "LinkConnection") -> None:
        """
        The WebSocket is closed, too.
        """

    def misbehaved(self, connection: "LinkConnection", cause: str, text: str) -> None:
        """
        Count a fault of the peer, and log it, if that was not done yet.
        """


class LinkConnection:
    """
    A connection between two nodes. `dialled` is the domain that this node dialled, or "".

    `queue` is the queue of its link while this connection is the one that sends.
    """

    def __init__(self, wire: Wire, keeper: Keeper, dialled: str = "", host: str = "") -> None:
        self.dialled = dialled
        self.host = host  # of the peer, for the log
        self.chain: Sequence[bytes] = ()
        self.peer: Hello | None = None
        self.proof: TrustedKey | None = None
        self.queue: SendQueue | None = None
        self.closed: Close | None = None  # the close entry that the peer sent
        self.is_over = False
        self.pings = keeper.make_pings(self)
        self.retry_after = 0.0
        self.reason = ""
        self.bytes_in = self.bytes_out = 0
        self._wire = wire
        self._keeper = keeper
        self._first: deque[bytes] = deque()  # entries of this connection itself
        self._pongs: deque[int] = deque(maxlen=MAX_PONGS)
        self._inbox: deque[Content | Close] = deque()
        self._flushing: IDelayedCall | None = None
        self._working: IDelayedCall | None = None
        self._paused = False
        self._reading = True
        self._said_hello = False
        self._is_closing = False
        wire.set_limit(MAX_HELLO_BYTES)
        self._is_secured = bool(dialled)  # the endpoint has a deadline of its own
        self._hello_until = keeper.clock.seconds() + keeper.hello_seconds
        seconds = keeper.hello_seconds if dialled else keeper.hello_seconds / TLS_SHARE
        self._deadline: IDelayedCall | None = keeper.clock.callLater(seconds, self._too_late)

    # -- from the wire -------------------------------------------------------

    def secured(self) -> None:
        """
        The TLS handshake is over. The time for the hello began with the connection.
        """
        if not self._is_secured and self._deadline is not None:
            self._is_secured = True
            self._deadline.reset(max(0.0, self._hello_until - self._keeper.clock.seconds()))

    def opened(self, chain: Sequence[bytes]) -> None:
        """
        The WebSocket is open, and these are the certificates that the peer presented.
        """
        self.secured()
        self.chain = chain
        if not self.dialled:
            return
        try:
            self._keeper.prove_dialled(self.dialled, chain)
        except Refused as why:
            self._refuse(why)
            return
        self._say_hello()

    def message_received(self, data: bytes) -> None:
        if self.is_over or self._is_closing:
            return
        self.bytes_in += len(data)
        try:
            entries = codec.decode(data)
        except codec.CodecError as why:
            self._fail("malformed", str(why))
            return
        for entry in entries:
            self._take(entry)
            if self.is_over or self._is_closing:
                return
        if self._inbox and self._working is None:
            self._work()

    def paused(self) -> None:
        self._paused = True

    def resumed(self) -> None:
        self._paused = False
        self._flush()

    def lost(self, reason: str) -> None:
        """
        The WebSocket is gone. What it received before still counts.
        """
        while self._inbox and not self.is_over and self.peer is not None:
            self._pass_on(self._inbox.popleft())
        self._end(self.reason or reason)

    # -- for the link --------------------------------------------------------

    @property
    def node(self) -> str:
        return "" if self.peer is None else self.peer.node

    @property
    def is_up(self) -> bool:
        return self.peer is not None and not self.is_over and not self._is_closing

    def schedule(self) -> None:
        """
        Send what is queued by the end of this turn of the event loop.
        """
        if self._flushing is None and not self._paused and not self.is_over:
            self._flushing = self._keeper.clock.callLater(0, self._flush)

    def close(self, code: int, reason: str, retry_after: float = 0.0) -> None:
        """
        Say why, and close; no entry is taken any more. The link has left this connection when this returns.
        """
        if self.is_over or self._is_closing:
            return
        self.queue = None
        self._first.append(codec.encode(Close(code, reason[:512], retry_after)))
        self._pongs.clear()
        self._is_closing = True
        self._inbox.clear()
        self.reason = self.reason or reason
        self._cancel_timers()
        self._flush(even_if_paused=True)
        self._wire.lose()
        self._keeper.ended(self, self.reason)

    # -- hello ---------------------------------------------------------------

    def _say_hello(self) -> None:
        self._said_hello = True
        self._first.append(codec.encode(self._keeper.hello()))
        self.schedule()

    def _take_hello(self, hello: Hello) -> None:
        if self.peer is not None:
            self._fail("hello", "expected one hello, found another")
            return
        try:
            self.proof = self._keeper.admit(self, hello)
        except Refused as why:
            self._refuse(why)
            return
        if CHECK in hello.features:
            self.close(ACCEPTED, "the node would accept the link", -1.0)
            return
        self.peer = hello
        self._wire.set_limit(MAX_MESSAGE_BYTES)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if not self._said_hello:
            self._say_hello()
        self.pings.start()
        self._keeper.established(self)

    def _refuse(self, why: Refused) -> None:
        self._keeper.misbehaved(self, f"refused-{why.code}", why.reason)
        self.retry_after = why.retry_after
        self.close(why.code, why.reason, why.retry_after)

    def _too_late(self) -> None:
        self._deadline = None
        if self._is_secured:
            self._fail("silent", "expected a hello in time", TIMEOUT)
        else:
            self._keeper.misbehaved(self, "tls", "expected the end of the TLS handshake in time")
            self._wire.abort()

    # -- entries in ----------------------------------------------------------

    def _take(self, entry: AnyEntry) -> None:
        if isinstance(entry, Hello):
            self._take_hello(entry)
        elif isinstance(entry, Close):
            if self.peer is None:
                self._take_close(entry)
            else:
                self._inbox.append(entry)
        elif self.peer is None:
            self._fail("hello", "expected a hello first")
        elif isinstance(entry, Ping):
            self._pongs.append(entry.number)
            self.schedule()
        elif isinstance(entry, Pong):
            self.pings.pong(entry.number)
        else:
            self._inbox.append(entry)

    def _work(self) -> None:
        """
        Pass on what one turn may hold. Nothing more is read while some is left.
        """
        self._working = None
        budget = MAX_TURN_ENTRIES
        with self._keeper.together():
            while self._inbox and budget > 0 and not self.is_over and not self._is_closing:
                entry = self._inbox.popleft()
                budget -= _weight(entry)
                self._pass_on(entry)
        if self.is_over or self._is_closing:
            return
        if self._inbox:
            self._working = self._keeper.clock.callLater(0, self._work)
        if self._reading != (not self._inbox):
            self._reading = not self._reading
            (self._wire.resume_reading if self._reading else self._wire.pause_reading)()

    def _pass_on(self, entry: Content | Close) -> None:
        if isinstance(entry, Close):
            self._take_close(entry)
        else:
            self._keeper.received(self, entry)

    def _take_close(self, entry: Close) -> None:
        self.closed = entry
        self.retry_after = entry.retry_after
        self.reason = f"closed by the peer: {entry.code} {printable(entry.reason)}"
        self._wire.lose()
        self._end(self.reason)

    def _fail(self, cause: str, text: str, code: int = BAD_REQUEST) -> None:
        self._keeper.misbehaved(self, cause, text)
        self.close(code, text, 30.0)

    # -- entries out ---------------------------------------------------------

    def send_ping(self, number: int) -> None:
        self._first.append(codec.encode(Ping(number)))
        self.schedule()

    def _flush(self, even_if_paused: bool = False) -> None:
        if self._flushing is not None:
            if self._flushing.active():
                self._flushing.cancel()
            self._flushing = None
        sent = False
        while (not self._paused or even_if_paused) and not self.is_over:
            entries = self._next_batch()
            if not entries:
                break
            sent = True
            message = codec.message(entries)
            self.bytes_out += len(message)
            self._wire.send_message(message)
        if sent and self.queue is not None:
            self._keeper.has_room(self)

    def _next_batch(self) -> list[bytes]:
        batch: list[bytes] = []
        while self._first:
            batch.append(self._first.popleft())
        if self._is_closing:
            return batch
        while self._pongs:
            batch.append(codec.encode(Pong(self._pongs.popleft())))
        if self.queue is not None:
            batch += self.queue.take(BATCH_BYTES, MAX_ENTRIES - len(batch))
        return batch

    # -- the end -------------------------------------------------------------

    def _cancel_timers(self) -> None:
        self.pings.stop()
        for timer in (self._deadline, self._flushing, self._working):
            if timer is not None and timer.active():
                timer.cancel()
        self._deadline = self._flushing = self._working = None

    def _end(self, reason: str) -> None:
        """
        Called once the wire is gone, or is of no use any more.
        """
        if self.is_over:
            return
        self.is_over = True
        was_closing = self._is_closing
        self._cancel_timers()
        self.queue = None
        if not was_closing:
            self.reason = self.reason or reason
            self._keeper.ended(self, reason)
        self._keeper.gone(self)


def _weight(entry: Content | Close) -> int:
    if isinstance(entry, Data):
        return 1 + len(entry.datagram.payload) // WEIGHT_BYTES
    return STATE_WEIGHT if isinstance(entry, State) else 1
