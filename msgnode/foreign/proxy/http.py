"""
Requests of HTTP that the node makes for a stub, to checked addresses. Redirects are not followed.
"""

from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.web.client import Agent, HTTPConnectionPool
from twisted.web.http_headers import Headers

from msgnode.backends.http_body import BoundedBody, RequestBody
from msgnode.foreign.proxy.guard import AddressGuard, bounded
from msgnode.transport.endpoints import EndpointFactory, IdentityEncodingAgent, TLSTrust

REQUEST_SECONDS = 30.0
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
MAX_HEADERS = 100
# Set by the agent, or between neighbours only (RFC 9110, 7.6.1).
_NOT_THEIRS = frozenset(
    b"host content-length connection transfer-encoding te trailer upgrade keep-alive proxy-authorization "
    b"proxy-connection".split()
)


class HTTPResponse(NamedTuple):
    """
    A response, with its whole body.
    """

    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes


class StubRequests:
    """
    A sender of HTTP requests for stubs.
    """

    def __init__(self, reactor: Any, guard: AddressGuard, trust: TLSTrust) -> None:
        self._reactor = reactor
        self._guard = guard
        self._trust = trust

    def request(
        self, method: str, url: str, headers: list[tuple[str, str]], body: bytes, max_bytes: int
    ) -> Deferred[HTTPResponse]:
        """
        The response. Cancelling it ends the connection.
        """
        answer: Deferred[HTTPResponse] = Deferred.fromCoroutine(
            self._request(method, url, headers, body, max_bytes)
        )
        late = self._reactor.callLater(REQUEST_SECONDS, answer.cancel)

        def in_time(result: Any) -> Any:
            if late.active():
                late.cancel()
            return result

        return answer.addBoth(in_time)

    async def _request(
        self, method: str, url: str, headers: list[tuple[str, str]], body: bytes, max_bytes: int
    ) -> HTTPResponse:
        if method not in METHODS:
            raise ValueError(f"expected one of {', '.join(METHODS)}, not {method!r}")
        sent = Headers()
        for name, value in headers[:MAX_HEADERS]:
            if name.lower().encode() not in _NOT_THEIRS:
                sent.addRawHeader(name.encode("ascii"), value.encode("latin-1"))
        producer = RequestBody(body) if body else None
        response = await self._agent(max_bytes).request(method.encode(), url.encode("ascii"), sent, producer)
        collected = BoundedBody(max_bytes)
        response.deliverBody(collected)
        content = await collected.whole
        return HTTPResponse(
            response.code, response.phrase.decode("latin-1"), _texts(response.headers), content
        )

    def _agent(self, max_bytes: int) -> IdentityEncodingAgent:
        endpoints = EndpointFactory(bounded(self._guard.endpoint, max_bytes), self._trust, self._reactor)
        # No connection is kept: another stub's would be used by its host alone.
        pool = HTTPConnectionPool(self._reactor, persistent=False)
        return IdentityEncodingAgent(Agent.usingEndpointFactory(self._reactor, endpoints, pool))


def _texts(headers: Headers) -> list[tuple[str, str]]:
    found = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, values in headers.getAllRawHeaders()
        for value in values
    ]
    return found[:MAX_HEADERS]
