"""
WebSocket, for browsers and today's protostubs.

`/ws` has the handshake of mn:/session.  `/stub/connect` is for Matrix stubs:
the runtimeURL is in the query, which is not answered, or in a first frame
`{"cmd": "connect"}`.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from autobahn.websocket.compress import PerMessageDeflateOffer, PerMessageDeflateOfferAccept
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from msgnode.connectors.node_websocket import NodeWebSocket, NodeWebSocketFactory
from msgnode.protocol.close_codes import Closing
from msgnode.protocol.peer_address import peer_host
from msgnode.sessions.session import Connection, Session
from msgnode.transport.cork import Outlet
from msgnode.transport.native_ports import PortOutlet, may_have_port
from msgnode.transport.sockets import bearer, verified_name

SUBPROTOCOL = "msgnode"
CONNECTED = b'{"cmd":"connect","response":200,"data":{"msg":"connected"}}'
WRONG_COMMAND = (
    b'{"cmd":"connect","response":400,"data":{"msg":"expected connect with data.runtimeURL, or disconnect"}}'
)
MARGIN_SECONDS = 0.01  # so that rounding leaves no rest to wait for


class WebSocketConnection(NodeWebSocket):
    """
    One client on `/ws` or `/stub/connect`; a Connection of session.py.
    """

    connector = "websocket"
    identity = ""  # from the client certificate
    bearer = ""  # the token in its request
    acks_by_request = False
    factory: "WebSocketFactory"
    _receive: Callable[[bytes, Connection], None]  # Node.receive, from onOpen on
    session: Session | None = None
    write_paused = False
    _inflator = ""  # the account that inflated bytes are counted for
    is_stub = False  # on /stub/connect

    def onConnect(self, request: Any) -> str | None:
        self.check_origin(request)
        self.identity = verified_name(self.transport)
        if self.factory.node.config.identity.auth != "none":
            self.bearer = bearer(request.headers.get("authorization", ""), request.protocols)
        self.name_peer(request)
        return SUBPROTOCOL if SUBPROTOCOL in request.protocols else None

    def onOpen(self) -> None:
        node = self.factory.node
        uri = urlsplit(self.http_request_uri)
        self.take_over()
        self._receive = node.receive
        node.sessions.connections.made(self)
        if self.state != self.STATE_OPEN:
            return  # one too many
        self.factory.open_port(self)
        self.is_stub = uri.path.endswith("/stub/connect")
        if self.is_stub:
            runtime = parse_qs(uri.query).get("runtimeURL")
            if runtime:
                node.handshake.enter(runtime[0], self)

    def textReceived(self, payload: bytes) -> None:
        if self.is_stub and self._may_be_command(payload) and self._command(payload):
            return
        self._receive(payload, self)

    def _may_be_command(self, payload: bytes) -> bool:
        # Before it is connected, a stub sends only this command, in any spelling.
        return self.session is None or payload.startswith(b'{"cmd"')

    def _command(self, payload: bytes) -> bool:
        """
        Handle the frames of Matrix stubs: connect, and disconnect in both spellings.
        """
        try:
            frame = msgspec.json.decode(payload)
        except (msgspec.DecodeError, RecursionError):
            return False
        if not isinstance(frame, dict) or "cmd" not in frame:
            return False
        named = frame.get("data") or frame.get("body")
        runtime = named.get("runtimeURL") if isinstance(named, dict) else None
        if frame["cmd"] == "disconnect":
            self.factory.node.handshake.close(self)
        elif frame["cmd"] != "connect" or not isinstance(runtime, str):
            self.factory.node.sessions.connections.send(self, WRONG_COMMAND)
        elif self.session is None:
            self.factory.node.handshake.enter(runtime, self, CONNECTED)
        return True

    def turn_away(self, why: Closing) -> None:
        self.factory.node.sessions.connections.close(self, why)

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        self.factory.node.sessions.connections.lost(self, code or 0, reason or "")

    def paused_connection(self) -> Connection:
        return self

    # -- Connection ----------------------------------------------------------

    send = NodeWebSocket.sendText

    def outbox_ready(self) -> None:
        """
        Never called: a WebSocket has no implicit acknowledgements.
        """

    def lose(self, why: Closing) -> None:
        self.close_with(why)

    def settled(self) -> Deferred[None] | None:
        node = self.factory.node
        wait = node.inflation.wait(self._inflator) if self._inflator else 0.0
        if wait:
            node.inflation.pauses += 1
            return deferLater(self.factory.clock, wait + MARGIN_SECONDS)
        return node.input_order.settled(self)

    def inflated(self, size: int) -> None:
        inflation = self.factory.node.inflation
        self._inflator = self._inflator or inflation.who(self)
        inflation.count(size, self._inflator)

    def overdrawn(self) -> bool:
        inflation = self.factory.node.inflation
        self._inflator = self._inflator or inflation.who(self)
        return inflation.wait(self._inflator) > 0

    def report_undecodable(self, text: str, code: int) -> None:
        """
        Count the message, but send no error: a stub would pass it to its application.
        """


class WebSocketFactory(NodeWebSocketFactory):
    """
    The factory of the connections, with the options of the operator.
    """

    protocol = WebSocketConnection

    def make_outlet(self, transport: Any) -> Outlet:
        if self.node.data_plane.is_native and may_have_port(transport):
            return PortOutlet(transport, self.cork)
        return super().make_outlet(transport)

    def open_port(self, connection: WebSocketConnection) -> None:
        """
        Let the data plane read the connection, where there is one and it can.
        """
        outlet, longest = connection.outlet, connection.longest
        if isinstance(outlet, PortOutlet) and longest >= 0:
            host = peer_host(connection.peer, self.node.config.trusted_proxies)
            self.node.data_plane.open_port(connection, outlet, "websocket", longest, host)

    def apply(self) -> None:
        config = self.node.config
        self.cork.most = config.session.unsent_bytes
        options = config.websocket
        if options.compress_above_bytes:
            self.deflateAbove = options.compress_above_bytes
        self.set_options(
            config.limits.message_bytes,
            autoPingInterval=options.ping_seconds,
            autoPingTimeout=options.ping_seconds,
            perMessageCompressionAccept=_deflate if options.compress_above_bytes else _plain,
        )


def _plain(offers: list[Any]) -> None:
    """
    Accept no compression.
    """


def _deflate(offers: list[Any]) -> PerMessageDeflateOfferAccept | None:
    """
    Without context takeover: a context costs an idle connection ten times its memory.
    """
    for offer in offers:
        if isinstance(offer, PerMessageDeflateOffer):
            return PerMessageDeflateOfferAccept(
                offer, no_context_takeover=True, request_no_context_takeover=offer.accept_no_context_takeover
            )
    return None
