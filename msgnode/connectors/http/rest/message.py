"""
REST at `/message`: one message by POST, and its response in the HTTP response.

Without a session the message gets a sender address that exists as long as the
request.  With a session token it is sent by that session, and the response is
returned here instead of on the session's connection.
"""

from functools import partial
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.web.resource import Resource
from twisted.web.server import Request

from msgnode.cluster.relay.wire import MESSAGE
from msgnode.connectors.http.relaying import Relaying
from msgnode.connectors.http.requests import MAX_WAIT_SECONDS, WAIT_SECONDS, bearer, parameters
from msgnode.connectors.http.rest.description import DOCUMENT
from msgnode.connectors.http.rest.exchange import RestRequest, again_in
from msgnode.connectors.http.rest.sending import UNKNOWN, RestSending
from msgnode.connectors.http.site import NotHere
from msgnode.node import Node
from msgnode.protocol.address import is_multicast
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.queue import REQUESTS
from msgnode.transport.http_answers import answer_error, answer_json

ANSWERED = REQUESTS | {"delete"}


class Messages(Resource):
    """
    The resource `/message`: docs/protocol.md, "REST".
    """

    def __init__(self, node: Node, sending: RestSending, clock: IReactorTime) -> None:
        super().__init__()
        self._node = node
        self._sending = sending
        self._clock = clock
        self._relaying = Relaying(node, MESSAGE)

    def getChild(self, path: bytes, request: Request) -> Resource:
        return NotHere()

    def render(self, request: Request) -> Any:
        refusal = self._sending.refusal(request, (b"POST",), bearer(request) or "")
        if refusal is not None:
            return refusal
        relayed = self._relaying.by_token(request, UNKNOWN)
        if relayed is not None:
            return relayed
        try:
            return self._post(request)
        except Rejected as why:
            return answer_error(request, why.code, str(why), again_in(why))

    def _post(self, request: Request) -> bytes | int:
        body: bytes = request.content.read()  # type: ignore[union-attr]
        message = self._sending.checked(body)
        wait = _wait(parameters(request), message)
        exchange = RestRequest(self._node, self._clock, request)
        carry = partial(self._sending.carry, exchange, message, wait, request)
        return self._sending.begin(exchange, request, bearer(request) or "", carry)


class OpenAPIResource(Resource):
    """
    The resource that describes REST in OpenAPI.
    """

    isLeaf = True

    def render_GET(self, request: Request) -> bytes:
        request.setHeader(b"Access-Control-Allow-Origin", b"*")
        return answer_json(request, 200, DOCUMENT)


def _wait(asked: dict[str, str], message: Message) -> float:
    """
    Returns the seconds to wait for a response; 0 if none is expected.
    """
    given = asked.get("wait")
    if given is None:
        single = isinstance(message.to, str) and not is_multicast(message.to)
        return WAIT_SECONDS if single and message.type.lower() in ANSWERED else 0
    if not given.isascii() or not given.isdigit() or len(given) > 6:
        raise Rejected(f"'wait' must be a whole number of seconds, not {given[:40]!r}")
    return min(int(given), MAX_WAIT_SECONDS)
