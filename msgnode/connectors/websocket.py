"""
WebSocket: what browsers and today's protostubs connect with.

`/ws` speaks the handshake of mn:/session.  `/stub/connect` is the Matrix
stubs' way: the runtimeURL in the query, or in a first frame
`{"cmd": "connect"}`, and nothing is answered to the former.
"""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from autobahn.websocket.compress import PerMessageDeflateOffer, PerMessageDeflateOfferAccept
from autobahn.websocket.types import ConnectionDeny
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer, IReactorTime
from twisted.internet.task import deferLater
from zope.interface import implementer

from msgnode.connectors.websocket_fastpath import LaneFactory, LaneProtocol
from msgnode.node import Node
from msgnode.protocol.close_codes import Closing
from msgnode.sessions.session import Session
from msgnode.transport.cork import Cork
from msgnode.transport.sockets import bearer, verified_name

SUBPROTOCOL = "msgnode"
UNSUPPORTED = Closing(1003, "text only")
CONNECTED = b'{"cmd":"connect","response":200,"data":{"msg":"connected"}}'
WRONG_COMMAND = (
    b'{"cmd":"connect","response":400,"data":{"msg":"expected connect with data.runtimeURL, or disconnect"}}'
)
# Of a request nothing is needed once it is answered; a token stood in it, perhaps.
FORGOTTEN = (
    "http_request_data",
    "http_headers",
    "http_response_data",
    "http_request_params",
    "websocket_protocols",
)
MARGIN = 0.01  # seconds, so that rounding leaves nothing to wait for
CLOSE_HANDSHAKE = 5  # seconds for a client to answer our Close


@implementer(IPushProducer)
class WebSocketConnection(LaneProtocol):
    """
    One client on `/ws` or `/stub/connect`; a Connection of session.py.
    """

    connector = "websocket"
    identity = ""  # who the client is, by its certificate
    bearer = ""  # the token in its request
    counted = False
    factory: "WebSocketFactory"
    session: Session | None = None
    full = False
    _inflator = ""  # for whom what comes out of its compressed messages is counted
    is_stub = False  # on /stub/connect

    def onConnect(self, request: Any) -> str | None:
        config = self.factory.node.config
        # Not Autobahn's own check, which takes an origin for another once it adds the port.
        allowed = config.origins
        if request.origin and "*" not in allowed and request.origin not in allowed:
            raise ConnectionDeny(403, "this origin is not allowed")
        self.identity = verified_name(self.transport)
        if config.identity.auth != "none":
            self.bearer = bearer(request.headers.get("authorization", ""), request.protocols)
        forwarded = request.headers.get("x-forwarded-for", "")
        self.peer = self.factory.node.connection_limits.named(self.transport.getPeer(), forwarded)
        return SUBPROTOCOL if SUBPROTOCOL in request.protocols else None

    def onOpen(self) -> None:
        node = self.factory.node
        uri = urlsplit(self.http_request_uri)
        self._forget_request()
        # Reads and writes are ours from here on, no longer the HTTP channel's.
        self.transport.unregisterProducer()
        self.outlet.pace(self)
        self._receive = node.receive
        node.sessions.arrived(self)
        if self.state != self.STATE_OPEN:
            return  # one too many
        self.is_stub = uri.path.endswith("/stub/connect")
        if self.is_stub:
            runtime = parse_qs(uri.query).get("runtimeURL")
            if runtime:
                node.handshake.enter(runtime[0], self)

    def _forget_request(self) -> None:
        """
        Ten thousand idle clients need not keep their HTTP headers.
        """
        for name in FORGOTTEN:
            self.__dict__.pop(name, None)

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        # What comes after our Close comes too late: it has left its session.
        if self.state == self.STATE_OPEN:
            super().onMessage(payload, isBinary)

    def textReceived(self, payload: bytes) -> None:
        if self.is_stub and self._may_be_command(payload) and self._command(payload):
            return
        self._receive(payload, self)

    def _may_be_command(self, payload: bytes) -> bool:
        # Before it is connected a stub says nothing else, however it spells it.
        return self.session is None or payload.startswith(b'{"cmd"')

    def _command(self, payload: bytes) -> bool:
        """
        The Matrix stubs' own frames: connect, and disconnect in both spellings.
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
            self.factory.node.sessions.say(self, WRONG_COMMAND)
        elif self.session is None:
            self.factory.node.handshake.enter(runtime, self, CONNECTED)
        return True

    def turn_away(self, why: Closing) -> None:
        self.factory.node.sessions.part(self, why)

    def binaryReceived(self, payload: bytes) -> None:
        self.factory.node.sessions.part(self, UNSUPPORTED)

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        self.factory.node.sessions.lost(self)

    def sendCloseFrame(self, *args: Any, **kwargs: Any) -> None:
        super().sendCloseFrame(*args, **kwargs)
        # Nothing more can be sent: what comes from now on waits for the next connection.
        self.factory.node.sessions.leave(self)

    # -- Connection ----------------------------------------------------------

    send = LaneProtocol.sendText

    def fetch(self) -> None:
        """
        Never called: nothing is counted by itself here.
        """

    def lose(self, why: Closing) -> None:
        if self.state == self.STATE_OPEN:
            # sendClose allows none of 1001, 1003 and 1013.
            self.sendCloseFrame(why.code, why.reason.encode(), isReply=False)

    def drop(self) -> None:
        self.outlet.forget()
        self.transport.abortConnection()

    def settled(self) -> Deferred[None] | None:
        node = self.factory.node
        wait = node.inflation.wait(self._inflator) if self._inflator else 0.0
        if wait:
            node.inflation.pauses += 1
            return deferLater(self.factory.clock, wait + MARGIN)
        return node.input_order.settled(self)

    def inflated(self, size: int) -> None:
        inflation = self.factory.node.inflation
        self._inflator = self._inflator or inflation.who(self)
        inflation.came(size, self._inflator)

    def overdrawn(self) -> bool:
        inflation = self.factory.node.inflation
        self._inflator = self._inflator or inflation.who(self)
        return inflation.wait(self._inflator) > 0

    def unreadable(self, text: str, code: int) -> None:
        """
        A stub would hand such an answer to its application; it is counted instead.
        """

    # -- IPushProducer: the transport says whether it takes more -------------

    def pauseProducing(self) -> None:
        self.factory.node.sessions.paused(self)

    def resumeProducing(self) -> None:
        self.factory.node.sessions.ready(self)

    def stopProducing(self) -> None:
        pass


class WebSocketFactory(LaneFactory):
    """
    Makes the connections; its options are the operator's.
    """

    protocol = WebSocketConnection

    def __init__(self, node: Node, cork: Cork, clock: IReactorTime) -> None:
        super().__init__(cork, clock, node.slices, node.counts.websocket_faults)
        self.node = node
        self.partial_input = node.partial_input
        self.clock = clock
        self.apply()

    def apply(self) -> None:
        """
        The configuration may have changed; connections that are open keep their options.
        """
        config = self.node.config
        self.cork.most = config.session.unsent_bytes
        options, most = config.websocket, config.limits.message_bytes
        if options.compress_above_bytes:
            self.deflateAbove = options.compress_above_bytes
        self.setProtocolOptions(
            maxFramePayloadSize=most,
            maxMessagePayloadSize=most,
            failByDrop=False,
            openHandshakeTimeout=config.session.open_deadline_seconds,
            closeHandshakeTimeout=CLOSE_HANDSHAKE,
            autoPingInterval=options.ping_seconds,
            autoPingTimeout=options.ping_seconds,
            allowNullOrigin=True,
            perMessageCompressionAccept=_deflate if options.compress_above_bytes else _plain,
        )


def _plain(offers: list[Any]) -> None:
    """
    Nothing is compressed.
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
