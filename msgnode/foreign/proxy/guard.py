"""
The addresses that the node connects to for a foreign domain.

A client chooses the host, by the `to` of a message, and the owner of a name chooses its addresses. So the
addresses are checked after resolution, and the connection is made to a checked address: a second resolution
could have another result (DNS rebinding).
"""

import socket
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.address import IPv4Address as TCP4
from twisted.internet.address import IPv6Address as TCP6
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.error import DNSLookupError
from twisted.internet.interfaces import IHostnameResolver, IResolutionReceiver, IStreamClientEndpoint
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from zope.interface import implementer

from msgnode.transport.endpoints import Dial

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

MAX_ADDRESSES = 16  # of one name; the others are not used
CONNECT_SECONDS = 10.0  # for each address
RESOLVE_SECONDS = 10.0
HEAD_BYTES = 64 * 1024  # of a response, with what TLS adds
# The last four bytes of these are an IPv4 address (RFC 6052, RFC 4291), to which a translator connects.
_EMBEDDING = tuple(ip_network(text) for text in ("64:ff9b::/96", "::/96", "::ffff:0:0:0/96"))
# Of special use, which Python 3.11 calls global.
_SPECIAL = tuple(ip_network(text) for text in ("192.0.0.0/24", "64:ff9b:1::/48"))


class NotPermitted(Exception):
    """
    A host that the node does not connect to. The text says which, and why.
    """


class AddressGuard:
    """
    The check of hosts before a connection: only public addresses, and what the operator lists.

    `listed` has addresses, networks and names, each also with a port: `127.0.0.1`, `10.1.0.0/16`,
    `node.internal:443`, `[fd00::1]:443`. A name that is listed may have private addresses, too, but only
    `localhost` those of this machine. `leads_here` knows the public addresses of this machine, where more may
    be open to itself than to others.
    """

    def __init__(
        self,
        resolver: IHostnameResolver,
        clock: Any,
        listed: Iterable[str] = (),
        leads_here: Callable[[str], bool] = lambda address: False,
    ) -> None:
        self._resolver = resolver
        self._clock = clock
        self._leads_here = leads_here
        self._networks: list[tuple[Network, int]] = []
        self._names: set[tuple[str, int]] = set()
        for text in listed:
            self._list(text)

    def _list(self, text: str) -> None:
        host, port = split_port(text)
        try:
            self._networks.append((ip_network(host, strict=False), port))
        except ValueError:
            self._names.add((host, port))

    def check(self, host: str, port: int) -> Deferred[list[str]]:
        """
        The addresses of a host, all of them checked. Fails with NotPermitted, or with DNSLookupError.

        A name of which one address is refused is refused: no owner of a public name needs that.
        """
        if isIPAddress(host) or isIPv6Address(host):  # a resolver would take a thread for it
            return maybeDeferred(self._checked, [host], host, port)
        resolving = _Resolution(host)
        late = self._clock.callLater(RESOLVE_SECONDS, resolving.found.cancel)
        self._resolver.resolveHostName(resolving, host, port)

        def cancel_late(result: Any) -> Any:
            if late.active():
                late.cancel()
            return result

        return resolving.found.addBoth(cancel_late).addCallback(self._checked, host, port)

    def _checked(self, found: list[str], host: str, port: int) -> list[str]:
        name = host.lower()
        has_name = bool({(name, port), (name, 0)} & self._names)
        for text in found:
            address = ip_address(text.partition("%")[0])
            if self._is_listed(address, port) or (has_name and name == "localhost"):
                continue
            if not is_public(address) and (not has_name or is_beside(address)):
                raise NotPermitted(
                    f"{host}:{port} has the address {text}, which is not public and not listed"
                )
            if self._leads_here(text):
                raise NotPermitted(
                    f"{host}:{port} has the address {text}, which is this machine's and not listed"
                )
        return found

    def _is_listed(self, address: Address, port: int) -> bool:
        return any(
            address in network for network, only in self._networks if only in (0, port)
        )  # an address is in no network of the other version

    def endpoint(self, host: str, port: int) -> IStreamClientEndpoint:
        """
        An endpoint that connects to checked addresses of the host, in turn; a `Dial` for HTTP agents.
        """
        return GuardedEndpoint(self._clock, self.check, host, port)


def bounded(dial: Dial, most: int) -> Dial:
    """
    The dial for responses with a body of at most so many bytes.
    """
    return lambda host, port: BoundedEndpoint(dial(host, port), most + most // 8 + HEAD_BYTES)


@implementer(IStreamClientEndpoint)
class GuardedEndpoint:
    """
    A client endpoint that resolves once and connects to what was checked, one address after the other.
    """

    def __init__(
        self, reactor: Any, check: Callable[[str, int], Deferred[list[str]]], host: str, port: int
    ) -> None:
        self._reactor = reactor
        self._check = check
        self._host = host
        self._port = port

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        return Deferred.fromCoroutine(self._connect(protocolFactory))

    async def _connect(self, factory: Any) -> Any:
        failure: BaseException = DNSLookupError(f"{self._host} has no address")
        for address in await self._check(self._host, self._port):
            kind = TCP6ClientEndpoint if ":" in address else TCP4ClientEndpoint
            try:
                return await kind(self._reactor, address, self._port, CONNECT_SECONDS).connect(factory)
            except CancelledError:
                raise
            except Exception as why:
                failure = why
        raise failure


@implementer(IStreamClientEndpoint)
class BoundedEndpoint:
    """
    A client endpoint whose connections end after so many bytes have come: a server of HTTP can send headers
    without end.
    """

    def __init__(self, endpoint: IStreamClientEndpoint, most: int) -> None:
        self._endpoint = endpoint
        self._most = most

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        factory = _BoundedFactory(protocolFactory)
        factory.most = self._most
        connected: Deferred[Any] = self._endpoint.connect(factory)
        return connected.addCallback(lambda wrapper: wrapper.wrappedProtocol)


class _Bounded(ProtocolWrapper):
    """
    A connection that counts what comes.
    """

    transport: Any
    factory: Any
    _came = 0

    def dataReceived(self, data: bytes) -> None:
        self._came += len(data)
        if self._came > self.factory.most:
            self.transport.abortConnection()
        else:
            super().dataReceived(data)


class _BoundedFactory(WrappingFactory):
    """
    The factory of such connections.
    """

    protocol = _Bounded
    noisy = False
    most = 0


@implementer(IResolutionReceiver)
class _Resolution:
    """
    The addresses of one name, as the resolver finds them.
    """

    def __init__(self, host: str) -> None:
        self.found: Deferred[list[str]] = Deferred(self._give_up)
        self._host = host
        self._addresses: list[str] = []

    def _give_up(self, found: Deferred[list[str]]) -> None:
        found.errback(DNSLookupError(f"the addresses of {self._host} were not found in time"))

    def resolutionBegan(self, resolutionInProgress: Any) -> None:
        pass

    def addressResolved(self, address: Any) -> None:
        if isinstance(address, TCP4 | TCP6) and len(self._addresses) < MAX_ADDRESSES:
            self._addresses.append(address.host)

    def resolutionComplete(self) -> None:
        if self.found.called:
            return
        if self._addresses:
            self.found.callback(self._addresses)
        else:
            self.found.errback(DNSLookupError(f"{self._host} has no address"))


def leads_here(address: str) -> bool:
    """
    Is it an address of this machine? Then it would be the source of what is sent there. Nothing is sent.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            found: str = probe.getsockname()[0]
            return found == address
    except OSError:
        return False  # no way leads there


def is_beside(address: Address) -> bool:
    """
    Does the address lead to this machine, or to what is only for it, such as the metadata of a cloud?

    A name that is listed may have a private address, but not such a one: perhaps its owner is a stranger.
    """
    inner = (address.ipv4_mapped or _embedded(address)) if isinstance(address, IPv6Address) else None
    if inner is not None and inner != IPv4Address(0):
        address = inner
    return address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast


def is_public(address: Address) -> bool:
    """
    Is this a unicast address of the Internet, also where it stands for an IPv4 address?
    """
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or _embedded(address)
        if inner is not None:
            return is_public(inner)
        if address.teredo is not None or address.is_site_local:
            return False
    special = address.is_multicast or address.is_reserved or address.is_link_local or address.is_unspecified
    return address.is_global and not special and not any(address in network for network in _SPECIAL)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    if any(address in network for network in _EMBEDDING):
        return IPv4Address(address.packed[-4:])
    return None


def split_port(text: str) -> tuple[str, int]:
    """
    The host in lower case, without brackets, and the port, 0 if there is none.
    """
    host, colon, port = text.strip().lower().rpartition(":")
    if colon and port.isdecimal() and (":" not in host or host.startswith("[")):
        return host.strip("[]"), int(port)
    return text.strip().lower().strip("[]"), 0
