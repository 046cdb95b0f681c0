"""
The OpenAPI document of `/message`, `/resource` and `/events`, made from the types of what goes in and out.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from msgnode import __version__
from msgnode.connectors.http.openapi import Error, components, fields_of, json_content

Id = int | str
Object = dict[str, Any]
Priority = Annotated[int, Meta(ge=0, le=9)]
Ttl = Annotated[float, Meta(ge=0, description="The seconds that the message may wait for its recipient.")]
Transaction = Annotated[
    Annotated[str, Meta(max_length=64)] | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None,
    Meta(description="An identifier of the transaction; every answer of the node repeats it."),
]
Recipients = str | Annotated[list[str], Meta(min_length=1, max_length=1000)]


class Message(msgspec.Struct):
    """
    A message. With a session token `from` is an address of the session, or missing; otherwise it is replaced.
    """

    id: Annotated[Id, Meta(description="Repeated in the response.")]
    type: Annotated[str, Meta(examples=["create", "read", "update", "delete", "execute"])]
    to: Recipients
    from_: str = field(name="from", default="")
    body: Object | None = None
    priority: Priority | None = None
    ttl: Ttl | None = None
    receipt: bool = False
    bulk: Annotated[
        bool, Meta(description="Bulk data: it yields to other messages that wait for the same recipient.")
    ] = False
    log: Annotated[bool, Meta(description="False: the node does not log the message.")] = True
    transaction: Transaction = None


class Response(msgspec.Struct):
    """
    The response to a message.
    """

    id: Id
    type: str
    from_: str = field(name="from")
    to: str
    body: Object | None = None


class Accepted(msgspec.Struct):
    """
    The answer to a message that no response is expected to.
    """

    accepted: Literal[1]


class AttributeChange(msgspec.Struct):
    """
    An update of one attribute. `operation` `remove` needs no value.
    """

    attribute: Annotated[str, Meta(min_length=1)]
    value: Any


class MessageQuery(msgspec.Struct):
    """
    The parameters of `/message`.
    """

    wait: Annotated[
        int,
        Meta(
            ge=0,
            le=999999,
            description="Seconds to wait for a response, 30 at most; 0: do not wait. Without it, create, "
            "read, subscribe, unsubscribe, execute or delete to one address waits 25 seconds, and other "
            "messages do not wait.",
        ),
    ] = msgspec.UNSET  # type: ignore[assignment]


Tags = Annotated[str, Meta(pattern=r'^(\*|(W/)?"[!#-~]{0,80}"(, (W/)?"[!#-~]{0,80}"){0,9})$')]


class ReadHeaders(msgspec.Struct):
    """
    The header fields of a read.
    """

    if_none_match: Annotated[Tags, Meta(description="Versions that the client has.")] = field(
        name="If-None-Match", default=""
    )
    prefer: Annotated[
        str, Meta(description="`wait=N`: seconds to wait for the response; `respond-async` (RFC 7240).")
    ] = field(name="Prefer", default="")


class WriteHeaders(ReadHeaders):
    """
    The header fields of a request that changes something.
    """

    if_match: Annotated[Tags, Meta(description="The version that is to be changed.")] = field(
        name="If-Match", default=""
    )


class EventsQuery(msgspec.Struct):
    """
    The parameters of `/events`.
    """

    resource: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=2048)]],
        Meta(min_length=1, max_length=100, description="The addresses to subscribe."),
    ]
    access_token: Annotated[
        str, Meta(description="A token, for an EventSource, which sends no header fields.")
    ] = ""


class EventsHeaders(msgspec.Struct):
    """
    The header fields of `/events`.
    """

    last_event_id: Annotated[str, Meta(description="The id of the last event that the client has.")] = field(
        name="Last-Event-ID", default=""
    )


BEARER = """\
The token that identifies the sender. There are three kinds:

- A session token, `mns_...`: that session sends the message. A token that no session has is refused.
- A device token, `mnd_...`.
- An ID token or access token of an OpenID provider that the operator trusts: a JWT, or an opaque token if the
  node validates it at its provider.

A device token or a provider's token opens no session. The message gets a temporary sender address. The node's
policies see the device or the user, and so does the recipient if the body has `"assertedIdentity": null`. An
invalid token is refused. These tokens are validated if the operator has set `identity.auth`, and ignored
otherwise. With `required`, a token or a client certificate is mandatory. The token of a session whose
identity has expired is refused until the session is opened again.
"""

_KINDS, _SCHEMAS = components([Message, Response, Accepted, AttributeChange, Error])
_SECURITY: list[dict[str, list[str]]] = [{}, {"bearer": []}]


def _answer(kind: Any, text: str) -> dict[str, Any]:
    return json_content(text, _KINDS[id(kind)])


def _errors(*codes: int, **texts: str) -> dict[str, Any]:
    found = {str(code): _answer(Error, _ERRORS[code]) for code in codes}
    return found | {code[1:]: _answer(Error, text) for code, text in texts.items()}


_ERRORS = {
    400: "Not JSON, or not what the request must have.",
    401: "The bearer token is invalid, no session has it, or the identity of its session has expired; or "
    "a token is required and none was sent.",
    403: "The message needs a session, `from` belongs to another sender, or this sender may not send.",
    404: "No session is bound to the address.",
    405: "The path has other methods, or messages are only published to the address.",
    409: "Another request already waits for a response to the same `from` and `id`.",
    412: "A condition is false: the version is another one.",
    413: "The message is too long.",
    429: "The rate limit of this session, user or address is exceeded; with Retry-After.",
    501: "The recipient does not process such a message.",
    502: "The code of the response is no status.",
    503: "The node is stopping, or cannot write a message to disk for which no response is expected; with "
    "Retry-After. Or the token's provider does not answer.",
    504: "No response came in time, from the recipient or from the token's provider.",
}

_SEND: dict[str, Any] = {
    "operationId": "send",
    "summary": "Send one message, and get its response.",
    "security": _SECURITY,
    "parameters": fields_of(MessageQuery, "query"),
    "requestBody": {"required": True, "content": {"application/json": {"schema": _KINDS[id(Message)]}}},
    "responses": {
        "200": _answer(Response, "The response, whatever its code."),
        "202": _answer(Accepted, "The message was sent; the node did not wait for a response."),
        **_errors(400, 401, 403, 404, 409, 413, 429, 503, 504),
    },
}

_ADDRESS = {
    "name": "address",
    "in": "path",
    "required": True,
    "description": "An address, percent-encoded.",
    "schema": {"type": "string", "minLength": 3, "maxLength": 2048, "pattern": ":"},
}
_FIELDS = {
    "name": "fields",
    "in": "query",
    "description": "The fields of the body of the message.",
    "style": "form",
    "explode": True,
    "schema": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 100},
}


def _resource(method: str, text: str, body: Any = None, fields: bool = False) -> dict[str, Any]:
    """
    An operation on a resource; `body` is the schema of its JSON.
    """
    headers = ReadHeaders if method == "get" else WriteHeaders
    found: dict[str, Any] = {
        "operationId": f"{method}Resource",
        "summary": text,
        "security": _SECURITY,
        "parameters": [_ADDRESS, *([_FIELDS] if fields else []), *fields_of(headers, "header")],
        "responses": {
            "200": json_content("The body of the response.", {"type": "object"}),
            "202": _answer(Accepted, "The message was sent; the node did not wait for a response."),
            "304": {"description": "The version is one that the client has."},
            **_errors(*_ERRORS),
            "default": {"description": "The code of the response is the status."},
        },
    }
    if body is not None:
        found["requestBody"] = {
            "required": method == "patch",
            "content": {"application/json": {"schema": body}},
        }
    return found


_OBJECT = {"type": "object"}
_RESOURCE = {
    "get": _resource("get", "Read the resource: `read` to the address.", fields=True),
    "post": _resource("post", "`create` to the address.", _OBJECT),
    "put": _resource("put", "`update` to the address.", _OBJECT),
    "patch": _resource("patch", "`update` of one attribute.", _KINDS[id(AttributeChange)]),
    "delete": _resource("delete", "`delete` to the address.", fields=True),
}

_EVENTS: dict[str, Any] = {
    "operationId": "events",
    "summary": "Subscribe to addresses, by server-sent events.",
    "security": _SECURITY,
    "parameters": [*fields_of(EventsQuery, "query"), *fields_of(EventsHeaders, "header")],
    "responses": {
        "200": {"description": "A stream.", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
        **_errors(
            400,
            401,
            403,
            404,
            503,
            504,
            _409="A newer connection took the session over.",
            _410="An operator removed the client.",
            _429="There are too many streams of this IP address; with Retry-After.",
        ),
    },
}

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {
        "title": "msgnode",
        "version": __version__,
        "summary": "Sends messages by the methods of HTTP, and subscribes by server-sent events.",
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    },
    "servers": [{"url": ".."}],
    "paths": {"/message": {"post": _SEND}, "/resource/{address}": _RESOURCE, "/events": {"get": _EVENTS}},
    "components": {
        "schemas": _SCHEMAS,
        "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": BEARER}},
    },
}
