"""
The base of all WebSockets of clients, for every protocol on them: origin check, flow control, closing.
"""

from typing import Any

from autobahn.websocket.types import ConnectionDeny
from twisted.internet.interfaces import IReactorTime

from msgnode.connectors.flow_control import PausedByTransport
from msgnode.connectors.http.requests import agent_named
from msgnode.connectors.websocket_fastpath import FastPathFactory, FastPathProtocol
from msgnode.node import Node
from msgnode.protocol.close_codes import Closing
from msgnode.transport.cork import Cork

UNSUPPORTED = Closing(1003, "text only")
CLOSE_HANDSHAKE_SECONDS = 5  # until a client must have answered our Close
# Attributes that a WebSocket does not need once its request is answered.  They may have a token in them.
_OF_REQUEST = (
    "http_request_data",
    "http_headers",
    "http_response_data",
    "http_request_params",
    "websocket_protocols",
)


class NodeWebSocket(PausedByTransport, FastPathProtocol):
    """
    A WebSocket of a client; subclasses handle its messages.
    """

    factory: "NodeWebSocketFactory"

    def check_origin(self, request: Any) -> None:
        """
        Refuse pages of origins that the operator has not allowed.
        """
        # Not Autobahn's own check, which mistakes an origin for another when it adds the port.
        allowed = self.factory.node.config.origins
        if request.origin and "*" not in allowed and request.origin not in allowed:
            raise ConnectionDeny(403, "this origin is not allowed")
        self.origin = request.origin or ""
        self.user_agent = agent_named(request.headers.get("user-agent", ""))

    def name_peer(self, request: Any) -> None:
        """
        Set `peer` to the client's address, as a trusted proxy forwards it.
        """
        forwarded = request.headers.get("x-forwarded-for", "")
        self.peer = self.factory.node.connection_limits.named(self.transport.getPeer(), forwarded)

    def take_over(self) -> None:
        """
        Take the transport over from the HTTP channel.
        """
        self.transport.unregisterProducer()
        self.outlet.pace(self)
        for name in _OF_REQUEST:  # ten thousand idle clients need not keep their HTTP headers
            self.__dict__.pop(name, None)

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        # A message that comes after our Close is too late: the connection has left its session.
        if self.state == self.STATE_OPEN:
            super().onMessage(payload, isBinary)

    def binaryReceived(self, payload: bytes) -> None:
        self.turn_away(UNSUPPORTED)

    def sendCloseFrame(self, *args: Any, **kwargs: Any) -> None:
        super().sendCloseFrame(*args, **kwargs)
        if self.port is not None:
            self.port.look()  # what comes now is no message
        # No more data can be sent: messages wait for the next connection.
        connection = self.paused_connection()
        if connection is not None:
            self.factory.node.sessions.connections.detach(connection)

    def close_with(self, why: Closing) -> None:
        if self.state == self.STATE_OPEN:
            # sendClose does not allow 1001, 1003 and 1013.
            self.sendCloseFrame(why.code, why.reason.encode(), isReply=False)

    def abort(self) -> None:
        """
        Close without a handshake, and discard unsent data.
        """
        self.outlet.forget()
        if self.port is not None:
            self.port.close()
        self.transport.abortConnection()


class NodeWebSocketFactory(FastPathFactory):
    """
    A factory of WebSockets that are connected to the node.
    """

    def __init__(self, node: Node, cork: Cork, clock: IReactorTime) -> None:
        super().__init__(cork, clock, node.slices, node.counts.websocket_faults)
        self.node = node
        self.partial_input = node.partial_input
        self.clock = clock
        self.apply()

    def apply(self) -> None:
        """
        Use the reloaded configuration; open connections keep their options.
        """
        raise NotImplementedError

    def set_options(self, max_bytes: int, **more: Any) -> None:
        """
        Set Autobahn's options, with a limit for each message.
        """
        self.setProtocolOptions(
            maxFramePayloadSize=max_bytes,
            maxMessagePayloadSize=max_bytes,
            failByDrop=False,
            openHandshakeTimeout=self.node.config.session.open_deadline_seconds,
            closeHandshakeTimeout=CLOSE_HANDSHAKE_SECONDS,
            allowNullOrigin=True,
            **more,
        )
