"""
The WebSockets of Socket.IO clients, and the table of the clients.
"""

from secrets import token_urlsafe
from typing import Any

from autobahn.websocket.types import ConnectionDeny
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.cluster.relay.holders import SID_BYTES
from msgnode.connectors.node_websocket import NodeWebSocket, NodeWebSocketFactory
from msgnode.connectors.socketio import codec
from msgnode.connectors.socketio.client import SocketClient
from msgnode.connectors.socketio.polling import Events
from msgnode.node import Node
from msgnode.protocol.close_codes import Closing
from msgnode.transport.cork import Cork
from msgnode.transport.sockets import bearer, verified_name

LINGER_SECONDS = 30.0  # seconds in which a closed client may fetch the reason by a poll
NO_PROBE = Closing(1002, "expected 2probe, then 5")


class Unfit(Exception):
    """
    The error of a request whose parameters are invalid for a client; the text says why.
    """


def version_in(asked: dict[str, str]) -> int:
    """
    Returns the version of Engine.IO in the parameters of a client.
    """
    found = asked.get("EIO", "")
    if found not in map(str, codec.VERSIONS):
        raise Unfit(f"'EIO' must be 3 or 4, not {found[:20]!r}")
    return int(found)


class SocketIOWebSocket(NodeWebSocket):
    """
    A WebSocket of a Socket.IO client: its only connection, or the one that it changes to from polling.
    """

    factory: "SocketIOFactory"
    client: SocketClient | None = None
    _asked: dict[str, str]
    _tried = False  # it has said 2probe

    def onConnect(self, request: Any) -> None:
        self.check_origin(request)
        asked = {name: values[0] for name, values in request.params.items()}
        try:
            self._version = version_in(asked)
            self._sid = asked.get("sid", "")
            if self._sid:
                self.factory.polling(self._sid)
        except Unfit as why:
            raise ConnectionDeny(400, str(why)) from None
        self._bearer = "" if self._sid else bearer(request.headers.get("authorization", ""))
        self.name_peer(request)

    def onOpen(self) -> None:
        self.take_over()
        if self._sid:
            self.client = self.factory.polling(self._sid)
            self.client.probe(self)
            return
        self.client = client = self.factory.make_client(self._version)
        client.peer = self.peer
        client.origin, client.user_agent = self.origin, self.user_agent
        client.identity = verified_name(self.transport)
        client.bearer, self._bearer = self._bearer, ""
        client.begin(self, [])
        client.greet()

    def textReceived(self, payload: bytes) -> None:
        client = self.client
        assert client is not None
        if client.websocket is self:
            client.heard(payload)
        elif payload == codec.PROBE:
            self._tried = True
            if not self.outlet.stalled:
                client.probed(self)
        elif payload == codec.UPGRADE and self._tried and client.probing is self and not client.ended:
            client.upgrade(self)
        else:
            self.close_with(NO_PROBE)

    def turn_away(self, why: Closing) -> None:
        connection = self.paused_connection()
        if connection is not None:
            self.factory.node.sessions.connections.close(connection, why)
        else:
            self.close_with(why)

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        client, self.client = self.client, None
        if client is None:
            return
        if client.websocket is self:
            client.gone()
        elif client.probing is self:
            client.probing = None

    def paused_connection(self) -> SocketClient | None:
        """
        The client, once it uses this WebSocket.
        """
        return self.client if self.client is not None and self.client.websocket is self else None

    # -- the client's WebSocket ------------------------------------------------

    def settled(self) -> Deferred[None] | None:
        return self.factory.node.input_order.settled(self.client) if self.client is not None else None

    def abort(self) -> None:
        self.client = None
        super().abort()


class SocketIOFactory(NodeWebSocketFactory):
    """
    The factory of the WebSockets, with the table of all clients by their sid.
    """

    protocol = SocketIOWebSocket

    def __init__(self, node: Node, cork: Cork, clock: IReactorTime) -> None:
        super().__init__(node, cork, clock)
        self._events = Events()
        self._clients: dict[str, SocketClient] = {}
        self._lingering: dict[SocketClient, IDelayedCall] = {}

    def apply(self) -> None:
        # A message is a string in an event, where its quotes take twice the room.
        self.set_options(2 * self.node.config.limits.message_bytes)

    def make_client(self, version: int) -> SocketClient:
        members = self.node.member_relay
        sid = token_urlsafe(SID_BYTES) if members is None else members.sids.new_sid()
        client = SocketClient(
            self.node, self.cork, self.clock, self._events, version, sid, self.forget, self.linger
        )
        self._clients[client.sid] = client
        return client

    def polling(self, sid: str) -> SocketClient:
        """
        Returns the polling client with that sid.
        """
        client = self._clients.get(sid)
        if client is None:
            members = self.node.member_relay
            if members is not None and members.sids.holder(sid):
                # Reached only by a WebSocket: polls are relayed.
                raise Unfit("this client is at another node of the domain; it goes on by polling")
            raise Unfit("no client has this 'sid'; begin with a GET without one")
        if client.websocket is not None:
            raise Unfit("this client has changed to WebSocket")
        return client

    def linger(self, client: SocketClient) -> None:
        """
        The client was closed, and may fetch the reason; of too many the one that has waited longest may not.
        """
        self._lingering[client] = self.clock.callLater(LINGER_SECONDS, self.forget, client)
        if len(self._lingering) > max(1, self.node.config.limits.delayed_closes):
            self.forget(next(iter(self._lingering)))

    def forget(self, client: SocketClient) -> None:
        self._clients.pop(client.sid, None)
        timer = self._lingering.pop(client, None)
        if timer is not None and timer.active():
            timer.cancel()
