"""
What `/message` takes and gives, in OpenAPI's words.
"""

from typing import Any

from msgnode import __version__


def _error(text: str) -> dict[str, Any]:
    return {
        "description": text,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }


def _nullable(**schema: Any) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


MESSAGE = {
    "type": "object",
    "required": ["id", "type", "to"],
    "properties": {
        "id": {"description": "Repeated in the response.", "type": ["integer", "string"]},
        "type": {"type": "string", "examples": ["create", "read", "update", "delete", "execute"]},
        "from": {
            "type": "string",
            "description": "With a session's token: one of its own, or missing. Else replaced.",
        },
        "to": {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1000},
            ]
        },
        "body": {"type": ["object", "null"]},
        "priority": _nullable(type="integer", minimum=0, maximum=9),
        "ttl": _nullable(type="number", minimum=0, description="Seconds it may wait for its recipient."),
        "receipt": {"type": "boolean"},
        "bulk": {"type": "boolean", "description": "It may leave last where messages wait."},
        "log": {"type": "boolean", "description": "False: write nothing down about it."},
        "transaction": {
            "description": "What it belongs to; in every answer of the node, too.",
            "anyOf": [
                {"type": "string", "maxLength": 64},
                {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
                {"type": "null"},
            ],
        },
    },
}

RESPONSE = {
    "type": "object",
    "required": ["id", "type", "from", "to"],
    "properties": {
        "id": {"type": ["integer", "string"]},
        "type": {"type": "string"},
        "from": {"type": "string"},
        "to": {"type": "string"},
        "body": {"type": ["object", "null"]},
    },
}

BEARER = """\
Whose message it is. Each of these is one:

- A session's token, `mns_...`: that session sends the message. One that no session has is refused.
- A device's token, `mnd_...`.
- An ID or access token of an OpenID provider that the operator trusts: a JWT, or an opaque one where the node
  asks its provider about it.

The latter two open no session. The message gets a sender of its own, whom the node's policies know as
the device or the user, and its recipient does where the body says `"assertedIdentity": null`. A bad one
is refused. They are looked at where the operator has set `identity.auth`; elsewhere they mean nothing.
Where it is `required`, nobody sends without a token or a client certificate. The token of a session
whose identity has ended is refused until the session is opened again.
"""

ERROR = {
    "type": "object",
    "required": ["code", "desc", "description"],
    "properties": {
        "code": {"type": "integer"},
        "desc": {"type": "string"},
        "description": {"type": "string"},
    },
}

_SEND: dict[str, Any] = {
    "operationId": "send",
    "summary": "Send one message, and get its response.",
    "security": [{}, {"bearer": []}],
    "parameters": [
        {
            "name": "wait",
            "in": "query",
            "description": (
                "Seconds to wait for a response, 30 at most; 0: do not. Without it create, read, subscribe, "
                "unsubscribe, execute or delete to one address waits 25 seconds, and all else does not."
            ),
            "schema": {"type": "integer", "minimum": 0, "maximum": 999999},
        }
    ],
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Message"}}},
    },
    "responses": {
        "200": {
            "description": "The response, whatever its code.",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Response"}}},
        },
        "202": {
            "description": "Sent; no response was waited for.",
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["accepted"],
                        "properties": {"accepted": {"const": 1}},
                    }
                }
            },
        },
        "400": _error("Not JSON, or not a message."),
        "401": _error(
            "The bearer token is no session's, is no good, or its session's identity has ended; or none was "
            "named where one is required."
        ),
        "403": _error("It needs a session, `from` is another's, or this sender may not come in."),
        "404": _error("Nobody is bound to the address."),
        "409": _error("A response to the same `from` and `id` is waited for already."),
        "413": _error("Too long."),
        "429": _error("Too many messages of this session, user or address; with Retry-After."),
        "503": _error(
            "The node stops, or cannot write down now what nobody waits for; with Retry-After. "
            "Or the token's provider does not answer."
        ),
        "504": _error("No response in time; or none from the token's provider."),
    },
}

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {
        "title": "msgnode",
        "version": __version__,
        "summary": "One message by POST, its response in the answer.",
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    },
    "servers": [{"url": ".."}],
    "paths": {"/message": {"post": _SEND}},
    "components": {
        "schemas": {"Message": MESSAGE, "Response": RESPONSE, "Error": ERROR},
        "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": BEARER}},
    },
}
