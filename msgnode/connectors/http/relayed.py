"""
The requests that other members relay, carried out here as if they had come to this node.
"""

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure
from twisted.web.http_headers import Headers
from twisted.web.resource import Resource
from twisted.web.server import Request

from msgnode.cluster.relay.relay import whole_refusal
from msgnode.cluster.relay.wire import NOT_HELD, RESOURCE, RelayedRequest, RelayedResponse
from msgnode.node import Node

HEADERS = (  # of a response that is relayed
    b"Content-Type",
    b"Cache-Control",
    b"Retry-After",
    b"Allow",
    b"ETag",
    b"Preference-Applied",
)
METHODS = {RESOURCE: ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")}  # of those that have more than two
MAX_VALUE_CHARS = 200


class _Collector:
    """
    The channel of a relayed request: it collects the response, and calls `done` with it.
    """

    transport = None
    factory = None

    def __init__(self, done: Callable[[RelayedResponse], None]) -> None:
        self._done = done
        self._response = RelayedResponse(0, 500, [])
        self._parts: list[bytes] = []

    def getPeer(self) -> None:
        """
        Returns None: the member that relayed the request has its peer.
        """

    def getHost(self) -> None:
        """
        Returns None: the request has come to no port of this node.
        """

    def writeHeaders(self, version: bytes, code: bytes, reason: bytes, headers: Headers) -> None:
        found = [(name, value) for name in HEADERS for value in headers.getRawHeaders(name, [])[:1]]
        self._response.status = int(code)
        self._response.headers = [
            (name.decode(), value.decode("latin-1")[:MAX_VALUE_CHARS]) for name, value in found
        ]

    def write(self, data: bytes) -> None:
        self._parts.append(data)

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """
        Does nothing: a whole response is collected.
        """

    def unregisterProducer(self) -> None:
        """
        Does nothing, as above.
        """

    def requestDone(self, request: Request) -> None:
        self._response.data = b"".join(self._parts)
        self._done(self._response)


class RelayedHTTPRequest(Request):
    """
    A request of a client of another member, which has checked its origin; `peer` and `identity` are the
    client's address and the name in its certificate there, and `token_hash` is the hash of its session token.
    """

    def __init__(self, relayed: RelayedRequest, done: Callable[[RelayedResponse], None]) -> None:
        super().__init__(_Collector(done), parsePOSTFormSubmission=False)
        self.peer = relayed.peer
        self.identity = relayed.identity
        self.token_hash = relayed.token_hash
        self.method = relayed.method.encode("latin-1", "replace")
        self.path = b"/" + relayed.resource.encode()
        self.uri = self.path + b"?" + relayed.query.encode("latin-1", "replace")
        self.clientproto = b"HTTP/1.0"  # so that the response is not chunked
        self.postpath: list[bytes] = [relayed.path.encode("latin-1", "replace")] if relayed.path else []
        for name, value in relayed.headers:
            self.requestHeaders.addRawHeader(
                name.encode("latin-1", "replace"), value.encode("latin-1", "replace")
            )
        self.content = BytesIO(relayed.data)


class RelayedRequests:
    """
    The resources that answer what other members relay, by the names of cluster/relay/wire.py.
    """

    def __init__(self, node: Node, resources: Mapping[str, Resource]) -> None:
        self._node = node
        self._resources = resources

    def serve(self, member: str, relayed: RelayedRequest) -> Deferred[RelayedResponse]:
        """
        The response. To cancel it says that the client is gone.
        """
        resource = self._resources.get(relayed.resource)
        if resource is None or relayed.method not in METHODS.get(relayed.resource, ("GET", "POST")):
            return succeed(whole_refusal(501, f"{relayed.resource[:40]!r} is not relayed"))
        if relayed.token_hash and self._node.sessions.by_token_hash(relayed.token_hash) is None:
            return succeed(RelayedResponse(0, NOT_HELD, []))

        def lose(answered: Deferred[RelayedResponse]) -> None:
            request.connectionLost(Failure(ConnectionLost()))

        answered: Deferred[RelayedResponse] = Deferred(lose)
        request = RelayedHTTPRequest(relayed, answered.callback)
        request.render(resource)
        return answered
