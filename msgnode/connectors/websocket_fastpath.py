"""
WebSocket, with a fast lane around Autobahn for the frames we mostly get.

Autobahn spends its time on per-frame objects and futures.  While a connection
is open, complete, masked, final text frames are walked here instead; whatever
else comes, from its first byte on, is Autobahn's: the handshake, control
frames, fragments, extensions, closing, and every verdict on a bad frame.
Nobody can tell the difference but by the clock.

The lane keeps no traffic statistics, fires no "message" event and calls no
frame-level hook (onMessageBegin and so on).  Octet and frame logs and timings,
where they are on when a connection opens, turn the lane off for it.
"""

from codecs import utf_8_decode
from collections import Counter
from types import SimpleNamespace
from typing import Any

from autobahn.twisted.websocket import WebSocketServerFactory, WebSocketServerProtocol
from autobahn.websocket import USES_NVX
from autobahn.websocket.xormasker import create_xor_masker
from twisted.internet.defer import Deferred
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure

from msgnode.connectors.peer_faults import PeerLog, fault_of
from msgnode.protocol.close_codes import Closing
from msgnode.sessions.limits.partial_input import PartialInput
from msgnode.structures.time_slices import MESSAGES, Slices
from msgnode.transport.cork import Cork, Outlet
from msgnode.transport.read_backlog import Backlog, Reading

OPEN = WebSocketServerProtocol.STATE_OPEN
CLOSING, CLOSED = WebSocketServerProtocol.STATE_CLOSING, WebSocketServerProtocol.STATE_CLOSED
FINAL_TEXT = 0x81
MASKED = 0x80

# Of one turn of the event loop; Autobahn takes a step for a frame's header and one for its payload.
FRAMES, STEPS = range(MESSAGES), range(2 * MESSAGES)

# Bytes that come out of compressed messages in one turn, but for the last one; and of one that is compressed.
MAX_INFLATED, MAX_DEFLATED = 1024 * 1024, 256 * 1024

PARTS = 64  # of an unfinished message, each with its own memory

# Bytes of an unfinished frame that may wait here; each read copies them once more.
KEPT = 16 * 1024

# Numbers that repeat 1 in so many four-byte words: one of them times the mask is
# the whole key.  From 2 kB on Autobahn's native masker is as fast.
REPEATED = [int.from_bytes(b"\1\0\0\0" * words, "little") for words in range(2048 // 4)]


def unmasked(mask: bytes, payload: bytes) -> bytes:
    """
    The payload with its four-byte mask taken off.
    """
    size = len(payload)
    words = (size + 3) >> 2
    if words < len(REPEATED):
        key = int.from_bytes(mask, "little") * REPEATED[words]
    elif USES_NVX:
        return bytes(create_xor_masker(mask, size).process(payload))
    else:
        key = int.from_bytes(mask * words, "little")
    return (int.from_bytes(payload, "little") ^ key).to_bytes(words << 2, "little")[:size]


def text_frame(payload: bytes) -> bytes:
    """
    One unfragmented, unmasked text frame.
    """
    size = len(payload)
    if size < 126:
        return bytes((FINAL_TEXT, size)) + payload
    if size < 65536:
        return b"\x81\x7e" + size.to_bytes(2, "big") + payload
    return b"\x81\x7f" + size.to_bytes(8, "big") + payload


def is_text(payload: bytes, whole: bool) -> bool:
    """
    Is payload valid UTF-8, or the beginning of it?
    """
    try:
        used = utf_8_decode(payload, "strict", whole)[1]
    except UnicodeDecodeError:
        return False
    # Python lets the first half of a surrogate wait for the second.
    return not b"\xed\xa0" <= payload[used:] <= b"\xed\xbf"


class Validator:
    """
    A check for UTF-8, as Autobahn's own, but quick with the megabytes that come out of a compressed frame.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._rest = b""
        self._total = 0

    def validate(self, data: bytes) -> tuple[bool, bool, int, int]:
        """
        Is it valid so far; does it end where a character does; up to where, here and in all.
        """
        before = self._total
        self._total += len(data)
        if not self._rest and data.isascii():
            return True, True, len(data), self._total
        whole = self._rest + data
        used, bad = _valid_length(whole)
        if bad:
            used -= len(self._rest)
            return False, False, used, before + used
        self._rest = whole[used:]
        return True, not self._rest, len(data), self._total


def _valid_length(data: bytes) -> tuple[int, bool]:
    """
    How much of it is whole characters, and is what follows the beginning of none?
    """
    try:
        used = utf_8_decode(data, "strict", False)[1]
    except UnicodeDecodeError as why:
        return why.start, True
    # Python lets the first half of a surrogate wait for the second.
    return used, b"\xed\xa0" <= data[used:] <= b"\xed\xbf"


def gather(parts: list[Any] | None) -> None:
    """
    Make one of many parts of a frame or a message: a part of one byte takes forty.
    """
    if parts is not None and len(parts) > PARTS:
        whole = parts[0] if isinstance(parts[0], bytearray) else bytearray(parts[0])
        for part in parts[1:]:
            whole += part
        parts[:] = [whole]


class LaneProtocol(Reading, WebSocketServerProtocol):
    """
    One WebSocket connection; subclasses say what a message means.
    """

    lane = True  # False: Autobahn alone, to compare with
    tcpNoDelay = True  # here, because Autobahn reads the factory's when it is too late

    factory: "LaneFactory"
    outlet: Outlet

    _kept = b""  # the beginning of a frame whose end has not come yet
    frame_data: list[Any] | None = None  # what Autobahn has of a message whose end has not come
    message_data: list[Any] | None = None
    inside_message = False
    _inflated = 0  # bytes that came out of compressed messages in this turn
    _more = False  # there are more frames than one turn may have
    _longest = -1  # bytes of payload that the lane takes; -1: the lane is off

    def textReceived(self, payload: bytes) -> None:
        """
        One whole text message has come; it is valid UTF-8.
        """

    def binaryReceived(self, payload: bytes) -> None:
        """
        One whole binary message has come.
        """

    def sendText(self, payload: bytes) -> None:
        """
        Send one text message; nothing happens unless the connection is open.
        """
        if self.state != OPEN:
            return
        deflate = self._perMessageCompress
        if deflate is not None and self.factory.deflateAbove <= len(payload) <= MAX_DEFLATED:
            # Not sendMessage, which holds what we send to the limit on what we hear.
            self.sendFrame(opcode=1, payload=self.factory.deflated(payload, deflate), rsv=4)
        elif self._longest < 0 or self.send_queue:
            self.sendFrame(opcode=1, payload=payload)
        else:
            self.outlet.write(self.factory.framed(payload))

    def connectionMade(self) -> None:
        self.outlet = Outlet(self.transport, self.factory.cork)
        super().connectionMade()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
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
        if self.lane and plain and not (options.logOctets or options.logFrames or options.trackTimings):
            limits = (options.maxFramePayloadSize, options.maxMessagePayloadSize)
            self._longest = min((limit for limit in limits if limit > 0), default=2**63 - 1)
        if self._perMessageCompress is not None:
            self.utf8validator = Validator()
        super()._onOpen()

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        # Texts come this way too: fragments, what follows a ping in one read,
        # and what comes between our Close and the peer's.
        if isBinary:
            self.binaryReceived(payload)
        else:
            self.textReceived(payload)

    def dataReceived(self, data: bytes) -> None:
        if self._backlog is not None:
            self._backlog.add(data)
            return
        left = self.carry(data)
        if left is not None:
            self._backlog = Backlog(left, self, self.factory.slices, self.worked_off)

    def carry(self, data: bytes) -> bytes | None:
        """
        Carry the frames in `data`, as many as one turn may have; what is left, beside what Autobahn has.
        """
        self._more = False
        with self.factory.cork:
            kept = self._kept
            if kept:
                # Whatever the state: Autobahn must find the frames' borders.
                data = kept + data
                self._kept = b""
            if self._longest >= 0 and self.state == OPEN:
                if self.current_frame is not None:
                    # Alone, else one ping would keep a busy stream off the lane
                    # until a read ends where a frame does.
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
        What must come to its end before more is carried.
        """
        return None

    def onPing(self, payload: bytes) -> None:
        # Who does not read would be written pongs without end.
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
        Say how much Autobahn keeps of what has not ended.
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
        The message that has begun takes too long, or too much.
        """
        self._kept = self.data = b""
        self.failedByMe = True  # Autobahn keeps nothing more of it
        self.frame_data, self.message_data = [], []
        self.turn_away(why)

    def turn_away(self, why: Closing) -> None:
        """
        Close, and say why.
        """
        raise NotImplementedError

    def onMessageFrame(self, payload: list[bytes]) -> None:
        super().onMessageFrame(payload)
        gather(self.message_data)

    def consumeData(self) -> None:
        """
        Autobahn's own, but for a frame there are two steps, and for a turn so many frames.
        """
        if self.state not in (OPEN, CLOSING):
            super().consumeData()
            return
        self._inflated = 0
        deflate = self._perMessageCompress is not None
        for _ in STEPS:
            if deflate and self.data and (self._inflated > MAX_INFLATED or self.overdrawn()):
                break
            if not self.processData() or self.state == CLOSED:
                return
        self._more = True

    def onFrameData(self, payload: bytes) -> Any:
        if self._perMessageCompress is None or self.current_frame.opcode > 7 or not self._isMessageCompressed:
            return super().onFrameData(payload)
        # Autobahn adds to the total what comes out and was not there before.
        before, used = self.message_data_total_length, len(payload)
        proceeds = super().onFrameData(payload)
        size = self.message_data_total_length - before + used
        self._inflated += size
        self.inflated(size)
        return proceeds

    def inflated(self, size: int) -> None:
        """
        So many bytes came out of what is compressed.
        """

    def overdrawn(self) -> bool:
        """
        Is that too much, so that the rest must wait?
        """
        return False

    def _pass_on(self, data: bytes) -> None:
        """
        Give data to Autobahn, after what was answered before it.
        """
        self.outlet.flush()
        super().dataReceived(data)
        self._measure()

    def _walk(self, data: bytes) -> bytes:
        """
        Deliver the frames that the lane may take; return what is Autobahn's.
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
                    self._ended()  # another one
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
        Where the payload of the frame at `at` begins and ends; zeros if the frame is not for the lane.

        The end is past the data's while not even the length has come.
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
        Keep the beginning of a frame until more has come; return it if it is Autobahn's after all.
        """
        # Autobahn fails at the first bad byte, also in a frame that has not ended.
        if len(part) > KEPT or not is_text(unmasked(part[body - 4 : body], part[body:]), whole=False):
            return part
        self._kept = part
        self._grow(len(part))
        return b""

    def sendData(self, data: bytes, sync: bool = False, chopsize: int | None = None) -> None:
        # A pong or a Close must not overtake an answer.
        self.outlet.push()
        self.factory.cork.settle()
        super().sendData(data, sync, chopsize)

    def _fail_connection(self, code: int = 1001, reason: str = "going away") -> None:
        if not self.failedByMe:
            self.factory.faults[fault_of(code)] += 1
        super()._fail_connection(code, reason)

    def _closeConnection(self, abort: bool = False) -> None:
        # Data written after a TLS transport has been told to close is lost.
        self.outlet.push()
        super()._closeConnection(abort)


class LaneFactory(WebSocketServerFactory):
    """
    Makes the connections of one listener, and what they share.
    """

    protocol: Any = LaneProtocol
    deflateAbove = 1024  # bytes; a shorter text goes out as it is
    partial_input: PartialInput | None = None  # None: nobody counts what has begun to come

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

    def buildProtocol(self, addr: Any) -> Any:
        """
        A connection whose options are its class's.

        Autobahn copies three dozen of them into each, and formats them for a
        log line that nobody reads: half the time of a new connection.
        """
        names = [name for name in WebSocketServerProtocol.CONFIG_ATTRS if not hasattr(LaneProtocol, name)]
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
        The payload compressed, once for all that it goes to in a row with the same options.
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
        The payload as a frame, built once for all that it goes to in a row.
        """
        if payload is not self._payload:
            self._payload = payload
            self._frame = text_frame(payload)
        return self._frame


def _as_attribute(option: Any) -> Any:
    # A function would become a method of the class.
    return staticmethod(option) if callable(option) else option
