"""
WebSocket, with a fast path past Autobahn for the most common frames.

Autobahn spends its time on per-frame objects and futures.  While a connection
is open, complete, masked, final text frames are read here instead.  All else
is passed to Autobahn from the first byte on: the handshake, control frames,
fragments, extensions, closing, and every verdict on a bad frame.  A peer
notices no difference but the speed.

The fast path keeps no traffic statistics, fires no
"message" event and calls no frame-level hook (onMessageBegin and so on).
Octet and frame logs and timings, where they are on when a connection opens,
turn the fast path off for it.
"""

from collections import Counter
from types import SimpleNamespace
from typing import Any

from autobahn.twisted.websocket import WebSocketServerFactory, WebSocketServerProtocol
from twisted.internet.defer import Deferred
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure

from msgnode.connectors.peer_faults import PeerLog, fault_of
from msgnode.connectors.websocket_frames import FINAL_TEXT, Validator, gather, is_text, text_frame, unmasked
from msgnode.protocol.close_codes import Closing
from msgnode.sessions.limits.partial_input import PartialInput
from msgnode.structures.time_slices import MESSAGES, Slices
from msgnode.transport.cork import Cork, Outlet
from msgnode.transport.read_backlog import Backlog, Reading

OPEN = WebSocketServerProtocol.STATE_OPEN
CLOSING, CLOSED = WebSocketServerProtocol.STATE_CLOSING, WebSocketServerProtocol.STATE_CLOSED
MASKED = 0x80

# The most in one turn of the event loop; Autobahn takes a step for a frame's header, and one for its payload.
FRAMES, STEPS = range(MESSAGES), range(2 * MESSAGES)

# Bytes: of inflated messages in one turn, but for the last one; and of a message that is sent compressed.
MAX_INFLATED_BYTES, MAX_DEFLATED_BYTES = 1024 * 1024, 256 * 1024

# Bytes of an unfinished frame that may be buffered here; each read copies them once more.
KEPT_BYTES = 16 * 1024


class FastPathProtocol(Reading, WebSocketServerProtocol):
    """
    A WebSocket connection with the fast path; subclasses handle its messages.
    """

    fast_path = True  # False: Autobahn alone, for comparison
    tcpNoDelay = True  # here, because Autobahn reads the factory's value too late

    factory: "FastPathFactory"
    outlet: Outlet

    _kept = b""  # the beginning of an unfinished frame
    frame_data: list[Any] | None = None  # the bytes that Autobahn has of an unfinished message
    message_data: list[Any] | None = None
    inside_message = False
    _inflated = 0  # bytes that came out of compressed messages in this turn
    _more = False  # more frames wait than one turn may handle
    _longest = -1  # the largest payload for the fast path in bytes; -1: the fast path is off

    def textReceived(self, payload: bytes) -> None:
        """
        Called with each whole text message, which is valid UTF-8.
        """

    def binaryReceived(self, payload: bytes) -> None:
        """
        Called with each whole binary message.
        """

    def sendText(self, payload: bytes) -> None:
        """
        Send one text message, if the connection is open.
        """
        if self.state != OPEN:
            return
        deflate = self._perMessageCompress
        if deflate is not None and self.factory.deflateAbove <= len(payload) <= MAX_DEFLATED_BYTES:
            # Not sendMessage, which applies the limit of received messages to sent ones.
            self.sendFrame(opcode=1, payload=self.factory.deflated(payload, deflate), rsv=4)
        elif self._longest < 0 or self.send_queue:
            self.sendFrame(opcode=1, payload=payload)
        else:
            self.outlet.write(self.factory.framed(payload))

    def connectionMade(self) -> None:
        self.outlet = self.factory.make_outlet(self.transport)
        super().connectionMade()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        left = self.leave_port()
        if left:
            self.take_data(left)
        if self._backlog is not None:
            self._backlog.end(reason)
            return
        super().connectionLost(reason)
        self._ended()
        self.outlet.drop()

    def _onOpen(self) -> None:
        # The options are settled now, and stay.
        options: Any = self
        plain = self._perMessageCompress is None and options.applyMask and not options.maskServerFrames
        if self.fast_path and plain and not (options.logOctets or options.logFrames or options.trackTimings):
            limits = (options.maxFramePayloadSize, options.maxMessagePayloadSize)
            self._longest = min((limit for limit in limits if limit > 0), default=2**63 - 1)
        if self._perMessageCompress is not None:
            self.utf8validator = Validator()
        super()._onOpen()

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        # Texts come this way too: fragments, those that follow a ping in one read,
        # and those between our Close and the peer's.
        if isBinary:
            self.binaryReceived(payload)
        else:
            self.textReceived(payload)

    def dataReceived(self, data: bytes) -> None:
        if self.port is None:
            self.take_data(data)
        else:
            self.port.feed(data)

    def take_data(self, data: bytes) -> None:
        """
        Handle bytes that are not the data plane's.
        """
        if self._backlog is not None:
            self._backlog.add(data)
            return
        left = self.carry(data)
        if left is not None:
            self._backlog = Backlog(left, self, self.factory.slices, self.worked_off)

    def carry(self, data: bytes) -> bytes | None:
        """
        Handle the frames in `data`, up to the limit of one turn; return the rest, except bytes for Autobahn.
        """
        self._more = False
        with self.factory.cork:
            kept = self._kept
            if kept:
                # In every state Autobahn must find the frame boundaries.
                data = kept + data
                self._kept = b""
            if self._longest >= 0 and self.state == OPEN:
                if self.current_frame is not None:
                    # Only the rest of this frame, else one ping would keep a busy stream off
                    # the fast path until a read ends with a whole frame.
                    missing = self.current_frame.length - self.current_frame_masker.pointer()
                    self._pass_on(data[:missing])
                    data = data[missing:]
                if self.state == OPEN and not (self.data or self.current_frame or self.inside_message):
                    data = self._walk(data)
                    if kept and not self._kept:
                        self._ended()
                    if self._more:
                        return data
            if data or self.data:
                self._pass_on(data)
        return b"" if self._more else None

    def settled(self) -> Deferred[None] | None:
        """
        Fires when more frames may be handled; None: now.
        """
        return None

    @property
    def longest(self) -> int:
        """
        Bytes of payload that the lane carries at most; -1: the lane is off.
        """
        return self._longest

    @property
    def at_border(self) -> bool:
        """
        Does the input stand where a message begins, which the data plane may read?
        """
        return (
            self._longest >= 0
            and self.state == OPEN
            and self._backlog is None
            and not (self._kept or self.data or self.current_frame or self.inside_message)
        )

    def carry_message(self, payload: bytes) -> None:
        """
        One whole text message, as the data plane has read it.
        """
        self.factory.cork.begin_read()
        self.heard()
        self.textReceived(payload)

    def heard(self) -> None:
        """
        The client is there.
        """
        if self.autoPingTimeoutCall and self.autoPingRestartOnAnyTraffic:
            self._cancelAutoPingTimeoutCall()

    def _sendAutoPing(self) -> None:
        super()._sendAutoPing()
        if self.port is not None:
            self.port.watch()

    def onPing(self, payload: bytes) -> None:
        # The pongs to a client that does not read would use memory without limit.
        if not self.outlet.stalled:
            super().onPing(payload)

    def onMessageFrameData(self, payload: bytes) -> None:
        super().onMessageFrameData(payload)
        gather(self.frame_data)

    def onMessageEnd(self) -> None:
        super().onMessageEnd()
        self._ended()

    def _measure(self) -> None:
        """
        Count the bytes that Autobahn has of an unfinished message.
        """
        size = len(self.data)
        for parts in (self.frame_data, self.message_data):
            if parts:
                size += sum(map(len, parts))
        if size or self.inside_message:
            self._grow(size)
        else:
            self._ended()

    def _grow(self, size: int) -> None:
        partial_input = self.factory.partial_input
        if partial_input is not None:
            partial_input.grow(self, size, self.peer)

    def _ended(self) -> None:
        partial_input = self.factory.partial_input
        if partial_input is not None:
            partial_input.done(self)

    def cut_short(self, why: Closing) -> None:
        """
        Close the connection: the unfinished message takes too long, or too much memory.
        """
        if self.port is not None:
            self.port.discard()
        self._kept = self.data = b""
        self.failedByMe = True  # Autobahn buffers no more of it
        self.frame_data, self.message_data = [], []
        self.turn_away(why)

    def turn_away(self, why: Closing) -> None:
        """
        Close the connection with this reason.
        """
        raise NotImplementedError

    def onMessageFrame(self, payload: list[bytes]) -> None:
        super().onMessageFrame(payload)
        gather(self.message_data)

    def consumeData(self) -> None:
        """
        Autobahn's method, with a limit for one turn of the event loop.
        """
        if self.state not in (OPEN, CLOSING):
            super().consumeData()
            return
        self._inflated = 0
        deflate = self._perMessageCompress is not None
        for _ in STEPS:
            if deflate and self.data and (self._inflated > MAX_INFLATED_BYTES or self.overdrawn()):
                break
            if not self.processData() or self.state == CLOSED:
                return
        self._more = True

    def onFrameData(self, payload: bytes) -> Any:
        if self._perMessageCompress is None or self.current_frame.opcode > 7 or not self._isMessageCompressed:
            return super().onFrameData(payload)
        # Autobahn adds to the total the difference between inflated and compressed bytes.
        before, used = self.message_data_total_length, len(payload)
        proceeds = super().onFrameData(payload)
        size = self.message_data_total_length - before + used
        self._inflated += size
        self.inflated(size)
        return proceeds

    def inflated(self, size: int) -> None:
        """
        Count bytes that compressed messages inflated to.
        """

    def overdrawn(self) -> bool:
        """
        Did messages inflate to so many bytes that the rest must wait?
        """
        return False

    def _pass_on(self, data: bytes) -> None:
        """
        Give data to Autobahn, after the answers to messages before it are written.
        """
        self.outlet.flush()
        super().dataReceived(data)
        self._measure()

    def _walk(self, data: bytes) -> bytes:
        """
        Deliver the frames that the fast path can handle; return the rest, which is for Autobahn.
        """
        at, end = 0, len(data)
        for _ in FRAMES:
            if at == end:
                return b""
            body, stop = self._span(data, at)
            if not stop:
                return data[at:]
            if stop > end:
                if at:
                    self._ended()  # the unfinished frame is another one
                return self._keep(data[at:], body - at)
            payload = unmasked(data[body - 4 : body], data[body:stop])
            if not (payload.isascii() or is_text(payload, whole=True)):
                return data[at:]
            at = stop
            if self.autoPingTimeoutCall and self.autoPingRestartOnAnyTraffic:
                self._cancelAutoPingTimeoutCall()
            self.textReceived(payload)
            if self.state != OPEN:
                return data[at:]
        self._more = at < end
        return data[at:]

    def _span(self, data: bytes, at: int) -> tuple[int, int]:
        """
        Returns where the payload of the frame at `at` begins and ends; zeros if it is not for the fast path.

        While the length itself is incomplete the end is past the data.
        """
        come = len(data) - at
        body = at + 6
        if data[at] != FINAL_TEXT:
            return 0, 0
        if come < 2:
            return body, body
        size = data[at + 1] - MASKED
        if size == 126:
            body += 2
            if come < 4:
                return body, body
            size = data[at + 2] << 8 | data[at + 3]
            if size < 126:
                return 0, 0
        elif not 0 <= size < 126:
            # Not masked, or so long that it would not fit in one read.
            return 0, 0
        return (body, body + size) if size <= self._longest else (0, 0)

    def _keep(self, part: bytes, body: int) -> bytes:
        """
        Buffer the beginning of a frame until the rest comes; return it if the frame is for Autobahn.
        """
        # Autobahn fails at the first bad byte, also in a frame that has not ended.
        if len(part) > KEPT_BYTES or not is_text(unmasked(part[body - 4 : body], part[body:]), whole=False):
            return part
        self._kept = part
        self._grow(len(part))
        return b""

    def sendData(self, data: bytes, sync: bool = False, chopsize: int | None = None) -> None:
        # A pong or a Close must not overtake an answer.
        self.outlet.push()
        self.factory.cork.settle()
        super().sendData(data, sync, chopsize)
        if self.port is not None:
            self.port.set_direct(False)  # the transport may have a part of it left

    def _fail_connection(self, code: int = 1001, reason: str = "going away") -> None:
        if not self.failedByMe:
            self.factory.faults[fault_of(code)] += 1
        super()._fail_connection(code, reason)

    def _closeConnection(self, abort: bool = False) -> None:
        # Data written to a TLS transport after loseConnection is lost.
        self.outlet.push()
        if self.port is not None:
            self.port.close()
        super()._closeConnection(abort)


class FastPathFactory(WebSocketServerFactory):
    """
    The factory of the connections of one listener, with the data that they share.
    """

    protocol: Any = FastPathProtocol
    deflateAbove = 1024  # bytes; a shorter text is not compressed
    partial_input: PartialInput | None = None  # None: unfinished messages are not counted

    def __init__(
        self,
        cork: Cork,
        reactor: Any,
        slices: Slices | None = None,
        faults: Counter[str] | None = None,
    ) -> None:
        super().__init__(reactor=reactor)
        self.setProtocolOptions(echoCloseCodeReason=True)
        self.faults = Counter() if faults is None else faults
        self._peer_log = PeerLog(self.faults)
        # Autobahn's own timers truncate to whole seconds, so that one second
        # may mean none, and take the reactor from a global.
        self._batched_timer = SimpleNamespace(call_later=reactor.callLater)
        self.cork = cork
        self.slices = slices or Slices(reactor)
        self._options: list[Any] = []
        self._payload = b""
        self._frame = text_frame(b"")
        self._inflated = b""
        self._deflated: dict[Any, bytes] = {}

    def make_outlet(self, transport: Any) -> Outlet:
        """
        The outlet of a new connection.
        """
        return Outlet(transport, self.cork)

    def buildProtocol(self, addr: Any) -> Any:
        """
        A connection whose options are its class's.

        Autobahn copies three dozen of them into each, and formats them for a
        debug log line: half the time of a new connection.
        """
        names = [name for name in WebSocketServerProtocol.CONFIG_ATTRS if not hasattr(FastPathProtocol, name)]
        options = [self.protocol, *(getattr(self, name) for name in names)]
        if options != self._options:
            self._options = options
            settled = {name: _as_attribute(getattr(self, name)) for name in names}
            settled |= {"CONFIG_ATTRS": (), "log": self._peer_log}
            self._settled = type(self.protocol.__name__, (self.protocol,), settled)
        connection = self._settled()
        connection.factory = self
        return connection

    def deflated(self, payload: bytes, deflate: Any) -> bytes:
        """
        Returns the compressed payload; the last one is cached, for recipients with the same options.
        """
        if not deflate.server_no_context_takeover:
            deflate.start_compress_message()
            short: bytes = deflate.compress_message_data(payload) + deflate.end_compress_message()
            return short
        if payload is not self._inflated:
            self._inflated = payload
            self._deflated.clear()
        options = deflate.server_max_window_bits, deflate.mem_level
        if options not in self._deflated:
            deflate.start_compress_message()
            short = deflate.compress_message_data(payload) + deflate.end_compress_message()
            self._deflated[options] = short
        return self._deflated[options]

    def framed(self, payload: bytes) -> bytes:
        """
        Returns the payload as a frame; the last one is cached, for a message with many recipients.
        """
        if payload is not self._payload:
            self._payload = payload
            self._frame = text_frame(payload)
        return self._frame


def _as_attribute(option: Any) -> Any:
    # A function would become a method of the class.
    return staticmethod(option) if callable(option) else option
