"""
Autobahn alone and the fast path, side by side, fed the same and compared after every step.

A script is a list of steps: ("read", bytes), ("act", what), ("wait", seconds)
or ("lost",).  What a peer does when its n-th message comes is in `reactions`.
"""

from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from msgnode.connectors.websocket_fastpath import FastPathFactory, FastPathProtocol
from msgnode.transport.cork import Cork

MASK = b"\x11\xa2\x33\xc4"
REQUEST = (
    b"GET /ws HTTP/1.1\r\nHost: example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n%s\r\n"
)
# What must be the same; `state` and so on are Autobahn's own.
COMPARED = (
    *("state", "messages", "closed", "send_queue", "autoPingPending"),
    *("wasClean", "wasNotCleanReason", "closedByMe", "failedByMe", "droppedByMe"),
    *("localCloseCode", "localCloseReason", "remoteCloseCode", "remoteCloseReason"),
    *("wasMaxFramePayloadSizeExceeded", "wasMaxMessagePayloadSizeExceeded"),
)


def xor(mask: bytes, payload: bytes) -> bytes:
    return bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def frame(
    payload: bytes = b"", first: int = 0x81, mask: bytes | None = MASK, form: int = 0, claim: int = -1
) -> bytes:
    """
    A client's frame; `form` 126 or 127 asks for a longer length than need be, `claim` for a false one.
    """
    size = len(payload) if claim < 0 else claim
    form = max(form, 127 if size > 65535 else 126 if size > 125 else 0)
    masked = 0 if mask is None else 0x80
    head = bytes((first, masked | (form or size)))
    if form:
        head += size.to_bytes(2 if form == 126 else 8, "big")
    return head + (payload if mask is None else mask + xor(mask, payload))


def close(code: int = 1000, reason: bytes = b"") -> bytes:
    return frame(code.to_bytes(2, "big") + reason, first=0x88)


def ping(payload: bytes = b"?") -> bytes:
    return frame(payload, first=0x89)


def pong(payload: bytes = b"!") -> bytes:
    return frame(payload, first=0x8A)


class Surprise(Exception):
    """
    What a faulty handler raises.
    """


class Wire(StringTransport):
    """
    Remembers what was written and asked of it, in order, however it was cut.
    """

    def __init__(self) -> None:
        super().__init__()
        self.out: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        if self.out and isinstance(self.out[-1], bytes):
            self.out[-1] += data
        else:
            self.out.append(data)

    def loseConnection(self) -> None:
        self.out.append("lose")

    def abortConnection(self) -> None:
        self.out.append("abort")

    def setTcpNoDelay(self, enabled: bool) -> None:
        pass

    def unregisterProducer(self) -> None:
        pass


class Peer(FastPathProtocol):
    """
    Notes what comes and does as it was told to.
    """

    autoPingPending: bytes | None

    def __init__(self) -> None:
        super().__init__()
        self.reactions: dict[int, str] = {}
        self.messages: list[tuple[str, bytes]] = []
        self.closed: list[Any] = []
        self.by_autobahn = 0

    def textReceived(self, payload: bytes) -> None:
        self._note("text", payload)

    def binaryReceived(self, payload: bytes) -> None:
        self._note("binary", payload)

    def _note(self, kind: str, payload: bytes) -> None:
        self.messages.append((kind, payload))
        for what in self.reactions.get(len(self.messages), "").split():
            self.act(what)

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        self.by_autobahn += 1
        super().onMessage(payload, isBinary)

    def onPong(self, payload: bytes) -> None:
        if payload == b"raw":  # a hook that goes past Autobahn
            self.transport.write(b"written raw")

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        self.closed.append((wasClean, code, reason))

    def act(self, what: str) -> None:
        if what == "answer":
            self.sendText(b"answer %d" % len(self.messages))
        elif what == "long":
            self.sendText(b"long " * 30000)
        elif what == "close":
            self.sendClose(3000, "enough")
        elif what == "ping":
            self.sendPing(b"are you there")
        elif what == "queue" and self.state == self.STATE_OPEN:
            self.sendMessage(b"queued", sync=True)
        elif what == "drain":
            while self.send_queue:
                self.transport.write(self.send_queue.popleft()[0])
        elif what in ("drop", "abort"):
            self.dropConnection(abort=what == "abort")
        elif what == "raise":
            raise Surprise(len(self.messages))

    def sendPing(self, payload: bytes | None = None) -> None:
        # An automatic ping is random; the two sides must send the same.
        if payload is not None and payload is self.autoPingPending:
            payload = self.autoPingPending = b"\0" * 8 + self.autoPingPendingSeq.to_bytes(4, "big")
        super().sendPing(payload)

    def _trigger(self) -> None:
        # Autobahn's queue would ask the global reactor for a later; "drain" is ours.
        pass


class Side:
    """
    One server connection, open, over a wire of its own.
    """

    def __init__(
        self,
        fast_path: bool,
        options: dict[str, Any] | None = None,
        reactions: dict[int, str] | None = None,
        offer: bytes = b"",
        cork: Cork | None = None,
    ) -> None:
        self.clock = Clock()
        self.factory = FastPathFactory(cork or Cork(), self.clock)
        self.factory.protocol = Peer
        self.factory.setProtocolOptions(allowNullOrigin=True, closeHandshakeTimeout=2)
        for name, value in (options or {}).items():
            setattr(self.factory, name, value)
        self.wire = Wire()
        self.peer: Any = self.factory.buildProtocol(None)
        self.peer.fast_path = fast_path
        self.peer.reactions = reactions or {}
        self.raised: list[str] = []
        self.over = False
        self.peer.makeConnection(self.wire)
        self.peer.dataReceived(REQUEST % offer)
        assert self.peer.state == Peer.STATE_OPEN
        self.wire.out.clear()

    def step(self, kind: str, *details: Any) -> None:
        if self.over:
            return
        try:
            if kind == "read":
                self.peer.dataReceived(*details)
            elif kind == "act":
                self.peer.act(*details)
            elif kind == "wait":
                self.clock.advance(*details)
            elif kind == "lost":
                self._lose(ConnectionDone())
        except Surprise as why:
            # As the reactor does with what dataReceived raises.
            self.raised.append(repr(why))
            self._lose(why)

    def _lose(self, why: Exception) -> None:
        self.over = True
        self.peer.connectionLost(Failure(why))

    def seen(self) -> dict[str, Any]:
        timers = [(call.getTime(), call.func.__name__) for call in self.clock.calls]
        facts = {name: getattr(self.peer, name) for name in COMPARED}
        return {**facts, "out": self.wire.out, "timers": sorted(timers), "raised": self.raised}


def compare(script: list[tuple], **how: Any) -> Side:
    """
    Run the script on both sides, compare after every step, and return the fast path's side.
    """
    plain, fast_path = Side(fast_path=False, **how), Side(fast_path=True, **how)
    for number, step in enumerate(script):
        plain.step(*step)
        fast_path.step(*step)
        expected, found = plain.seen(), fast_path.seen()
        if expected != found:
            wrong = {
                name: (expected[name], found[name]) for name in expected if expected[name] != found[name]
            }
            raise AssertionError(f"after step {number}, {step!r}: plain and fast_path differ in {wrong!r}")
    return fast_path


class Comparing(SynchronousTestCase):
    """
    Runs a script on both sides.
    """

    def same(self, script: list[tuple], fast_path: int | None = None, **how: Any) -> Side:
        """
        The script looks the same from outside, and so many of its messages went through the fast path.
        """
        side = compare(script, **how)
        if fast_path is not None:
            self.assertEqual(fast_path, len(side.peer.messages) - side.peer.by_autobahn)
        return side
