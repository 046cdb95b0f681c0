"""
The cork: it collects output while one read of a socket is handled, and sends it with one write per
connection.

A read may hold hundreds of messages, and a message may go to a thousand connections. The output for each
connection is collected in its Outlet and sent once the read is done. It goes directly to the socket where
possible, because an epoll registration and a second pass through the reactor cost more than the message.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol, cast

from twisted.internet import tcp, unix
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from zope.interface import implementer

log = Logger()

# The test is the class, not the methods: a TLS transport passes writeSomeData on to the raw socket, and the
# bytes would leave as plaintext.
DIRECT_TRANSPORTS = (tcp.Server, unix.Server)

MAX_BUFFERED_BYTES = 1024 * 1024  # of one connection; beyond it backpressure pauses the producer
MAX_GATHERED = 32  # reads whose output leaves together
CHUNK_BYTES = 128 * 1024  # bytes copied for a connection at a time; as many as Twisted sends at once


class Holder(Protocol):
    """
    An object that buffers output until the cork is released: an Outlet, or a waiting long-poll.
    """

    def flush(self) -> None: ...


class HeldBackCounter(Protocol):
    """
    Counts how often backpressure paused a producer because too much output was buffered.
    """

    held_back: int


class Uncounted:
    """
    A counter that is not shown anywhere.
    """

    held_back = 0


class Turn:
    """
    One turn of the reactor: `is_open` while it handles the events of its descriptors. `at_end` is called when
    it has handled them, and must not raise.
    """

    def __init__(self) -> None:
        self.is_open = False
        self.at_end: Callable[[], object] | None = None

    def end(self) -> None:
        self.is_open = False
        at_end, self.at_end = self.at_end, None
        if at_end is not None:
            at_end()


class Cork:
    """
    Delays output while one read is handled, and then flushes every outlet.

    `settle` is called before any byte leaves, and at the end of each read: the node writes its journal then.
    `before_read`, if there is one, is called before a read is handled. With a `turn`, `gather` makes the
    reads of one turn of the reactor one.
    """

    __slots__ = (
        "_depth",
        "_gathered",
        "_is_gathering",
        "_outlets",
        "before_read",
        "corked",
        "counts",
        "most",
        "settle",
        "turn",
    )

    def __init__(
        self,
        settle: Callable[[], None] = lambda: None,
        most: int = MAX_BUFFERED_BYTES,
        counts: HeldBackCounter | None = None,
    ) -> None:
        self.settle = settle
        self.most = most  # bytes buffered for one connection
        self.counts = counts or Uncounted()
        self.before_read: Callable[[], object] | None = None
        self.corked = False
        self.turn: Turn | None = None
        self._depth = 0
        self._outlets: list[Holder] = []
        self._is_gathering = False
        self._gathered = 0  # reads

    def __enter__(self) -> None:
        if self.before_read is not None and not self._depth:
            self.before_read()
        self._depth += 1
        self.corked = True

    def begin_read(self) -> None:
        """
        The data plane has read a message, which is handled now.
        """
        if self.before_read is not None:
            self.before_read()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            if self._is_gathering and self._gathered < MAX_GATHERED:
                self._gathered += 1
                return
            self._is_gathering = False
            self._release()

    @property
    def is_open(self) -> bool:
        """
        Is a read being handled, at whose end `settle` is called?
        """
        return self._depth > 0

    def gather(self) -> None:
        """
        Keep the output of this read until the other sockets that are ready have been read, so that one call
        of `settle` serves them all.
        """
        turn = self.turn
        if turn is None or not turn.is_open or self._is_gathering or not self._depth:
            return
        self._is_gathering = True
        self._gathered = 0
        turn.at_end = self._end_turn

    def _end_turn(self) -> None:
        if self._is_gathering and self._depth == 0:
            self._is_gathering = False
            self._release()

    def add(self, outlet: Holder) -> None:
        """
        Register an outlet that has begun to buffer.
        """
        self._outlets.append(outlet)

    def _release(self) -> None:
        try:
            self.settle()
        except Exception:
            log.failure("the journal of undelivered messages could not be written")
        # The cork stays in while the outlets are flushed, and the list may grow meanwhile: a flush can pause
        # a producer that then writes, and its output must not overtake what is buffered.
        for outlet in self._outlets:
            try:
                outlet.flush()
            except Exception:
                log.failure("buffered output could not be sent")
        self._outlets.clear()
        self.corked = False


def corked(cork: AbstractContextManager[Any], wait: Deferred[Any]) -> Deferred[Any]:
    """
    Fires with the result of `wait`, within the cork: all that the callbacks cause is one batch of the
    journal, which is written before the first byte of it leaves.
    """
    over: Deferred[Any] = Deferred()

    def fire(result: Any) -> None:
        with cork:
            over.callback(result)

    wait.addBoth(fire)
    return over


class Client(Protocol):
    """
    The producer behind an Outlet. Backpressure pauses it.
    """

    def pauseProducing(self) -> None: ...
    def resumeProducing(self) -> None: ...


@implementer(IPushProducer)
class Outlet:
    """
    The buffered output of one transport, and the transport's producer if there is a `client` that can pause.

    There is one outlet per connection, and most are idle: nothing is allocated before there is output. For a
    client that can pause, no more than the cork's `most` is buffered. What the transport does not take yet
    stays here without a copy, and is copied for this connection one chunk at a time.
    """

    __slots__ = (
        "_buffered",
        "_cork",
        "_forgotten",
        "_over",
        "_size",
        "_stalled",
        "_straight",
        "_transport",
        "client",
    )

    def __init__(self, transport: Any, cork: Cork) -> None:
        self.client: Client | None = None
        self._transport = transport
        self._cork = cork
        self._straight = type(transport) in DIRECT_TRANSPORTS
        self._buffered: list[bytes] | None = None
        self._size = 0  # bytes in _buffered, if it has more than one item
        self._stalled = False  # the transport takes no more now
        self._over = False  # the client was paused because too much is buffered
        self._forgotten = False  # the connection is aborted, and nothing leaves any more

    @property
    def stalled(self) -> bool:
        """
        Is output blocked, by the transport or by what is buffered here?
        """
        return self._stalled or self._over

    def pace(self, client: Client) -> None:
        """
        Register `client` as the producer that backpressure pauses and resumes.
        """
        self.client = client
        self._transport.registerProducer(self, True)

    def write(self, data: bytes) -> None:
        """
        Send `data` when the cork is released; at once if there is no cork.
        """
        if self._buffered is None:
            if not self._cork.corked:
                self._cork.settle()
                self._put(data)
                return
            self._buffered = [data]
            self._cork.add(self)
            return
        if len(self._buffered) == 1:
            self._size = len(self._buffered[0])
        self._buffered.append(data)
        self._size += len(data)
        if not self._cork.corked:
            self.flush()
        elif self._size > self._cork.most and not self._over and self.client is not None:
            self._over = True
            self._cork.counts.held_back += 1
            self.client.pauseProducing()

    def flush(self) -> None:
        """
        Send what is buffered, now. If the client can pause, as much as the transport takes.
        """
        buffered = self._buffered
        if buffered is None or self._stalled:
            return
        self._buffered = None
        self._cork.settle()
        if not self._over:
            if len(buffered) == 1:
                if len(buffered[0]) <= CHUNK_BYTES:
                    self._put(buffered[0])
                    return
            elif self._size <= CHUNK_BYTES:
                self._put(b"".join(buffered))
                return
        rest = self._feed(buffered)
        if rest:
            self._buffered = rest + (self._buffered or [])
            self._size = sum(map(len, self._buffered))
        if self._over:
            self._go_on()

    def push(self) -> None:
        """
        Give everything buffered to the transport, before output that bypasses this outlet.
        """
        if self._buffered is not None:
            buffered, self._buffered, self._size = self._buffered, None, 0
            self._cork.settle()
            self._put(bytes(buffered[0]) if len(buffered) == 1 else b"".join(buffered))

    def close(self) -> None:
        """
        Close the transport when everything has left.

        Twisted's transports wait for their producer as well, those with TLS for as long as there is one.
        """
        self.push()
        if not self._straight:
            self._transport.unregisterProducer()
        self._transport.loseConnection()

    def forget(self) -> None:
        """
        Discard what is buffered, and all output that follows: the connection is aborted.

        An aborted transport still writes to its socket until the next turn, and `settle` may abort the
        connection of the very output that it was called for: it could not be written to disk.
        """
        self._buffered = None
        self._forgotten = True

    def drop(self) -> None:
        """
        Release everything, after the connection was lost: memory is freed now, not at the next garbage
        collection.
        """
        transport, self._buffered, self.client = self._transport, None, None
        if self._straight:
            transport.dataBuffer = b""
            transport.offset = 0
            transport._tempDataBuffer = []
            transport._tempDataLen = 0

    # -- IPushProducer: backpressure of the transport ------------------------

    def pauseProducing(self) -> None:
        self._stalled = True
        if self.client is not None:
            self.client.pauseProducing()

    def resumeProducing(self) -> None:
        self._stalled = False
        if self._straight and self._transport.disconnecting:
            self._transport.startWriting()  # it closes the next time that it finds nothing to write
        elif self._buffered is None:
            self._go_on()
        else:
            self._over = True  # the client is paused, and the buffer may hold part of a message
            self.flush()

    def stopProducing(self) -> None:
        pass

    # ----------------------------------------------------------------------------

    def _go_on(self) -> None:
        """
        Resume the client if everything has left.
        """
        if self._buffered is None and not self._stalled:
            self._over = False
            if self.client is not None:
                self.client.resumeProducing()

    def _feed(self, buffered: list[bytes]) -> list[bytes]:
        """
        Send the items one after the other. Returns those that the transport did not take.
        """
        at = 0
        while at < len(buffered) and not self._stalled:
            end, size = at, 0
            while end < len(buffered) and (end == at or size + len(buffered[end]) <= CHUNK_BYTES):
                size += len(buffered[end])
                end += 1
            if end == at + 1:
                rest = self._put_long(buffered[at])
                if rest:
                    return [rest, *buffered[end:]]
            else:
                self._put(b"".join(buffered[at:end]))
            at = end
        return buffered[at:]

    def _put_long(self, data: bytes) -> bytes:
        """
        Send an item that may be long and shared with other connections. Returns the part that the transport
        did not take.
        """
        if self._straight or self.client is None or len(data) <= CHUNK_BYTES:
            self._put(bytes(data))
            return b""
        view: Any = memoryview(data)
        while view and not self._stalled:
            self._put(bytes(view[:CHUNK_BYTES]))
            view = view[CHUNK_BYTES:]
        return cast(bytes, view)

    def _put(self, data: bytes) -> None:
        if self._forgotten:
            return
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
                if len(data) - sent > CHUNK_BYTES:
                    # Thousands of connections may send these bytes: do not copy the rest for each.
                    transport.dataBuffer, transport.offset = data, sent
                    transport._maybePauseProducer()
                    transport.startWriting()
                    return
                data = data[sent:]
        # Transport.write pauses a producer when much is left over, and lets the reactor notice a dead socket.
        transport.write(data)
