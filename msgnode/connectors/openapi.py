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
        "401": _error("No session has this token."),
        "403": _error("It needs a session, or `from` is another's."),
        "404": _error("Nobody is bound to the address."),
        "409": _error("A response to the same `from` and `id` is waited for already."),
        "413": _error("Too long."),
        "429": _error("Too many messages of this session, user or address; with Retry-After."),
        "503": _error("The node stops; with Retry-After."),
        "504": _error("No response in time."),
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
        "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer", "description": "A session's token, `mns_...`."}
        },
    },
}
