"""
TCP lines, for devices and network servers: one JSON object a line.

The same handshake as on WebSocket.  A line ends with LF or CRLF; a line that
is too long is thrown away to its end, and the connection lives.
"""

from contextlib import suppress
from typing import Any

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IHandshakeListener, IPushProducer, IReactorTime
from twisted.internet.protocol import Protocol, ServerFactory, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from msgnode.node import Node
from msgnode.protocol.close_codes import Closing
from msgnode.protocol.errors import error_body
from msgnode.protocol.message import compose
from msgnode.protocol.peer_address import peer_name
from msgnode.sessions.session import Session
from msgnode.structures.time_slices import MESSAGES
from msgnode.transport.cork import Cork, Outlet
from msgnode.transport.read_backlog import Backlog, Reading
from msgnode.transport.sockets import RejectedConnection, limit_read_size, verified_name

VALIDATOR = "mn:/validator"
LAST_WORD = 5  # seconds for a client to read why it is closed


@implementer(IPushProducer, IHandshakeListener)
class LineConnection(Reading, Protocol):
    """
    One client that speaks in lines; a Connection of session.py.
    """

    connector = "line"
    identity = ""  # who the client is, by its certificate
    bearer = ""  # a line has no header; its token stands in `open`
    counted = False
    factory: "LineFactory"
    transport: Any
    session: Session | None = None
    full = False
    _begun: bytearray | None = None  # a line whose end has not come yet; parts of one byte cost nothing more
    _skipping = False  # in a line that is too long
    _losing = False
    _abort: IDelayedCall | None = None

    def connectionMade(self) -> None:
        transport = self.transport
        self.peer = peer_name(transport.getPeer())
        self._outlet = Outlet(transport, self.factory.cork)
        for option in ("setTcpNoDelay", "setTcpKeepAlive"):
            with suppress(AttributeError, OSError):  # a UNIX socket has neither
                getattr(transport, option)(True)
        limit_read_size(transport)
        self._outlet.pace(self)
        self.factory.node.sessions.arrived(self)

    def handshakeCompleted(self) -> None:
        self.identity = verified_name(self.transport)

    def dataReceived(self, data: bytes) -> None:
        if self._losing:
            return
        if self._backlog is not None:
            self._backlog.add(data)
            return
        if self.session is None:
            # In the PROXY protocol the client's address comes with its first bytes.
            self.peer = peer_name(self.transport.getPeer())
        left = self.carry(data)
        if left is not None:
            self._backlog = Backlog(left, self, self.factory.node.slices, self.worked_off)

    def carry(self, data: bytes) -> bytes | None:
        """
        Carry the lines in `data`, as many as one turn may have; what is left for the next.
        """
        lines = data.split(b"\n", MESSAGES)
        rest = lines.pop()
        many = len(lines) == MESSAGES and b"\n" in rest
        with self.factory.cork:
            if lines:
                self._first(lines[0])
                for line in lines[1:]:
                    self._line(line)
            if rest and not many:
                self._begin(rest)
        return rest if many and not self._losing else None

    def settled(self) -> Deferred[None] | None:
        return self.factory.node.input_order.settled(self)

    def _first(self, end: bytes) -> None:
        """
        The end of the line that earlier reads began.
        """
        if self._skipping:
            self._skipping = False
        elif self._begun:
            line = bytes(self._begun + end)
            self._end_partial()
            self._line(line)
        else:
            self._line(end)

    def _begin(self, part: bytes) -> None:
        """
        Keep the beginning of a line, or throw it away when no end could save it.
        """
        if self._skipping:
            return
        if self._begun is None:
            self._begun = bytearray()
        self._begun += part
        if len(self._begun) <= self.factory.longest + 1:  # a CR may be its last byte
            self.factory.node.partial_input.grow(self, len(self._begun), self.peer)
        else:
            begun = bytes(self._begun)
            self._end_partial()
            self._skipping = True
            self._too_long(begun)

    def _end_partial(self) -> None:
        self._begun = None
        self.factory.node.partial_input.done(self)

    def cut_short(self, why: Closing) -> None:
        """
        The line that has begun takes too long, or too much.
        """
        self._begun = None
        self.factory.node.sessions.part(self, why)

    def _line(self, line: bytes) -> None:
        if line.endswith(b"\r"):
            line = line[:-1]
        if len(line) > self.factory.longest:
            self._too_long(line)
            return
        if not line.isascii():
            try:
                line.decode()
            except UnicodeDecodeError as why:
                self.factory.node.reject_undecodable(line, f"not UTF-8 at byte {why.start}", self)
                return
        if line and not self._losing:
            self.factory.node.receive(line, self)

    def _too_long(self, line: bytes) -> None:
        text = f"a line has at most {self.factory.longest} bytes"
        self.factory.node.reject_undecodable(line, text, self, 413)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._backlog is not None:
            self._backlog.end(reason)
            return
        self._losing = True
        if self._abort is not None and self._abort.active():
            self._abort.cancel()
        if self._begun:  # half a line: nobody knows what it was to be
            self.factory.node.counts.unreadable += 1
            self._end_partial()
        self._outlet.drop()
        self.factory.node.sessions.lost(self)

    # -- Connection ----------------------------------------------------------

    def send(self, data: bytes) -> None:
        if not self._losing:
            factory = self.factory
            self._outlet.write(factory.last if data is factory.data else factory.line(data))

    def fetch(self) -> None:
        """
        Never called: nothing is counted by itself here.
        """

    def lose(self, why: Closing) -> None:
        if self._losing:
            return
        body: dict[str, int | str | float] = {"code": why.code, "reason": why.word}
        if why.retry_after is not None:
            body["retry_after"] = why.retry_after
        self.send(msgspec.json.encode({"type": "close", "from": "mn:/session", "body": body}))
        self._outlet.push()
        self._losing = True
        self.transport.loseConnection()
        # Who does not read would keep the connection, and what it did not read, for ever.
        self._abort = self.factory.clock.callLater(LAST_WORD, self.transport.abortConnection)

    def drop(self) -> None:
        self._losing = True
        self._outlet.forget()
        self.transport.abortConnection()

    def unreadable(self, text: str, code: int) -> None:
        runtime = self.session.runtime if self.session is not None else None
        body = error_body(code, text)
        refusal = compose(None, "response", VALIDATOR, runtime, body)
        if self.session is not None:
            self.session.answer(refusal, self)
        else:
            self.factory.node.sessions.tell(self, refusal.data)

    # -- IPushProducer: the transport says whether it takes more -------------

    def pauseProducing(self) -> None:
        self.factory.node.sessions.paused(self)

    def resumeProducing(self) -> None:
        self.factory.node.sessions.ready(self)

    def stopProducing(self) -> None:
        pass


class LineFactory(ServerFactory):
    """
    Makes the connections of the line listeners.
    """

    protocol: Any = LineConnection
    noisy = False

    def __init__(self, node: Node, cork: Cork, clock: IReactorTime) -> None:
        self.node = node
        self.cork = cork
        self.clock = clock
        self.data = self.last = b""
        self.apply()

    def apply(self) -> None:
        """
        The configuration may have changed.
        """
        self.longest = self.node.config.limits.message_bytes

    def line(self, data: bytes) -> bytes:
        """
        The data as a line, built once for all that it goes to in a row.
        """
        if data is not self.data:
            self.data, self.last = data, data + b"\n"
        return self.last

    def buildProtocol(self, addr: Any) -> Any:
        if not self.node.connection_limits.heard(addr):
            return RejectedConnection()
        return super().buildProtocol(addr)
