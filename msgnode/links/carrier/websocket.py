"""
WebSocket for links: sub-protocol `msgnode-link.1`, path `/link`, binary messages, by Autobahn.

There is no compression here: payloads are compressed by the streams, and compressing what several senders
say together would tell a listener about it (CRIME).
"""

import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any, Protocol

from autobahn.twisted.websocket import (
    WebSocketClientFactory,
    WebSocketClientProtocol,
    WebSocketServerFactory,
    WebSocketServerProtocol,
)
from autobahn.websocket.types import ConnectionDeny
from twisted.internet.interfaces import IDelayedCall, IHandshakeListener, IPushProducer
from twisted.internet.protocol import connectionDone
from twisted.protocols.policies import ProtocolWrapper
from twisted.python.failure import Failure
from zope.interface import implementer

from msgnode.links.carrier.connection import BATCH_BYTES, MAX_HELLO_BYTES, LinkConnection
from msgnode.links.carrier.link_table import LinkTable
from msgnode.links.carrier.wire import CLOSE_SECONDS, Refused, Wire
from msgnode.links.trust.credentials import presented_chain
from msgnode.links.wire.entries import PATH, SUB_PROTOCOL
from msgnode.protocol.peer_address import peer_host

# Nothing can overtake what the kernel holds, which may be megabytes.
NOTSENT_LOWAT_BYTES = 64 * 1024
NOTSENT_LOWAT = getattr(socket, "TCP_NOTSENT_LOWAT", 25 if sys.platform == "linux" else None)
BINARY = 2  # the opcode
OPTIONS: dict[str, Any] = {
    "failByDrop": False,
    "closeHandshakeTimeout": 0,  # Autobahn's timers outlive their connection
    "tcpNoDelay": True,
    "autoPingInterval": 0,
    "maxFramePayloadSize": MAX_HELLO_BYTES,
    "maxMessagePayloadSize": MAX_HELLO_BYTES,
}


class Connector(Protocol):
    """
    An owner of connections: the link table, or a check that makes no link.
    """

    def connect(self, wire: Wire, dialled: str = "", host: str = "") -> LinkConnection | None: ...
    def note(self, who: str, cause: str, text: str) -> None: ...


class LinkWebSocket:
    """
    A WebSocket of a link, at either end; a Wire. Mixed into Autobahn's protocols.
    """

    factory: Any
    transport: Any
    state: Any
    link_connection: LinkConnection | None = None
    _failure = ""  # why Autobahn failed the connection
    _aborting: IDelayedCall | None = None

    def connectionMade(self) -> None:
        super().connectionMade()  # type: ignore[misc]
        _limit_buffers(self.transport)
        host = getattr(self.transport.getPeer(), "host", "")
        connection = self.factory.table.connect(self, self.factory.dialled, peer_host(str(host)))
        if connection is None:
            self.transport.abortConnection()
            return
        self.link_connection = connection
        self.factory.made(connection)

    def onOpen(self) -> None:
        if self.link_connection is None:
            return
        self.transport.registerProducer(_Producer(self.link_connection), True)
        self.link_connection.opened(presented_chain(self.transport))

    # The two methods below are Autobahn's without the debug line that it formats for each read and write.

    def dataReceived(self, data: bytes) -> None:
        self._dataReceived(data)  # type: ignore[attr-defined]

    def sendData(self, data: bytes, sync: bool = False, chopsize: int | None = None) -> None:
        self.transport.write(data)

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        if self.link_connection is not None:
            # A text is no array of entries.
            self.link_connection.message_received(payload if isBinary else b"")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        super().connectionLost(reason)  # type: ignore[misc]
        if self._aborting is not None and self._aborting.active():
            self._aborting.cancel()
        if self.link_connection is not None:
            self.link_connection.lost(self._failure or reason.getErrorMessage())

    def sendCloseFrame(self, *args: Any, **more: Any) -> None:
        self._abort_later()
        super().sendCloseFrame(*args, **more)  # type: ignore[misc]

    def _abort_later(self) -> None:
        if self._aborting is None:
            self._aborting = self.factory.reactor.callLater(CLOSE_SECONDS, self.abort)

    def dropConnection(self, abort: bool = False) -> None:
        self._failure = self._failure or getattr(self, "wasNotCleanReason", None) or ""
        super().dropConnection(abort)  # type: ignore[misc]

    # -- Wire ------------------------------------------------------------------

    def send_message(self, message: bytes) -> None:
        # Not sendMessage, which applies the limit of received messages to sent ones.
        if self.state == WebSocketServerProtocol.STATE_OPEN:
            self.sendFrame(opcode=BINARY, payload=message)  # type: ignore[attr-defined]

    def set_limit(self, max_bytes: int) -> None:
        self.maxFramePayloadSize = self.maxMessagePayloadSize = max_bytes

    def pause_reading(self) -> None:
        self.transport.pauseProducing()

    def resume_reading(self) -> None:
        self.transport.resumeProducing()

    def lose(self) -> None:
        if self.state == WebSocketServerProtocol.STATE_OPEN:
            self.sendClose(1000)  # type: ignore[attr-defined]
        else:
            self._abort_later()
            self.transport.loseConnection()

    def abort(self) -> None:
        self.transport.abortConnection()


@implementer(IHandshakeListener)
class LinkServer(LinkWebSocket, WebSocketServerProtocol):
    """
    The end of a connection that another node dialled.
    """

    def handshakeCompleted(self) -> None:
        if self.link_connection is not None:
            self.link_connection.secured()

    def onConnect(self, request: Any) -> tuple[str, dict[str, str]]:
        if request.path != PATH:
            raise ConnectionDeny(404, f"expected the path {PATH}")
        if SUB_PROTOCOL not in request.protocols:
            raise ConnectionDeny(400, f"expected the sub-protocol {SUB_PROTOCOL}")
        # A peer compares its clock with it, as certificates end by the clock.
        return SUB_PROTOCOL, {"Date": formatdate(self.factory.table.wall(), usegmt=True)}


class LinkClient(LinkWebSocket, WebSocketClientProtocol):
    """
    The end of a connection that this node dialled.
    """

    def onConnect(self, response: Any) -> None:
        if response.protocol != SUB_PROTOCOL:
            self._failure = f"expected the sub-protocol {SUB_PROTOCOL}, found {response.protocol!r}"
            raise Refused(400, self._failure)

    def processHandshake(self) -> Any:
        # Autobahn sets no bound to the response of a server.
        if len(self.data) > MAX_HELLO_BYTES and b"\r\n\r\n" not in self.data[:MAX_HELLO_BYTES]:
            return self.failHandshake(f"expected a response of at most {MAX_HELLO_BYTES} bytes")
        return super().processHandshake()


@implementer(IPushProducer)
class _Producer:
    """
    A producer for the transport: the connection, paused while the transport is full.
    """

    def __init__(self, connection: LinkConnection) -> None:
        self._connection = connection

    def pauseProducing(self) -> None:
        self._connection.paused()

    def resumeProducing(self) -> None:
        self._connection.resumed()

    def stopProducing(self) -> None:
        """
        The end of the connection is notified by connectionLost.
        """


class ServerFactory(WebSocketServerFactory):
    """
    A factory of connections that other nodes dial.
    """

    noisy = False
    dialled = ""

    def __init__(self, table: LinkTable, reactor: Any) -> None:
        super().__init__(protocols=[SUB_PROTOCOL], reactor=reactor)
        self.table = table
        self._batched_timer = SimpleNamespace(call_later=reactor.callLater)
        self.setProtocolOptions(
            openHandshakeTimeout=0,  # the connection has its own, which includes the hello
            serveFlashSocketPolicy=False,
            webStatus=False,
            perMessageCompressionAccept=lambda offers: None,
            **OPTIONS,
        )

    def buildProtocol(self, addr: Any) -> LinkServer:
        built = LinkServer()
        built.factory = self
        built.log = FaultLog(self.table, str(getattr(addr, "host", "")))
        return built

    def made(self, connection: LinkConnection) -> None:
        """
        A connection has begun.
        """


class ClientFactory(WebSocketClientFactory):
    """
    A factory of connections to a domain. `made` gets each one when it begins.
    """

    noisy = False
    client = LinkClient

    def __init__(
        self, table: Connector, domain: str, url: str, made: Callable[[LinkConnection], None], reactor: Any
    ) -> None:
        super().__init__(url=url, protocols=[SUB_PROTOCOL], reactor=reactor)
        self.table = table
        self.dialled = domain
        self.made = made
        self._batched_timer = SimpleNamespace(call_later=reactor.callLater)
        self.setProtocolOptions(
            openHandshakeTimeout=0,
            serverConnectionDropTimeout=0,
            perMessageCompressionOffers=[],
            perMessageCompressionAccept=lambda response: None,
            **OPTIONS,
        )

    def buildProtocol(self, addr: Any) -> LinkClient:
        built = self.client()
        built.factory = self
        built.log = FaultLog(self.table, self.dialled)
        return built


class FaultLog:
    """
    A logger for Autobahn's connections: faults of the peer are counted, and logged once.
    """

    def __init__(self, table: Connector, peer: str) -> None:
        self._table = table
        self._peer = peer

    def trace(self, format: str, **fields: Any) -> None:
        pass

    debug = trace

    def info(self, format: str, **fields: Any) -> None:
        self._table.note(self._peer, "websocket", f"{fields.get('reason') or format}"[:300])

    warn = error = info


def _limit_buffers(transport: Any) -> None:
    """
    Bound what a read brings, and what waits below the queue of the link, where nothing can overtake.
    """
    while isinstance(transport, ProtocolWrapper):
        transport = transport.transport
    transport.bufferSize = BATCH_BYTES
    if NOTSENT_LOWAT is not None:
        with suppress(AttributeError, OSError):  # not TCP, or a system without it
            transport.getHandle().setsockopt(socket.IPPROTO_TCP, NOTSENT_LOWAT, NOTSENT_LOWAT_BYTES)
