"""
How a back end's base URL becomes connections: TCP, TLS, or a UNIX socket.

`http://`, `https://` and `unix:/path` are understood.  The environment's proxies
are not.  Over TLS the certificate must name the host, and be signed by one in
`ca`, or else by one that the machine trusts.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.x509 import load_pem_x509_certificates
from OpenSSL.crypto import X509
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.ssl import (
    Certificate,
    PrivateCertificate,
    optionsForClientTLS,
    platformTrust,
    trustRootFromCertificates,
)
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.web.client import URI, Agent, HTTPConnectionPool
from twisted.web.iweb import IAgent, IAgentEndpointFactory, IPolicyForHTTPS
from zope.interface import implementer

from msgnode.config.schema import ConfigError
from msgnode.config.sections import BackEndOptions

IDLE = 8.0  # seconds an idle connection is kept; balancers commonly cut it after 10

Dial = Callable[[str, int], IStreamClientEndpoint]


def agent_for(
    base: str, options: BackEndOptions, reactor: Any, dial: Dial | None = None
) -> tuple[str, Agent]:
    """
    What stands before each path, and the agent that goes there.  ConfigError if it cannot be.
    """
    pool = HTTPConnectionPool(reactor)
    pool.maxPersistentPerHost = options.in_flight
    pool.cachedConnectionTimeout = IDLE  # type: ignore[assignment]
    pool.retryAutomatically = False  # Rest knows better what is safe
    wait = options.deadline / 2  # so that there is time to try again

    def by_name(host: str, port: int) -> IStreamClientEndpoint:
        return HostnameEndpoint(reactor, host, port, wait)

    path = base.removeprefix("unix:")
    if path != base:
        dial = dial or (lambda host, port: UNIXClientEndpoint(reactor, path, wait))
        base = "http://localhost"
    endpoints = EndpointFactory(dial or by_name, TLSTrust(options), reactor)
    return base.rstrip("/"), Agent.usingEndpointFactory(reactor, endpoints, pool)


@implementer(IPolicyForHTTPS)
class TLSTrust:
    """
    Whom we believe, and who we are: `ca`, `cert` and `key` of the options.
    """

    def __init__(self, options: BackEndOptions) -> None:
        self._root: Any = platformTrust()
        self._own: PrivateCertificate | None = None
        if options.ca:
            self._root = trustRootFromCertificates(_authorities(options.ca))
        if options.cert:
            self._own = _own(options.cert, options.key or options.cert)

    def creatorForNetloc(self, hostname: bytes, port: int) -> Any:
        return optionsForClientTLS(hostname.decode("ascii"), self._root, self._own)


def _authorities(path: str) -> list[Certificate]:
    try:
        return [Certificate(X509.from_cryptography(ca)) for ca in load_pem_x509_certificates(_read(path))]
    except ValueError as why:
        raise ConfigError(f"{path}: expected certificates in PEM") from why


def _own(cert: str, key: str) -> PrivateCertificate:
    pem = _read(cert) if cert == key else _read(cert) + b"\n" + _read(key)
    try:
        own: PrivateCertificate = PrivateCertificate.loadPEM(pem)
        return own
    except Exception as why:  # OpenSSL complains in several ways
        raise ConfigError(f"{cert}: expected a certificate and, there or in {key}, its key in PEM") from why


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as why:
        raise ConfigError(f"{path}: cannot be read: {why.strerror}") from why


@implementer(IAgent)
class IdentityEncodingAgent:
    """
    Another agent, whose answers come unpacked or are not unpacked: a small one might become huge.
    """

    def __init__(self, agent: IAgent) -> None:
        self._agent = agent

    def request(self, method: bytes, uri: bytes, headers: Any = None, bodyProducer: Any = None) -> Any:
        headers.setRawHeaders(b"accept-encoding", [b"identity"])
        return self._agent.request(method, uri, headers, bodyProducer).addCallback(_as_it_came)


def _as_it_came(response: Any) -> Any:
    response.headers.removeHeader(b"content-encoding")
    return response


@implementer(IAgentEndpointFactory)
class EndpointFactory:
    """
    Where the agent connects to.
    """

    def __init__(self, dial: Dial, trust: TLSTrust, clock: Any) -> None:
        self._dial = dial
        self._trust = trust
        self._clock = clock

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        endpoint = self._dial(uri.host.decode("ascii"), uri.port)
        secure = uri.scheme == b"https"
        creator = self._trust.creatorForNetloc(uri.host, uri.port) if secure else None
        return QuietEndpoint(endpoint, creator, self._clock)


@implementer(IStreamClientEndpoint)
class QuietEndpoint:
    """
    Another endpoint, over TLS if there is a `creator`, that does not log each connection.

    As Twisted's wrapClientTLS, but with a clock that is given.
    """

    def __init__(self, endpoint: IStreamClientEndpoint, creator: Any, clock: Any) -> None:
        self._endpoint = endpoint
        self._creator = creator
        self._clock = clock

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        protocolFactory.noisy = False
        if self._creator is None:
            return self._endpoint.connect(protocolFactory)
        factory = TLSMemoryBIOFactory(self._creator, True, protocolFactory, self._clock)
        factory.noisy = False
        connected: Deferred[Any] = self._endpoint.connect(factory)
        return connected.addCallback(lambda outer: outer.wrappedProtocol)
