"""
An answer by HTTP, in JSON; an error's has the keys that a message's has.
"""

import json
from collections import deque
from collections.abc import Mapping
from typing import Any

from twisted.internet.interfaces import IPushProducer
from twisted.web.server import Request
from zope.interface import implementer

from msgnode.protocol.errors import error_body

CHUNK = 64 * 1024  # bytes of a long answer that are copied at a time


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
    return answer_json(request, status, error_body(status, text))


def write_all(request: Request, parts: list[bytes]) -> None:
    """
    Answer with all the parts, which may be messages that thousands get.
    """
    if sum(map(len, parts)) <= CHUNK:
        request.write(b"".join(parts))
        request.finish()
    else:
        LongAnswer(request, parts)


@implementer(IPushProducer)
class LongAnswer:
    """
    A response that is copied a chunk at a time, as fast as its client reads.
    """

    def __init__(self, request: Request, parts: list[bytes]) -> None:
        self._request = request
        self._parts: deque[memoryview[int]] = deque(memoryview(part) for part in parts)
        self._paused = self._over = False
        request.registerProducer(self, True)
        self.resumeProducing()

    def resumeProducing(self) -> None:
        self._paused = False
        parts, request = self._parts, self._request
        while parts and not self._paused:
            part = parts.popleft()
            if len(part) > CHUNK:
                parts.appendleft(part[CHUNK:])
            request.write(bytes(part[:CHUNK]))
        if not parts and not self._over:
            self._over = True
            request.unregisterProducer()
            request.finish()

    def pauseProducing(self) -> None:
        self._paused = True

    def stopProducing(self) -> None:
        self._over = True
        self._parts.clear()
