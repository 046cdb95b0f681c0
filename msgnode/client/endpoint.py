"""
The location of a node: its URL, the endpoint to connect to, the factory of links, and the backoff between
attempts to connect.

`ws://host:9090/ws` and `wss://` are WebSocket, `tcp://host:9091` and `tls://`
are lines, `unix:///path` is lines on a UNIX socket, `http://host:9090/poll` and
`https://` are long-polling.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from autobahn.twisted.websocket import WebSocketClientFactory
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.internet.ssl import optionsForClientTLS, trustRootFromCertificates
from twisted.protocols.tls import TLSMemoryBIOFactory
from zope.interface import implementer

from msgnode.client.polling.requests import AGENT
from msgnode.client.transports import LineLink, Owner, WebSocketLink
from msgnode.transport import pem

PORTS = {"ws": 80, "wss": 443, "tcp": 9091, "tls": 9091, "http": 80, "https": 443}
FIRST_SECONDS = 0.5
LAST_SECONDS = 30.0
STEADY_SECONDS = 5.0  # seconds a session must have been open to count as a success
PING_SECONDS = 25  # seconds between WebSocket pings, and until a ping must be answered


class Endpoint(NamedTuple):
    """
    A node's URL with the endpoint to connect to.

    `factory` gets the owner of the links that it makes.
    """

    url: str
    endpoint: IStreamClientEndpoint
    factory: Callable[[Owner], Any]


@implementer(IStreamClientEndpoint)
class TLSEndpoint:
    """
    An endpoint that adds TLS to another.  Twisted's own would buffer small writes with timers of the global
    reactor, which does not run in an asyncio program.
    """

    def __init__(self, reactor: Any, endpoint: IStreamClientEndpoint, options: Any) -> None:
        self._reactor = reactor
        self._endpoint = endpoint
        self._options = options

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        wrapped = TLSMemoryBIOFactory(self._options, True, protocolFactory, self._reactor)
        connecting: Deferred[Any] = self._endpoint.connect(wrapped)
        return connecting.addCallback(lambda protocol: protocol.wrappedProtocol)


class LineFactory(Factory):
    """
    A factory of links of TCP lines.
    """

    noisy = False

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def buildProtocol(self, addr: Any) -> LineLink:
        return LineLink(self._owner)


class WebSocketFactory(WebSocketClientFactory):
    """
    A factory of links of WebSocket.
    """

    noisy = False

    def __init__(self, owner: Owner, url: str, reactor: Any) -> None:
        super().__init__(url, protocols=["msgnode"], useragent=AGENT, reactor=reactor)
        self._owner = owner
        # Autobahn would use the global reactor for its timers.
        self._batched_timer = SimpleNamespace(call_later=reactor.callLater)
        self.setProtocolOptions(
            autoPingInterval=PING_SECONDS,
            autoPingTimeout=PING_SECONDS,
            serverConnectionDropTimeout=0,
            failByDrop=False,
        )

    def buildProtocol(self, addr: Any) -> WebSocketLink:
        link = WebSocketLink(self._owner)
        link.factory = self
        return link


class PollFactory(Factory):
    """
    A factory of links of long-polling.
    """

    noisy = False

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def buildProtocol(self, addr: Any) -> Any:
        from msgnode.client.polling.link import PollLink

        return PollLink(self._owner)


class Backoff:
    """
    An exponential backoff: the wait doubles with each failure, less up to a random half of it; it is never
    shorter than the node asked for.
    """

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._failures = 0
        self._asked = 0.0

    def ended(self, seconds: float) -> None:
        """
        Count a session that was open for so many seconds as a success, if it was long enough.
        """
        if seconds >= STEADY_SECONDS:
            self._failures = 0

    def ask(self, seconds: float) -> None:
        """
        Wait at least as long as the node asked for with `retry_after`.
        """
        self._asked = seconds

    def next(self) -> float:
        """
        Returns the seconds to wait before the next attempt.
        """
        longest = min(FIRST_SECONDS * 2.0 ** min(self._failures, 20), LAST_SECONDS)
        self._failures += 1
        asked, self._asked = self._asked, 0.0
        return max(asked, longest * (1 - self._chance() / 2))


def make_endpoint(url: str, reactor: Any, ca: str | None = None, certificate: str | None = None) -> Endpoint:
    """
    Returns the endpoint of a URL.

    `ca` is a PEM file of certificates to trust instead of the system's, `certificate` a PEM file with the
    client certificate and its key.  ValueError says what is wrong with the URL or the files.
    """
    parts = _split(url)
    if parts.scheme == "unix":
        return Endpoint(url, UNIXClientEndpoint(reactor, parts.path), LineFactory)
    assert parts.hostname is not None
    port = parts.port or PORTS[parts.scheme]
    endpoint: IStreamClientEndpoint = HostnameEndpoint(reactor, parts.hostname.encode(), port)
    if parts.scheme in ("wss", "tls", "https"):
        endpoint = TLSEndpoint(reactor, endpoint, _tls(parts.hostname, ca, certificate))
    if parts.scheme in ("tcp", "tls"):
        return Endpoint(url, endpoint, LineFactory)
    if parts.scheme in ("http", "https"):
        from msgnode.client.polling.link import PollEndpoint  # the client of HTTP, which few programs need

        path = parts.path.rstrip("/").removesuffix("/poll") + "/poll"
        whole = parts._replace(path=path, query="", fragment="").geturl()
        return Endpoint(url, PollEndpoint(reactor, whole, endpoint), PollFactory)
    whole = parts._replace(path=parts.path or "/ws").geturl()
    return Endpoint(url, endpoint, lambda owner: WebSocketFactory(owner, whole, reactor))


def _split(url: str) -> SplitResult:
    wanted = "expected a URL such as ws://127.0.0.1:9090/ws, tcp://127.0.0.1:9091 or http://127.0.0.1:9090"
    try:
        parts = urlsplit(url)
        known = parts.scheme == "unix" or (parts.scheme in PORTS and parts.hostname)
        if not known or (parts.port is None and parts.netloc.endswith(":")):
            raise ValueError
        if parts.scheme in ("http", "https") and parts.path.rstrip("/").endswith("/ws"):
            raise ValueError
    except ValueError:
        raise ValueError(f"{wanted}, not {url!r}{_guess(url)}") from None
    return parts


def _guess(url: str) -> str:
    """
    Returns a hint for http:// and https:// with the path of the WebSocket.
    """
    scheme, _, rest = url.partition("://")
    better = {"http": "ws", "https": "wss"}.get(scheme.lower())
    if better is None or not rest.strip("/"):
        return ""
    where = rest.partition("?")[0].rstrip("/")
    return f"; did you mean {better}://{where.removesuffix('/ws')}/ws?"


def _tls(host: str, ca: str | None, certificate: str | None) -> Any:
    trusted = trustRootFromCertificates(pem.authorities(ca)) if ca else None
    own = pem.private_certificate(certificate) if certificate else None
    return optionsForClientTLS(host, trusted, own)
