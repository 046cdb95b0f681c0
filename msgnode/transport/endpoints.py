"""
How a back end's base URL becomes connections: TCP, TLS, or a UNIX socket.

`http://`, `https://` and `unix:/path` are understood.  The environment's proxies
are not.  Over TLS the certificate must name the host, and be signed by one in
`ca`, or else by one that the machine trusts.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.ssl import (
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
from msgnode.transport import pem

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
    wait = options.deadline_seconds / 2  # so that there is time to try again

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
    The trust in a back end's certificate, and our own certificate: `ca`, `cert` and `key` of the options.
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
    Makes the endpoints that the agent connects to.
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
