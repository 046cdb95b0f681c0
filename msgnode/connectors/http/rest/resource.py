"""
REST at `/resource/<address>`: a method of HTTP is a type of message to that address, and the code of the
response is the status of the answer.
"""

import json
from functools import partial
from secrets import randbits
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from twisted.internet.interfaces import IReactorTime
from twisted.web.resource import Resource
from twisted.web.server import Request

from msgnode.cluster.relay.wire import RESOURCE
from msgnode.connectors.http.relayed import RelayedHTTPRequest
from msgnode.connectors.http.relaying import Relaying
from msgnode.connectors.http.requests import WAIT_SECONDS, bearer, parameter_list
from msgnode.connectors.http.rest.conditions import conditions, preferences
from msgnode.connectors.http.rest.exchange import again_in
from msgnode.connectors.http.rest.resource_request import ResourceRequest
from msgnode.connectors.http.rest.sending import UNKNOWN, RestSending
from msgnode.node import Node
from msgnode.protocol.address import MAX_ADDRESS_CHARS, is_multicast
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message
from msgnode.transport.http_answers import answer_error

TYPES = {
    b"GET": "read",
    b"HEAD": "read",
    b"POST": "create",
    b"PUT": "update",
    b"PATCH": "update",
    b"DELETE": "delete",
}
METHODS = tuple(TYPES)
MAX_FIELDS = 100  # in a query
HOW = "name an address: /resource/<address>, for example /resource/hyperty://example.org/lamp"

_VALUE = msgspec.json.Decoder(Raw)


class ResourceTree(Resource):
    """
    The resource `/resource`: docs/rest.md.
    """

    isLeaf = True

    def __init__(self, node: Node, sending: RestSending, clock: IReactorTime) -> None:
        super().__init__()
        self._node = node
        self._sending = sending
        self._clock = clock
        self._relaying = Relaying(node, RESOURCE)

    def render(self, request: Request) -> Any:
        token = bearer(request) or ""
        refusal = self._sending.refusal(request, METHODS, token)
        if refusal is not None:
            return refusal
        if not isinstance(request, RelayedHTTPRequest):
            request.notifyFinish().addCallbacks(lambda done: self._count(request), lambda gone: None)
        try:
            address = address_of(request)
            relayed = self._relaying.by_token(request, UNKNOWN)
            return self._serve(request, address, token) if relayed is None else relayed
        except Rejected as why:
            return answer_error(request, why.code, str(why), again_in(why))

    def _count(self, request: Request) -> None:
        self._node.counts.resource_answers[request.method.decode(), f"{request.code // 100}xx"] += 1

    def _serve(self, request: Request, address: str, token: str) -> bytes | int:
        kind = TYPES[request.method]
        if kind == "read" and is_multicast(address):
            request.setHeader(b"Allow", b"POST, PUT, PATCH, DELETE, OPTIONS")
            text = f"messages are published to {address}; subscribe to it at /events?resource=..., or publish"
            raise Rejected(text[:300], 405, reason="failed")
        message = self._sending.checked(composed(kind, address, body_of(request)))
        wanted = preferences(request, 0.0 if is_multicast(address) else WAIT_SECONDS)
        asked = conditions(request)
        if asked and is_multicast(address):
            raise Rejected(f"messages are published to {address}, which has no version"[:300], 412)
        exchange = ResourceRequest(self._node, self._clock, request, asked, wanted)
        exchange.hears_refusals = is_multicast(address)
        if exchange.reads_first:
            read = self._sending.checked(composed("read", address, b""))
            carry = partial(self._read_first, exchange, read, message, request)
        else:
            carry = partial(self._sending.carry, exchange, message, wanted.wait, request)
        return self._sending.begin(exchange, request, token, carry)

    def _read_first(
        self, exchange: ResourceRequest, read: Message, message: Message, request: Request
    ) -> bytes | int:
        """
        Read the resource, and send the message if that meets the conditions.
        """

        def compared(response: Message) -> None:
            if exchange.may_go_on(response):
                try:
                    exchange.answer_now(
                        self._sending.carry(exchange, message, exchange.preferences.wait, request)
                    )
                except Rejected as why:
                    exchange.refuse(why.code, str(why), again_in(why))

        exchange.on_response = compared
        return self._sending.carry(exchange, read, exchange.preferences.wait or WAIT_SECONDS, request)


def address_of(request: Request) -> str:
    """
    The address in the path of a request, which is percent-encoded (RFC 3986); its slashes need not be. Raises
    Rejected if there is none.
    """
    try:
        address = b"/".join(request.postpath or []).decode()
    except UnicodeDecodeError as why:
        raise Rejected(f"the address in the path is not UTF-8 at byte {why.start}") from None
    if ":" not in address:
        raise Rejected(f"{HOW}; {address[:80]!r} has no scheme" if address else HOW, 404, "no-route")
    if len(address) > MAX_ADDRESS_CHARS or not address.isprintable():
        text = f"an address has at most {MAX_ADDRESS_CHARS} printable characters, not {address[:80]!r}"
        raise Rejected(text, 400, "too-long" if len(address) > MAX_ADDRESS_CHARS else "malformed")
    return address


def composed(kind: str, address: str, body: bytes) -> bytes:
    """
    A message of this type to the address.
    """
    to = json.dumps(address).encode()
    tail = b',"body":%s}' % body if body else b"}"
    return b'{"id":%d,"type":"%s","from":"","to":%s%s' % (randbits(53), kind.encode(), to, tail)


def body_of(request: Request) -> bytes:
    """
    The JSON object that is the body of the message: that of the request, or its query; b"" for none. Raises
    Rejected.
    """
    body: bytes = request.content.read().strip()  # type: ignore[union-attr]
    query = request.uri.partition(b"?")[2]
    if request.method in (b"GET", b"HEAD", b"DELETE"):
        if not body:
            return _fields(parameter_list(request, MAX_FIELDS))
        if request.method != b"DELETE":
            raise Rejected("a GET has no body; what it asks for is in the query, as in ?resource=...")
    elif query:
        raise Rejected(f"a {request.method.decode()} has no query; its JSON is the body of the message")
    if body and not _is_object(body):
        raise Rejected("the body must be a JSON object, which is the body of the message")
    if request.method == b"PATCH" and not _names_attribute(body):
        raise Rejected('a PATCH changes one attribute: {"attribute": "mood", "value": "good"}')
    return body


def _is_object(body: bytes) -> bool:
    try:
        return bytes(_VALUE.decode(body))[:1] == b"{"
    except (msgspec.DecodeError, RecursionError) as why:
        raise Rejected(f"the body is not JSON: {why}"[:200]) from None


class _Attribute(msgspec.Struct):
    """
    The body of an update of an attribute.
    """

    attribute: str
    value: Raw | UnsetType = UNSET
    operation: Any = None


def _names_attribute(body: bytes) -> bool:
    try:
        change = msgspec.json.decode(body or b"{}", type=_Attribute)
        return bool(change.attribute) and (change.value is not UNSET or change.operation == "remove")
    except (msgspec.DecodeError, RecursionError):
        return False


def _fields(query: list[tuple[str, str]]) -> bytes:
    """
    The parameters of a query as an object of texts; one that is repeated is a list of them.
    """
    if not query:
        return b""
    found: dict[str, list[str]] = {}
    for name, value in query:
        found.setdefault(name, []).append(value)
    fields = {name: values[0] if len(values) == 1 else values for name, values in found.items()}
    return json.dumps(fields).encode()
