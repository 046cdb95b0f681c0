"""
The OpenAPI document of `/message`.
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
            "description": "With a session token: an address of the session, or missing. Otherwise replaced.",
        },
        "to": {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1000},
            ]
        },
        "body": {"type": ["object", "null"]},
        "priority": _nullable(type="integer", minimum=0, maximum=9),
        "ttl": _nullable(
            type="number", minimum=0, description="The seconds that the message may wait for its recipient."
        ),
        "receipt": {"type": "boolean"},
        "bulk": {
            "type": "boolean",
            "description": "Bulk data: it yields to other messages that wait for the same recipient.",
        },
        "log": {"type": "boolean", "description": "False: the node does not log the message."},
        "transaction": {
            "description": "An identifier of the transaction; every answer of the node repeats it.",
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
                "Seconds to wait for a response, 30 at most; 0: do not wait. Without it, create, read, "
                "subscribe, unsubscribe, execute or delete to one address waits 25 seconds, and other "
                "messages do not wait."
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
            "description": "The message was sent; the node did not wait for a response.",
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
            "The bearer token is invalid, no session has it, or the identity of its session has expired; or "
            "a token is required and none was sent."
        ),
        "403": _error(
            "The message needs a session, `from` belongs to another sender, or this sender may not send."
        ),
        "404": _error("No session is bound to the address."),
        "409": _error("Another request already waits for a response to the same `from` and `id`."),
        "413": _error("The message is too long."),
        "429": _error("The rate limit of this session, user or address is exceeded; with Retry-After."),
        "503": _error(
            "The node is stopping, or cannot write a message to disk for which no response is expected; with "
            "Retry-After. Or the token's provider does not answer."
        ),
        "504": _error("No response came in time, from the recipient or from the token's provider."),
    },
}

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {
        "title": "msgnode",
        "version": __version__,
        "summary": "Sends one message by POST, and returns its response in the answer.",
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    },
    "servers": [{"url": ".."}],
    "paths": {"/message": {"post": _SEND}},
    "components": {
        "schemas": {"Message": MESSAGE, "Response": RESPONSE, "Error": ERROR},
        "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": BEARER}},
    },
}
