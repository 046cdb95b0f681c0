"""
An answer by HTTP, in JSON; an error's has the keys that a message's has.
"""

import json
from collections.abc import Mapping
from typing import Any

from twisted.web.server import Request


def answer_json(request: Request, status: int, body: Mapping[str, Any] | list[Any]) -> bytes:
    """
    Set the status and the type; the body to return from a render method.
    """
    request.setResponseCode(status)
    request.setHeader(b"Content-Type", b"application/json")
    request.setHeader(b"Cache-Control", b"no-store")
    return json.dumps(body).encode() + b"\n"  # kind to whoever uses curl


def answer_error(request: Request, status: int, text: str, retry_after: int | None = None) -> bytes:
    """
    The same three keys as a message's error has (docs/protocol.md).
    """
    if retry_after is not None:
        request.setHeader(b"Retry-After", str(retry_after).encode())
    return answer_json(request, status, {"code": status, "desc": text, "description": text})
