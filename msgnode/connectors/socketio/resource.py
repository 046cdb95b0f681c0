"""
Socket.IO at `/socket.io/`, for the NodejsProtoStub.

The resource answers polls and passes WebSockets on; codec.py has the wire
format, and client.py the client behind both.
"""

from collections.abc import Callable
from typing import Any

from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from msgnode.cluster.relay.wire import SOCKET_IO
from msgnode.connectors.http.relaying import Relaying
from msgnode.connectors.http.requests import agent_of, allow_origin, bearer, origin_of, parameters, peer_of
from msgnode.connectors.http.site import Upgrade
from msgnode.connectors.socketio import codec
from msgnode.connectors.socketio.client import SocketClient
from msgnode.connectors.socketio.websocket import SocketIOFactory, Unfit, version_in
from msgnode.protocol.close_codes import STOPPING
from msgnode.transport.http_answers import answer_error, write_all
from msgnode.transport.sockets import verified_name

TEXT, HTML = b"text/plain; charset=UTF-8", b"text/html"


def check_alone(client: SocketClient) -> None:
    """
    Refuse a second GET of one client, and end the client.
    """
    if client.polls.waiting is not None:
        client.gone()
        raise Unfit("two polls of one client at once")


def take(body: bytes, client: SocketClient, most: int, taken: Callable[[], object]) -> bool:
    """
    Accept the body of a client's POST.  False: it takes more than one turn, and `taken` is called at the end.
    """
    if client.posting:
        raise Unfit("two POSTs of one client at once")
    packets = codec.split(body, client.version, most)
    if client.refusal is not None and any(packet.startswith(b"42") for packet in packets):
        raise Unfit(f"this client was closed: {client.refusal.word}")
    return client.take(packets, taken)


class RequestPoll:
    """
    A waiting GET that Twisted's web server handles.
    """

    def __init__(self, request: Request, client: SocketClient) -> None:
        self._request = request
        request.notifyFinish().addErrback(lambda why: client.hung_up(self))

    def answer(self, pieces: list[bytes]) -> None:
        self._request.setHeader(b"Content-Type", TEXT)
        self._request.setHeader(b"Content-Length", str(sum(map(len, pieces))).encode())
        write_all(self._request, pieces)


class SocketIO(Resource):
    """
    The resource `/socket.io/`: the polls of all clients.
    """

    isLeaf = True

    def __init__(self, factory: SocketIOFactory) -> None:
        super().__init__()
        self._factory = factory
        self._node = factory.node
        self._upgrade = Upgrade(factory)
        self._relaying = Relaying(factory.node, SOCKET_IO)

    def render(self, request: Request) -> Any:
        asked = parameters(request)
        if request.postpath not in ([], [b""]):
            return answer_error(request, 404, "Socket.IO is at /socket.io/")
        if asked.get("transport") == "websocket":
            request.postpath = []
            return self._upgrade.render(request)
        if not allow_origin(request, self._node.config.origins, cookies=True):
            return answer_error(request, 403, "this origin is not allowed")
        try:
            return self._polled(request, asked)
        except codec.TooMany as why:
            return answer_error(request, 413, str(why))
        except (Unfit, codec.Garbled) as why:
            return answer_error(request, 400, str(why))

    def _polled(self, request: Request, asked: dict[str, str]) -> bytes | int:
        if request.method == b"OPTIONS":
            request.setResponseCode(204)
            return b""
        if request.method not in (b"GET", b"POST"):
            request.setHeader(b"Allow", b"GET, POST, OPTIONS")
            return answer_error(request, 405, f"GET and POST, not {request.method.decode('latin-1')}")
        if asked.get("transport") != "polling" or "j" in asked:
            raise Unfit("'transport' must be polling (by XMLHttpRequest) or websocket")
        version = version_in(asked)
        if "sid" not in asked:
            if request.method == b"POST":
                raise Unfit("a client begins with a GET")
            if self._node.draining:
                request.setHeader(b"Connection", b"close")
                return answer_error(request, 503, STOPPING.word, 1)
            return self._welcome(request, version)
        relayed = self._relaying.by_sid(request, asked["sid"])
        if relayed is not None:
            return relayed
        client = self._factory.polling(asked["sid"])
        if request.method == b"GET":
            return self._poll(client, request)
        return self._post(client, request)

    def _welcome(self, request: Request, version: int) -> bytes | int:
        client = self._factory.make_client(version)
        client.peer = peer_of(request, self._node.connection_limits)
        client.identity = verified_name(request.channel.transport)
        client.bearer = bearer(request) or ""
        client.origin, client.user_agent = origin_of(request), agent_of(request)
        client.begin(None, ["websocket"])
        why = client.refusal
        if why is not None:
            client.gone()
            return answer_error(request, 503, why.word, round(why.retry_after or 0))
        client.poll(RequestPoll(request, client))
        client.greet()
        return NOT_DONE_YET

    def _poll(self, client: SocketClient, request: Request) -> int:
        check_alone(client)
        client.poll(RequestPoll(request, client))
        return NOT_DONE_YET

    def _post(self, client: SocketClient, request: Request) -> bytes | int:
        def taken() -> None:
            if request.channel is not None:
                request.write(b"ok")
                request.finish()

        body: bytes = request.content.read()  # type: ignore[union-attr]
        request.setHeader(b"Content-Type", HTML)
        most = self._node.config.limits.messages_per_post
        return b"ok" if take(body, client, most, taken) else NOT_DONE_YET
