"""
Where a node is: a URL, as an endpoint to connect to and the links to make there.

`ws://host:9090/ws` and `wss://` are WebSocket, `tcp://host:9091` and `tls://`
are lines, `unix:///path` is lines on a UNIX socket.
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

from msgnode.client.transports import LineLink, Owner, WebSocketLink
from msgnode.transport import pem

PORTS = {"ws": 80, "wss": 443, "tcp": 9091, "tls": 9091}
PING = 25  # seconds between WebSocket pings, and until one must be answered


class Endpoint(NamedTuple):
    """
    A node's URL with the endpoint to connect to.

    `factory` is given who is told of the connections it makes.
    """

    url: str
    endpoint: IStreamClientEndpoint
    factory: Callable[[Owner], Any]


@implementer(IStreamClientEndpoint)
class TLSEndpoint:
    """
    Another endpoint behind TLS.  Twisted's own would collect small writes with the timers of the global
    reactor, which in a program of asyncio does not run.
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
    Makes links of lines.
    """

    noisy = False

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def buildProtocol(self, addr: Any) -> LineLink:
        return LineLink(self._owner)


class WebSocketFactory(WebSocketClientFactory):
    """
    Makes links of WebSocket.
    """

    noisy = False

    def __init__(self, owner: Owner, url: str, reactor: Any) -> None:
        super().__init__(url, protocols=["msgnode"], reactor=reactor)
        self._owner = owner
        # Autobahn would take the global reactor for its timers.
        self._batched_timer = SimpleNamespace(call_later=reactor.callLater)
        self.setProtocolOptions(
            autoPingInterval=PING, autoPingTimeout=PING, serverConnectionDropTimeout=0, failByDrop=False
        )

    def buildProtocol(self, addr: Any) -> WebSocketLink:
        link = WebSocketLink(self._owner)
        link.factory = self
        return link


def place(url: str, reactor: Any, ca: str | None = None, certificate: str | None = None) -> Endpoint:
    """
    `ca` is a file of certificates to trust instead of the system's, `certificate` one with the client's own
    and its key; both in PEM.  ValueError says what is wrong with the URL or the files.
    """
    parts = _split(url)
    if parts.scheme == "unix":
        return Endpoint(url, UNIXClientEndpoint(reactor, parts.path), LineFactory)
    assert parts.hostname is not None
    port = parts.port or PORTS[parts.scheme]
    endpoint: IStreamClientEndpoint = HostnameEndpoint(reactor, parts.hostname.encode(), port)
    if parts.scheme in ("wss", "tls"):
        endpoint = TLSEndpoint(reactor, endpoint, _tls(parts.hostname, ca, certificate))
    if parts.scheme in ("tcp", "tls"):
        return Endpoint(url, endpoint, LineFactory)
    whole = parts._replace(path=parts.path or "/ws").geturl()
    return Endpoint(url, endpoint, lambda owner: WebSocketFactory(owner, whole, reactor))


def _split(url: str) -> SplitResult:
    wanted = "expected a URL such as ws://127.0.0.1:9090/ws or tcp://127.0.0.1:9091"
    try:
        parts = urlsplit(url)
        known = parts.scheme == "unix" or (parts.scheme in PORTS and parts.hostname)
        if not known or (parts.port is None and parts.netloc.endswith(":")):
            raise ValueError
    except ValueError:
        raise ValueError(f"{wanted}, not {url!r}{_guess(url)}") from None
    return parts


def _guess(url: str) -> str:
    """
    Most who write http:// mean the WebSocket that is there.
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
