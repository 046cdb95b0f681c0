"""
TCP lines, for devices and network servers: one JSON object per line.

The handshake is that of WebSocket.  A line ends with LF or CRLF; a line that is
too long is skipped to its end, and the connection stays open.
"""

from contextlib import suppress
from typing import Any

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IHandshakeListener, IReactorTime
from twisted.internet.protocol import Protocol, ServerFactory, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from msgnode.connectors.flow_control import PausedByTransport
from msgnode.node import Node
from msgnode.protocol.close_codes import Closing
from msgnode.protocol.errors import error_body
from msgnode.protocol.message import compose
from msgnode.protocol.peer_address import peer_host, peer_name
from msgnode.sessions.session import Connection, Session
from msgnode.structures.time_slices import MESSAGES
from msgnode.transport.cork import Cork, Outlet
from msgnode.transport.native_ports import PortOutlet, may_have_port
from msgnode.transport.read_backlog import Backlog, Reading
from msgnode.transport.sockets import RejectedConnection, limit_read_size, verified_name

VALIDATOR = "mn:/validator"
ABORT_SECONDS = 5  # for a client to read the close reason


@implementer(IHandshakeListener)
class LineConnection(PausedByTransport, Reading, Protocol):
    """
    A client connected by TCP lines; a Connection of session.py.
    """

    connector = "line"
    identity = ""  # from the client certificate
    bearer = ""  # a line has no header; the token is in `open`
    acks_by_request = False
    factory: "LineFactory"
    transport: Any
    session: Session | None = None
    write_paused = False
    _begun: bytearray | None = None  # an unfinished line; parts of one byte cost no more memory
    _skipping = False  # the rest of a line that is too long is skipped
    _losing = False
    _abort: IDelayedCall | None = None

    def connectionMade(self) -> None:
        transport = self.transport
        self.peer = peer_name(transport.getPeer())
        self._outlet = self.factory.make_outlet(transport)
        for option in ("setTcpNoDelay", "setTcpKeepAlive"):
            with suppress(AttributeError, OSError):  # a UNIX socket has neither option
                getattr(transport, option)(True)
        limit_read_size(transport)
        self._outlet.pace(self)
        self.factory.node.sessions.connections.made(self)
        if not self._losing:
            self.factory.open_port(self, self._outlet)

    def handshakeCompleted(self) -> None:
        self.identity = verified_name(self.transport)

    def dataReceived(self, data: bytes) -> None:
        if self.port is None:
            self.take_data(data)
        else:
            self.port.feed(data)

    def take_data(self, data: bytes) -> None:
        """
        Handle bytes that are not the data plane's.
        """
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
        Handle the lines in `data`, up to the limit of one turn; return the rest for the next turn.
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

    @property
    def at_border(self) -> bool:
        """
        Does the input stand where a line begins, which the data plane may read?
        """
        return self._begun is None and not self._skipping and self._backlog is None and not self._losing

    def carry_message(self, data: bytes) -> None:
        """
        One line, as the data plane has read it.
        """
        if not self._losing:
            self.factory.node.receive(data, self)

    def heard(self) -> None:
        """
        Never called: no line is awaited.
        """

    def _first(self, end: bytes) -> None:
        """
        Handle the end of a line that earlier reads began.
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
        Buffer the beginning of a line, or skip it once it is too long.
        """
        if self._skipping:
            return
        if self._begun is None:
            self._begun = bytearray()
        self._begun += part
        if len(self._begun) <= self.factory.longest + 1:  # the last byte may be a CR
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
        Close the connection: the unfinished line takes too long, or too much memory.
        """
        if self.port is not None:
            self.port.discard()
        self._begun = None
        self.factory.node.sessions.connections.close(self, why)

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
        left = self.leave_port()
        if left and self._losing:
            self._begun = bytearray(left.rpartition(b"\n")[2])  # no more than Python would have
        elif left:
            self.take_data(left)
        if self._backlog is not None:
            self._backlog.end(reason)
            return
        self._losing = True
        if self._abort is not None and self._abort.active():
            self._abort.cancel()
        if self._begun:  # an incomplete line cannot be decoded
            self.factory.node.counts.unreadable += 1
            self._end_partial()
        self._outlet.drop()
        self.factory.node.sessions.connections.lost(self)

    # -- Connection ----------------------------------------------------------

    def send(self, data: bytes) -> None:
        if not self._losing:
            factory = self.factory
            self._outlet.write(factory.last if data is factory.data else factory.line(data))

    def outbox_ready(self) -> None:
        """
        Never called: a line connection has no implicit acknowledgements.
        """

    def lose(self, why: Closing) -> None:
        if self._losing:
            return
        body: dict[str, int | str | float] = {"code": why.code, "reason": why.word}
        if why.retry_after is not None:
            body["retry_after"] = why.retry_after
        if why.node:
            body["node"] = why.node
        self.send(msgspec.json.encode({"type": "close", "from": "mn:/session", "body": body}))
        self._outlet.push()
        self._losing = True
        if self.port is not None:
            self.port.close()
        self._outlet.close()
        # A client that does not read would keep the connection and the unsent bytes for ever.
        self._abort = self.factory.clock.callLater(ABORT_SECONDS, self.transport.abortConnection)

    def abort(self) -> None:
        self._losing = True
        self._outlet.forget()
        if self.port is not None:
            self.port.close()
        self.transport.abortConnection()

    def report_undecodable(self, text: str, code: int) -> None:
        runtime = self.session.runtime if self.session is not None else None
        body = error_body(code, text)
        refusal = compose(None, "response", VALIDATOR, runtime, body)
        if self.session is not None:
            self.session.answer(refusal, self)
        else:
            self.factory.node.sessions.connections.send_or_close(self, refusal.data)

    def paused_connection(self) -> Connection:
        return self


class LineFactory(ServerFactory):
    """
    The factory of the connections of the line listeners.
    """

    protocol: Any = LineConnection
    noisy = False

    def __init__(self, node: Node, cork: Cork, clock: IReactorTime) -> None:
        self.node = node
        self.cork = cork
        self.clock = clock
        self.data = self.last = b""
        self.longest = 0
        self.apply()

    def apply(self) -> None:
        """
        Use the reloaded configuration.
        """
        before, self.longest = self.longest, self.node.config.limits.message_bytes
        if before != self.longest:  # it is one of all lines, those of open connections too
            self.node.data_plane.release(lambda connection: isinstance(connection, LineConnection))

    def make_outlet(self, transport: Any) -> Outlet:
        plane = self.node.data_plane
        if plane.is_native and may_have_port(transport):
            return PortOutlet(transport, self.cork)
        return Outlet(transport, self.cork)

    def open_port(self, connection: LineConnection, outlet: Outlet) -> None:
        """
        Let the data plane read the connection, where there is one and it can.
        """
        if isinstance(outlet, PortOutlet):
            host = peer_host(connection.peer, self.node.config.trusted_proxies)
            self.node.data_plane.open_port(connection, outlet, "lines", self.longest, host)

    def line(self, data: bytes) -> bytes:
        """
        Returns the data as a line; the last one is cached, for a message with many recipients.
        """
        if data is not self.data:
            self.data, self.last = data, data + b"\n"
        return self.last

    def buildProtocol(self, addr: Any) -> Any:
        if not self.node.connection_limits.may_accept(addr):
            return RejectedConnection()
        return super().buildProtocol(addr)
