"""
HTTP requests of a link of long-polling, and their answers.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Protocol as StreamProtocol
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web.client import Agent, HTTPConnectionPool, ResponseDone
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory, IBodyProducer, IResponse
from zope.interface import implementer

from msgnode import __version__

ANSWER_SECONDS = 45.0  # for an answer, more than the node holds a GET
MAX_ANSWER_BYTES = 256 * 1024 * 1024

AGENT = f"msgnode/{__version__}"  # the name of this client for operators

Got = Callable[[int, Headers, bytes], None]


@implementer(IAgentEndpointFactory)
class _OneEndpoint:
    """
    A factory of one endpoint, for all URLs.
    """

    def __init__(self, endpoint: IStreamClientEndpoint) -> None:
        self._endpoint = endpoint

    def endpointForURI(self, uri: Any) -> IStreamClientEndpoint:
        return self._endpoint


@implementer(IBodyProducer)
class _Body:
    """
    The body of a POST, which is written at once.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.length = len(data)

    def startProducing(self, consumer: Any) -> Deferred[None]:
        consumer.write(self._data)
        return succeed(None)

    def pauseProducing(self) -> None: ...

    def resumeProducing(self) -> None: ...

    def stopProducing(self) -> None: ...


class _Collector(StreamProtocol):
    """
    A collector of a response's body, which is bounded.
    """

    transport: Any

    def __init__(self) -> None:
        self.whole: Deferred[bytes] = Deferred()
        self._came = bytearray()

    def dataReceived(self, data: bytes) -> None:
        self._came += data
        if len(self._came) > MAX_ANSWER_BYTES:
            self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if reason.check(ResponseDone):
            self.whole.callback(bytes(self._came))
        else:
            self.whole.errback(reason)


class HTTPRequests:
    """
    Requests to one URL, on connections that are kept; each must be answered within ANSWER_SECONDS.
    """

    def __init__(self, reactor: Any, url: bytes, endpoint: IStreamClientEndpoint) -> None:
        self._reactor = reactor
        self._url = url
        self._pool = HTTPConnectionPool(reactor)
        self._pool.retryAutomatically = False  # the client connects again, and knows what the node has
        self._agent = Agent.usingEndpointFactory(reactor, _OneEndpoint(endpoint), self._pool)
        self._pending: set[Deferred[Any]] = set()

    def ask(
        self,
        method: bytes,
        query: str,
        token: str,
        body: bytes | None,
        got: Got,
        failed: Callable[[str], None],
    ) -> None:
        """
        Send a request, and call `got` with the status, the headers and the body of the answer.
        """
        headers = Headers({b"Content-Type": [b"application/json"], b"User-Agent": [AGENT.encode()]})
        if token:
            headers.setRawHeaders(b"Authorization", [b"Bearer " + token.encode()])
        producer = None if body is None else _Body(body)
        asked: Deferred[Any] = self._agent.request(method, self._url + query.encode(), headers, producer)
        self._pending.add(asked)
        asked.addTimeout(ANSWER_SECONDS, self._reactor, lambda *_: Failure(TimeoutError("no answer in time")))
        asked.addCallback(self._collect)

        def over(result: Any) -> None:
            if asked not in self._pending:
                return  # the link has ended
            self._pending.discard(asked)
            if isinstance(result, Failure):
                failed(_words(result))
            else:
                got(*result)

        asked.addBoth(over)

    def _collect(self, response: IResponse) -> Deferred[tuple[int, Headers, bytes]]:
        collector = _Collector()
        response.deliverBody(collector)
        return collector.whole.addCallback(lambda body: (response.code, response.headers, body))

    def stop(self) -> None:
        """
        Give up all requests, and close the connections.
        """
        pending, self._pending = self._pending, set()
        for asked in pending:
            asked.cancel()
        self._pool.closeCachedConnections()


def _words(why: Failure) -> str:
    """
    Returns why a request failed: Twisted wraps reasons in others.
    """
    value: Any = why.value
    while getattr(value, "reasons", None):
        value = value.reasons[0].value
    name = type(value).__name__
    return "connection refused" if name == "ConnectionRefusedError" else str(value) or name
