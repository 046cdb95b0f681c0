"""
Endpoints that log no line of Twisted's, and client endpoints for HTTP: a base URL becomes connections over
TCP, TLS or a UNIX socket.

Base URLs are `http://`, `https://` and `unix:/path`. Proxies of the environment are not used. Over TLS, the
certificate must name the host and be signed by a CA in `ca`, or by one that the system trusts.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint, IStreamServerEndpoint
from twisted.internet.ssl import (
    PrivateCertificate,
    optionsForClientTLS,
    platformTrust,
    trustRootFromCertificates,
)
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.log import callWithContext
from twisted.web.client import URI, Agent, HTTPConnectionPool
from twisted.web.iweb import IAgent, IAgentEndpointFactory, IPolicyForHTTPS
from zope.interface import implementer

from msgnode.config.schema import ConfigError
from msgnode.config.sections import BackEndOptions
from msgnode.transport import pem

IDLE_SECONDS = 8.0  # seconds that an idle connection is kept; load balancers commonly close it after 10

Dial = Callable[[str, int], IStreamClientEndpoint]


def agent_for(
    base: str, options: BackEndOptions, reactor: Any, dial: Dial | None = None
) -> tuple[str, Agent]:
    """
    The prefix of each path, and the HTTP agent for a base URL. ConfigError if a certificate file is unusable.
    """
    pool = HTTPConnectionPool(reactor)
    pool.maxPersistentPerHost = options.in_flight
    pool.cachedConnectionTimeout = IDLE_SECONDS  # type: ignore[assignment]
    pool.retryAutomatically = False  # the HTTP client decides which requests are safe to repeat
    wait = options.deadline_seconds / 2  # leaves time for a second attempt

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
    The TLS policy of a back end: which server certificates are trusted, and our client certificate.

    Both come from the keys `ca`, `cert` and `key` of its options.
    """

    def __init__(self, options: BackEndOptions) -> None:
        self._root: Any = platformTrust()
        self._own: PrivateCertificate | None = None
        try:
            if options.ca:
                self._root = trustRootFromCertificates(pem.authorities(options.ca))
            if options.cert:
                self._own = pem.private_certificate(options.cert, options.key or options.cert)
        except pem.PEMError as why:
            raise ConfigError(str(why)) from why

    def creatorForNetloc(self, hostname: bytes, port: int) -> Any:
        return optionsForClientTLS(hostname.decode("ascii"), self._root, self._own)


@implementer(IAgent)
class IdentityEncodingAgent:
    """
    An agent that asks for uncompressed responses, and does not decompress others: a small response could
    become huge.
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
    A factory of the endpoints that the agent connects to.
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
    A wrapper around an endpoint that does not log each connection; over TLS if there is a `creator`.

    It is Twisted's wrapClientTLS with an injected clock.
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


@implementer(IStreamServerEndpoint)
class QuietServerEndpoint:
    """
    A wrapper around an endpoint that listens without Twisted's line "... starting on ...", which ports log
    whatever `noisy` says: the caller logs where it listens.
    """

    def __init__(self, endpoint: IStreamServerEndpoint) -> None:
        self._endpoint = endpoint

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        # Observers do not write events without a text.
        listening: Deferred[Any] = callWithContext({"log_format": ""}, self._endpoint.listen, protocolFactory)
        return listening
