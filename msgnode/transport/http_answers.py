"""
HTTP responses in JSON. An error response has the same keys as an error message.
"""

import json
from collections import deque
from collections.abc import Mapping
from typing import Any

from twisted.internet.interfaces import IPushProducer
from twisted.web.server import Request
from zope.interface import implementer

from msgnode.protocol.errors import error_body

CHUNK_BYTES = 64 * 1024  # bytes of a long response that are copied at a time


def answer_json(request: Request, status: int, body: Mapping[str, Any] | list[Any]) -> bytes:
    """
    Set status and content type of the response. Returns the body for a render method.
    """
    request.setResponseCode(status)
    request.setHeader(b"Content-Type", b"application/json")
    request.setHeader(b"Cache-Control", b"no-store")
    return json.dumps(body).encode() + b"\n"  # the newline helps on a terminal


def answer_error(request: Request, status: int, text: str, retry_after: int | None = None) -> bytes:
    """
    An error response with the keys of an error message (docs/protocol.md). `retry_after` is in seconds.
    """
    if retry_after is not None:
        request.setHeader(b"Retry-After", str(retry_after).encode())
    return answer_json(request, status, error_body(status, text))


def write_all(request: Request, parts: list[bytes]) -> None:
    """
    Send all `parts` as the response body. They may be messages that go to thousands of clients.
    """
    if sum(map(len, parts)) <= CHUNK_BYTES:
        request.write(b"".join(parts))
        request.finish()
    else:
        LongAnswer(request, parts)


@implementer(IPushProducer)
class LongAnswer:
    """
    A response body that is copied one chunk at a time, as fast as its client reads (backpressure).
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
            if len(part) > CHUNK_BYTES:
                parts.appendleft(part[CHUNK_BYTES:])
            request.write(bytes(part[:CHUNK_BYTES]))
        if not parts and not self._over:
            self._over = True
            request.unregisterProducer()
            request.finish()

    def pauseProducing(self) -> None:
        self._paused = True

    def stopProducing(self) -> None:
        self._over = True
        self._parts.clear()
