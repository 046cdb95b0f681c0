"""
The cork: what goes out while one read is worked through goes out together.

A read may hold hundreds of messages, and a message may go to a thousand
connections.  Each connection's share is collected in its Outlet and sent once,
when the read is done, straight to the socket if it can be: an epoll
registration and a second pass through the reactor cost more than the message.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, cast

from twisted.internet import tcp, unix
from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from zope.interface import implementer

log = Logger()

# By class, not by what a transport can do: a TLS transport passes
# writeSomeData on to the raw socket, and the bytes would leave as plaintext.
STRAIGHT = (tcp.Server, unix.Server)

MAX_HELD = 1024 * 1024  # bytes held for one connection, until what comes for it has to wait
CHUNK = 128 * 1024  # bytes that are copied for a connection at a time; what Twisted sends at once


class Holder(Protocol):
    """
    An object that holds output back: an Outlet, or a poll that waits.
    """

    def flush(self) -> None: ...


class HeldBackCounter(Protocol):
    """
    Counts how often a client had to wait, because too much was to leave for it at once.
    """

    held_back: int


class Uncounted:
    """
    Counts for nobody.
    """

    held_back = 0


class Cork:
    """
    Holds back what goes out while one read is worked through.

    `settle` is called before anything leaves, and at the end of each read: the
    node writes down what it owes.
    """

    __slots__ = ("_depth", "_outlets", "counts", "held", "most", "settle")

    def __init__(
        self,
        settle: Callable[[], None] = lambda: None,
        most: int = MAX_HELD,
        counts: HeldBackCounter | None = None,
    ) -> None:
        self.settle = settle
        self.most = most  # bytes held for one connection
        self.counts = counts or Uncounted()
        self.held = False
        self._depth = 0
        self._outlets: list[Holder] = []

    def __enter__(self) -> None:
        self._depth += 1
        self.held = True

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._release()

    def add(self, outlet: Holder) -> None:
        """
        An outlet has begun to hold something.
        """
        self._outlets.append(outlet)

    def _release(self) -> None:
        try:
            self.settle()
        except Exception:
            log.failure("writing down what is owed")
        # Still held meanwhile, and the list may grow: a flush can pause a
        # producer, which may write, and that must not overtake what is held.
        for outlet in self._outlets:
            try:
                outlet.flush()
            except Exception:
                log.failure("sending what was held")
        self._outlets.clear()
        self.held = False


class Client(Protocol):
    """
    The writer behind an Outlet, which can be told to wait.
    """

    def pauseProducing(self) -> None: ...
    def resumeProducing(self) -> None: ...


@implementer(IPushProducer)
class Outlet:
    """
    The way out of one transport, and its producer where there is a `client` that can wait.

    There is one for each connection, most of them idle: nothing is allocated
    before something is held.  More than `most` of the cork is not held for a
    client that can wait.  What the transport does not take yet stays here as it
    is, and is copied for this one connection a chunk at a time.
    """

    __slots__ = ("_cork", "_held", "_over", "_size", "_stalled", "_straight", "_transport", "client")

    def __init__(self, transport: Any, cork: Cork) -> None:
        self.client: Client | None = None
        self._transport = transport
        self._cork = cork
        self._straight = type(transport) in STRAIGHT
        self._held: list[bytes] | None = None
        self._size = 0  # bytes in _held, if that is more than one
        self._stalled = False  # the transport takes no more
        self._over = False  # the client was told to wait, because too much is held

    @property
    def stalled(self) -> bool:
        """
        The transport takes no more, or what is held has to leave before.
        """
        return self._stalled or self._over

    def pace(self, client: Client) -> None:
        """
        Tell the client when to wait, and when to go on.
        """
        self.client = client
        self._transport.registerProducer(self, True)

    def write(self, data: bytes) -> None:
        """
        Send data when the cork comes out; now, if it is not in.
        """
        if self._held is None:
            if not self._cork.held:
                self._cork.settle()
                self._put(data)
                return
            self._held = [data]
            self._cork.add(self)
            return
        if len(self._held) == 1:
            self._size = len(self._held[0])
        self._held.append(data)
        self._size += len(data)
        if not self._cork.held:
            self.flush()
        elif self._size > self._cork.most and not self._over and self.client is not None:
            self._over = True
            self._cork.counts.held_back += 1
            self.client.pauseProducing()

    def flush(self) -> None:
        """
        Send what is held, now; if the client can wait, as much as the transport takes.
        """
        held = self._held
        if held is None or self._stalled:
            return
        self._held = None
        self._cork.settle()
        if not self._over:
            if len(held) == 1:
                if len(held[0]) <= CHUNK:
                    self._put(held[0])
                    return
            elif self._size <= CHUNK:
                self._put(b"".join(held))
                return
        rest = self._feed(held)
        if rest:
            self._held = rest + (self._held or [])
            self._size = sum(map(len, self._held))
        if self._over:
            self._go_on()

    def push(self) -> None:
        """
        Give all that is held to the transport, before something that goes past this outlet.
        """
        if self._held is not None:
            held, self._held, self._size = self._held, None, 0
            self._cork.settle()
            self._put(bytes(held[0]) if len(held) == 1 else b"".join(held))

    def forget(self) -> None:
        """
        What is held will not be sent.
        """
        self._held = None

    def drop(self) -> None:
        """
        The connection is gone.  What was not sent is let go now, not when Python next looks for cycles.
        """
        transport, self._held, self.client = self._transport, None, None
        if self._straight:
            transport.dataBuffer = b""
            transport.offset = 0
            transport._tempDataBuffer = []
            transport._tempDataLen = 0

    # -- IPushProducer: the transport says whether it takes more -------------

    def pauseProducing(self) -> None:
        self._stalled = True
        if self.client is not None:
            self.client.pauseProducing()

    def resumeProducing(self) -> None:
        self._stalled = False
        if self._held is None:
            self._go_on()
        else:
            self._over = True  # the client waits, and what is held may be part of something
            self.flush()

    def stopProducing(self) -> None:
        pass

    # ----------------------------------------------------------------------------

    def _go_on(self) -> None:
        """
        Let the client go on, if everything has left.
        """
        if self._held is None and not self._stalled:
            self._over = False
            if self.client is not None:
                self.client.resumeProducing()

    def _feed(self, held: list[bytes]) -> list[bytes]:
        """
        Send it piece by piece; what the transport takes no more.
        """
        at = 0
        while at < len(held) and not self._stalled:
            end, size = at, 0
            while end < len(held) and (end == at or size + len(held[end]) <= CHUNK):
                size += len(held[end])
                end += 1
            if end == at + 1:
                rest = self._put_long(held[at])
                if rest:
                    return [rest, *held[end:]]
            else:
                self._put(b"".join(held[at:end]))
            at = end
        return held[at:]

    def _put_long(self, data: bytes) -> bytes:
        """
        Send what may be long and others' as well; what the transport takes no more.
        """
        if self._straight or self.client is None or len(data) <= CHUNK:
            self._put(bytes(data))
            return b""
        view: Any = memoryview(data)
        while view and not self._stalled:
            self._put(bytes(view[:CHUNK]))
            view = view[CHUNK:]
        return cast(bytes, view)

    def _put(self, data: bytes) -> None:
        transport = self._transport
        if (
            self._straight
            and transport.connected
            and not transport.disconnecting
            and not transport.dataBuffer
            and not transport._tempDataBuffer
            and not transport.TLS  # startTLS leaves the class as it was
        ):
            sent = transport.writeSomeData(data)
            if sent == len(data):
                return
            if isinstance(sent, int):
                if len(data) - sent > CHUNK:
                    # The same bytes may be on their way to thousands: no copy of the rest for each.
                    transport.dataBuffer, transport.offset = data, sent
                    transport._maybePauseProducer()
                    transport.startWriting()
                    return
                data = data[sent:]
        # The transport's own way pauses a producer when much is left over,
        # and lets the reactor find out that a socket is dead.
        transport.write(data)
