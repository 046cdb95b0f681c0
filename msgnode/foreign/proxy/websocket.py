"""
A WebSocket that the node opens for a stub, by Autobahn, to a checked address.
"""

from typing import Any, Protocol

from autobahn.twisted.websocket import WebSocketClientFactory, WebSocketClientProtocol
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IStreamClientEndpoint
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from msgnode.backends.call_outcomes import in_words, outcome_of

ABNORMAL = 1006  # the code of a connection that was lost without one
HANDSHAKE_SECONDS = 10
CLOSE_SECONDS = 2
MAX_HANDSHAKE_BYTES = 64 * 1024
PIECE_BYTES = 4096  # of what was read, in one turn of the event loop
MAX_FRAMES = 256  # in it, which takes up to 5 ms


class SocketEvents(Protocol):
    """
    The stub's end of a WebSocket.
    """

    def opened(self, protocol: str) -> None: ...

    def received(self, payload: bytes, is_binary: bool) -> None: ...

    def read(self, size: int, frames: int) -> float:
        """
        So many bytes and frames came; the seconds until more may be read.
        """

    def limited(self, limit: str) -> None:
        """
        The other end was left, for it was beyond a limit.
        """

    def drained(self, size: int) -> None:
        """
        So many bytes of what was sent are on their way.
        """

    def closed(self, code: int, reason: str, clean: bool) -> None:
        """
        Called once, at the end.
        """


class StubWebSocket:
    """
    A WebSocket connection of a stub, while it is connecting, too.
    """

    def __init__(self, reactor: Any, events: SocketEvents) -> None:
        self._reactor = reactor
        self._events = events
        self._protocol: _Client | None = None
        self._connecting: Deferred[Any] | None = None
        self._unreported = 0  # bytes that were sent while the transport was full
        self.is_full = self.is_paused = self._ended = False

    def connect(
        self, endpoint: IStreamClientEndpoint, url: str, protocols: list[str], max_bytes: int
    ) -> None:
        factory = WebSocketClientFactory(url, protocols=protocols, reactor=self._reactor, useragent="msgnode")
        factory.noisy = False
        factory.setProtocolOptions(
            maxFramePayloadSize=max_bytes,
            maxMessagePayloadSize=max_bytes,
            openHandshakeTimeout=HANDSHAKE_SECONDS,
            closeHandshakeTimeout=CLOSE_SECONDS,
            tcpNoDelay=True,
        )
        factory.protocol = lambda: _Client(self, self._reactor)
        self._connecting = endpoint.connect(factory)
        self._connecting.addErrback(self._not_connected)

    def _not_connected(self, why: Failure) -> None:
        assert why.value is not None
        text = "closed" if why.check(CancelledError) else in_words(why.value)
        self._end(ABNORMAL, text, False)

    def send(self, payload: bytes, is_binary: bool) -> None:
        if self._protocol is None:
            return
        self._protocol.sendMessage(payload, is_binary)
        if self.is_full:
            self._unreported += len(payload)
        else:
            self._events.drained(len(payload))

    def close(self, code: int, reason: str) -> None:
        if self._protocol is not None:
            permitted = code if code == 1000 or 3000 <= code <= 4999 else 1000
            self._protocol.sendClose(permitted, reason)
        elif self._connecting is not None:
            self._connecting.cancel()

    def abort(self) -> None:
        """
        End it at once; no event follows.
        """
        self._ended = True
        if self._protocol is not None:
            self._protocol.transport.abortConnection()
        elif self._connecting is not None:
            self._connecting.cancel()

    def pause(self) -> None:
        self.is_paused = True
        if self._protocol is not None:
            self._protocol.go_on()

    def resume(self) -> None:
        self.is_paused = False
        if self._protocol is not None:
            self._protocol.go_on()

    # -- called by the connection ----------------------------------------------

    def made(self, protocol: "_Client") -> None:
        self._protocol = protocol
        if self._ended:
            protocol.transport.abortConnection()

    def opened(self, protocol: str) -> None:
        if self._ended or self._protocol is None:
            return
        self._protocol.transport.registerProducer(_Producer(self), True)
        self._protocol.go_on()
        self._events.opened(protocol)

    def read(self, size: int, frames: int) -> float:
        return 0.0 if self._ended else self._events.read(size, frames)

    def received(self, payload: bytes, is_binary: bool) -> None:
        if not self._ended:
            self._events.received(payload, is_binary)

    def set_full(self, full: bool) -> None:
        self.is_full = full
        if not full and self._unreported and not self._ended:
            size, self._unreported = self._unreported, 0
            self._events.drained(size)

    def limited(self, limit: str) -> None:
        if not self._ended:
            self._events.limited(limit)

    def lost(self, code: int, reason: str, clean: bool) -> None:
        self._end(code, reason, clean)

    def _end(self, code: int, reason: str, clean: bool) -> None:
        if not self._ended:
            self._ended = True
            self._events.closed(code, reason, clean)


class _Client(WebSocketClientProtocol):
    """
    Autobahn's protocol at this end.
    """

    _close: tuple[int, str, bool] | None = None
    _before_open = 0  # bytes
    _frames = 0  # in this piece
    _is_open = _is_dropped = _reading_paused = False
    _turn: IDelayedCall | None = None

    def __init__(self, socket: StubWebSocket, clock: Any) -> None:
        super().__init__()
        self._socket = socket
        self._clock = clock
        self._left = bytearray()  # of one read, for later turns

    def dataReceived(self, data: bytes) -> None:
        if not self._is_open:
            if self._before_open > MAX_HANDSHAKE_BYTES:
                self._drop(f"its handshake has more than {MAX_HANDSHAKE_BYTES} bytes", "handshake")
                return
            self._before_open += len(data)
        self._left += data
        if self._turn is None:
            self._take()

    def _take(self) -> None:
        """
        Handles a piece of what was read; more in another turn, at the permitted rate, when the process reads.
        """
        self._turn = None
        if self._left and not self._socket.is_paused:
            wait = self._take_piece()
            if (self._left or wait) and self._turn is None and not self._is_dropped:
                self._turn = self._clock.callLater(wait, self._take)
        self.go_on()

    def _take_piece(self) -> float:
        piece = bytes(self._left[:PIECE_BYTES])
        del self._left[:PIECE_BYTES]
        self._frames = 0
        super().dataReceived(piece)
        return self._socket.read(len(piece), self._frames)

    def go_on(self) -> None:
        """
        Reads from the connection while that is wanted.
        """
        if self._left and self._turn is None and not self._socket.is_paused and not self._is_dropped:
            self._turn = self._clock.callLater(0, self._take)
        paused = self._socket.is_paused or self._turn is not None
        if paused != self._reading_paused and self._is_open:
            self._reading_paused = paused
            self.transport.pauseProducing() if paused else self.transport.resumeProducing()

    def onFrameBegin(self) -> None:
        self._frames += 1
        if self._frames > MAX_FRAMES:
            self._drop(f"more than {MAX_FRAMES} frames in {PIECE_BYTES} bytes", "frames")
        super().onFrameBegin()

    def _drop(self, why: str, limit: str) -> None:
        self._socket.limited(limit)
        self._is_dropped = True
        self.wasNotCleanReason = why
        self.dropConnection(abort=True)

    def onPing(self, payload: bytes) -> None:
        if not self._socket.is_full:  # a node that does not read could make the answers grow without end
            super().onPing(payload)

    def connectionMade(self) -> None:
        super().connectionMade()
        self._socket.made(self)

    def onConnect(self, response: Any) -> None:
        self._chosen = response.protocol or ""

    def onOpen(self) -> None:
        self._is_open = True
        self._socket.opened(self._chosen)

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        self._socket.received(payload, isBinary)

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        self._close = (code or ABNORMAL, reason or "", bool(wasClean))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._turn is not None and self._turn.active():
            self._turn.cancel()
        while self._left and not self._is_dropped:  # what came with the end
            self._take_piece()
        super().connectionLost(reason)
        code, text, clean = self._close or (ABNORMAL, reason.getErrorMessage(), False)
        assert reason.value is not None
        if outcome_of(reason.value) == "untrusted":  # Autobahn knows nothing of it
            text = f"the certificate is refused: {in_words(reason.value)}"
        self._socket.lost(code, text, clean)


@implementer(IPushProducer)
class _Producer:
    """
    The stub as the producer of what the connection sends.
    """

    def __init__(self, socket: StubWebSocket) -> None:
        self._socket = socket

    def pauseProducing(self) -> None:
        self._socket.set_full(True)

    def resumeProducing(self) -> None:
        self._socket.set_full(False)

    def stopProducing(self) -> None:
        pass
