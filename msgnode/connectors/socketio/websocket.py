"""
The WebSockets of Socket.IO's clients, and who the clients are.
"""

from typing import Any

from autobahn.websocket.types import ConnectionDeny
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from zope.interface import implementer

from msgnode.connectors.socketio import codec
from msgnode.connectors.socketio.client import SocketClient
from msgnode.connectors.socketio.polling import Events
from msgnode.connectors.websocket_fastpath import LaneFactory, LaneProtocol
from msgnode.node import Node
from msgnode.protocol.close_codes import Closing
from msgnode.transport.cork import Cork
from msgnode.transport.sockets import bearer, verified_name

CLOSE_HANDSHAKE = 5  # seconds for a client to answer our Close
FAREWELL = 30.0  # seconds for a client that does not poll to fetch why it was closed
UNSUPPORTED = Closing(1003, "text only")
NO_PROBE = Closing(1002, "expected 2probe, then 5")


class Unfit(Exception):
    """
    The parameters of a request are not those of a client; the text says why.
    """


def version_in(asked: dict[str, str]) -> int:
    """
    The version of Engine.IO that a client speaks.
    """
    found = asked.get("EIO", "")
    if found not in map(str, codec.VERSIONS):
        raise Unfit(f"'EIO' must be 3 or 4, not {found[:20]!r}")
    return int(found)


@implementer(IPushProducer)
class SocketIOWebSocket(LaneProtocol):
    """
    A WebSocket of a client: all it ever has, or what it changes to.
    """

    factory: "SocketIOFactory"
    client: SocketClient | None = None
    _asked: dict[str, str]
    _tried = False  # it has said 2probe

    def onConnect(self, request: Any) -> None:
        config = self.factory.node.config
        allowed = config.origins
        if request.origin and "*" not in allowed and request.origin not in allowed:
            raise ConnectionDeny(403, "this origin is not allowed")
        asked = {name: values[0] for name, values in request.params.items()}
        try:
            self._version = version_in(asked)
            self._sid = asked.get("sid", "")
            if self._sid:
                self.factory.polling(self._sid)
        except Unfit as why:
            raise ConnectionDeny(400, str(why)) from None
        self._bearer = "" if self._sid else bearer(request.headers.get("authorization", ""))
        forwarded = request.headers.get("x-forwarded-for", "")
        self.peer = self.factory.node.connection_limits.named(self.transport.getPeer(), forwarded)

    def onOpen(self) -> None:
        # Reads and writes are ours from here on, no longer the HTTP channel's.
        self.transport.unregisterProducer()
        self.outlet.pace(self)
        for name in ("http_request_data", "http_headers", "http_response_data", "http_request_params"):
            self.__dict__.pop(name, None)
        if self._sid:
            self.client = self.factory.polling(self._sid)
            self.client.probe(self)
            return
        self.client = client = self.factory.make_client(self._version)
        client.peer = self.peer
        client.identity = verified_name(self.transport)
        client.bearer, self._bearer = self._bearer, ""
        client.begin(self, [])
        client.greet()

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        # What comes after our Close comes too late.
        if self.state == self.STATE_OPEN:
            super().onMessage(payload, isBinary)

    def textReceived(self, payload: bytes) -> None:
        client = self.client
        assert client is not None
        if client.way is self:
            client.heard(payload)
        elif payload == codec.PROBE:
            self._tried = True
            if not self.outlet.stalled:
                client.probed(self)
        elif payload == codec.UPGRADE and self._tried and client.probing is self and not client.ended:
            client.upgrade(self)
        else:
            self.part(NO_PROBE)

    def binaryReceived(self, payload: bytes) -> None:
        self.turn_away(UNSUPPORTED)

    def turn_away(self, why: Closing) -> None:
        if self.client is not None and self.client.way is self:
            self.factory.node.sessions.part(self.client, why)
        else:
            self.part(why)

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        client, self.client = self.client, None
        if client is None:
            return
        if client.way is self:
            client.gone()
        elif client.probing is self:
            client.probing = None

    def sendCloseFrame(self, *args: Any, **kwargs: Any) -> None:
        super().sendCloseFrame(*args, **kwargs)
        # Nothing more can be sent: what comes from now on waits for the next connection.
        if self.client is not None and self.client.way is self:
            self.factory.node.sessions.leave(self.client)

    # -- the client's way ----------------------------------------------------

    def settled(self) -> Deferred[None] | None:
        return self.factory.node.input_order.settled(self.client) if self.client is not None else None

    def part(self, why: Closing) -> None:
        if self.state == self.STATE_OPEN:
            self.sendCloseFrame(why.code, why.reason.encode(), isReply=False)

    def cut(self) -> None:
        self.client = None
        self.outlet.forget()
        self.transport.abortConnection()

    # -- IPushProducer: the transport says whether it takes more -------------

    def pauseProducing(self) -> None:
        if self.client is not None and self.client.way is self:
            self.factory.node.sessions.paused(self.client)

    def resumeProducing(self) -> None:
        if self.client is not None and self.client.way is self:
            self.factory.node.sessions.ready(self.client)

    def stopProducing(self) -> None:
        pass


class SocketIOFactory(LaneFactory):
    """
    Makes the WebSockets, and knows all clients by their sid.
    """

    protocol = SocketIOWebSocket

    def __init__(self, node: Node, cork: Cork, clock: IReactorTime) -> None:
        super().__init__(cork, clock, node.slices, node.counts.websocket_faults)
        self.node = node
        self.partial_input = node.partial_input
        self._clock = clock
        self._events = Events()
        self._clients: dict[str, SocketClient] = {}
        self._lingering: dict[SocketClient, IDelayedCall] = {}
        self.apply()

    def apply(self) -> None:
        """
        The configuration may have changed; connections that are open keep their options.
        """
        config = self.node.config
        # A message is a string in an event, where its quotes take twice the room.
        most = 2 * config.limits.message_bytes
        self.setProtocolOptions(
            maxFramePayloadSize=most,
            maxMessagePayloadSize=most,
            failByDrop=False,
            openHandshakeTimeout=config.session.open_deadline_seconds,
            closeHandshakeTimeout=CLOSE_HANDSHAKE,
            allowNullOrigin=True,
        )

    def make_client(self, version: int) -> SocketClient:
        client = SocketClient(
            self.node, self.cork, self._clock, self._events, version, self.forget, self.linger
        )
        self._clients[client.sid] = client
        return client

    def polling(self, sid: str) -> SocketClient:
        """
        The client of that name, if it polls.
        """
        client = self._clients.get(sid)
        if client is None:
            raise Unfit("no client has this 'sid'; begin with a GET without one")
        if client.way is not None:
            raise Unfit("this client has changed to WebSocket")
        return client

    def linger(self, client: SocketClient) -> None:
        """
        The client was closed, and may fetch the reason; of too many the one that has waited longest may not.
        """
        self._lingering[client] = self._clock.callLater(FAREWELL, self.forget, client)
        if len(self._lingering) > max(1, self.node.config.limits.delayed_closes):
            self.forget(next(iter(self._lingering)))

    def forget(self, client: SocketClient) -> None:
        self._clients.pop(client.sid, None)
        timer = self._lingering.pop(client, None)
        if timer is not None and timer.active():
            timer.cancel()
