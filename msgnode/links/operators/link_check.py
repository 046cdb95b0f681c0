"""
The check of a link with a domain: DNS, TCP, certificate, pin, policy, clock, and both directions.

It dials the domain's node, and says a hello that asks whether a link would be accepted; the node answers and
makes none. What the other side can do is not tried out, but told as far as it was seen.
"""

import random
from collections.abc import Callable, Generator, Sequence
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import CancelledError, Deferred, TimeoutError, inlineCallbacks
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.interfaces import IResolutionReceiver
from zope.interface import implementer

from msgnode.config.federation import NODE_PORT, Peer, pin_hash
from msgnode.links.carrier.dialer import text_of
from msgnode.links.carrier.service import LinkService, link_url
from msgnode.links.carrier.service_records import ServiceEndpoint
from msgnode.links.carrier.wire import ACCEPTED
from msgnode.links.operations import Check, LinkStatus
from msgnode.links.operators.link_probe import LinkProbe
from msgnode.links.overlay.trust import Untrusted
from msgnode.links.trust.certificates import NotPinned, pin_of
from msgnode.links.trust.credentials import LinkTLS
from msgnode.transport.endpoints import QuietEndpoint

DNS_SECONDS, TCP_SECONDS, HELLO_SECONDS = 5.0, 5.0, 5.0  # 20 together, with those of a close
MAX_CLOCK_SECONDS = 60.0  # that two clocks may be apart
DAY_SECONDS = 86_400
MAX_ADDRESSES = 10  # that are shown
NAMES = ("dns", "tcp", "certificate", "pin", "policy", "clock", "outgoing", "incoming")


class LinkCheck:
    """
    A check of a link with one domain, with the real parts of links, for one use.
    """

    def __init__(
        self,
        domain: str,
        links: LinkService,
        reactor: Any,
        wall: Callable[[], float],
    ) -> None:
        self._domain = domain
        self._links = links
        self._reactor = reactor
        self._wall = wall
        self._peer = links.table.peer(domain) or Peer(domain=domain)
        self._found: dict[str, Check] = {}

    def run(self, links: Sequence[LinkStatus]) -> Deferred[Sequence[Check]]:
        """
        Check everything; `links` are the links with the domain as they are now.
        """
        self._check_policy()
        self._check_incoming(links)
        checked: Deferred[None] = self._dial()
        return checked.addCallback(lambda done: self._checks())

    def _checks(self) -> list[Check]:
        missing = "the checks before it have failed"
        return [self._found.get(name) or Check(name, "skipped", missing) for name in NAMES]

    def _ok(self, name: str, text: str) -> None:
        self._found[name] = Check(name, "ok", text[:1000])

    def _failed(self, name: str, text: str) -> None:
        self._found[name] = Check(name, "failed", text[:1000])

    def _skipped(self, name: str, text: str) -> None:
        self._found[name] = Check(name, "skipped", text[:1000])

    # -- what needs no network -----------------------------------------------------

    def _check_policy(self) -> None:
        if why := self._links.table.admission.excluded(self._domain):
            self._failed("policy", why)
        else:
            self._ok("policy", f"the configuration allows links with {self._domain}")

    def _check_incoming(self, links: Sequence[LinkStatus]) -> None:
        dialled = [link for link in links if link.dialled_by == "them"]
        if dialled:
            self._ok("incoming", f"{dialled[0].node} has dialled this node, and is linked")
        elif mistakes := self._links.credentials.mistakes():
            self._failed("incoming", mistakes[0])
        elif not self._links.listeners:
            self._skipped("incoming", "this node does not listen for other nodes")
        else:
            where = ", ".join(listener.where for listener in self._links.listeners)
            self._skipped("incoming", f"this node listens on {where}, and {self._domain} has not dialled it")

    # -- what does -------------------------------------------------------------------

    @inlineCallbacks
    def _dial(self) -> Generator[Deferred[Any], Any, None]:
        url = link_url(self._peer)
        host, port = yield self._locate(url)
        addresses = yield _resolve(self._reactor, host).addTimeout(
            DNS_SECONDS / 2, self._reactor, lambda why, seconds: []
        )
        if not addresses:
            self._failed("dns", f"{host} has no address")
            return
        shown = ", ".join(addresses[:MAX_ADDRESSES])
        self._ok("dns", f"{host} is an address" if addresses == [host] else f"{host} is {shown}")
        probe = LinkProbe(self._domain, url, self._links.table.hello(), self._reactor, HELLO_SECONDS)
        endpoint = QuietEndpoint(
            HostnameEndpoint(self._reactor, host, port, TCP_SECONDS),
            LinkTLS(lambda: self._links.credentials, f"msg-node.{self._domain}"),
            self._reactor,
        )
        begin = self._reactor.seconds()
        probe.prove = self._check_certificate
        try:
            yield endpoint.connect(probe.factory).addTimeout(TCP_SECONDS, self._reactor)
        except CancelledError:
            raise
        except (TimeoutError, ConnectingCancelledError):
            if self._reactor.seconds() - begin < TCP_SECONDS:
                raise CancelledError from None  # the check was cancelled
            self._failed("tcp", f"cannot connect to {host}:{port}: no answer in {TCP_SECONDS:.0f} s")
            return
        except Exception as why:  # an endpoint may fail in many ways
            self._failed("tcp", f"cannot connect to {host}:{port}: {text_of(why)}")
            return
        millis = round(1000 * (self._reactor.seconds() - begin))
        self._ok("tcp", f"connected to {host}:{port} in {millis} ms")
        yield probe.done
        self._conclude(probe)

    def _locate(self, url: str) -> Deferred[tuple[str, int]]:
        """
        The host and port of the URL, or without one those that the DNS says.
        """
        parts = urlsplit(url)
        assert parts.hostname is not None
        default = parts.hostname, parts.port or (NODE_PORT if not self._peer.url else 443)
        done: Deferred[tuple[str, int]] = Deferred()
        if self._peer.url:
            done.callback(default)
            return done
        records = ServiceEndpoint(f"_msgnode._tcp.{self._domain}", default, self._reactor, random.Random())
        return records.locate().addTimeout(DNS_SECONDS / 2, self._reactor, lambda why, seconds: default)

    def _check_certificate(self, chain: Sequence[bytes]) -> str:
        """
        Check what the node presented; why no link would be made with it, or "".
        """
        self._check_pin(chain)
        try:
            trusted = self._links.anchors.verify(self._domain, chain)
        except NotPinned as why:
            self._skipped("certificate", "its public key is not pinned, so that nothing else of it counts")
            return str(why)
        except Untrusted as why:
            self._failed("certificate", str(why))
            return str(why)
        days = (trusted.until - self._wall()) / DAY_SECONDS
        self._ok("certificate", f"it proves {self._domain}, for {days:.0f} more days")
        return ""

    def _check_pin(self, chain: Sequence[bytes]) -> None:
        if not self._peer.pins:
            self._skipped("pin", "no pins are configured")
            return
        try:
            found = pin_of(x509.load_der_x509_certificate(chain[0]))
        except Exception:  # a malformed certificate raises errors of many kinds
            self._failed("pin", "the certificate cannot be read")
            return
        if pin_hash(found) in map(pin_hash, self._peer.pins):
            self._ok("pin", f"{found} is pinned")
        else:
            self._failed("pin", f"the public key {found} is not pinned for {self._domain}")

    def _conclude(self, probe: LinkProbe) -> None:
        if not probe.chain:
            self._failed("certificate", f"TLS failed, or it presented none: {probe.reason}")
            return
        self._check_clock(probe.time)
        if probe.refusal:
            self._skipped("outgoing", "its certificate is refused here")
        elif probe.code == ACCEPTED:
            self._ok("outgoing", f"{self._domain} would accept a link that this node dials")
        else:
            self._failed("outgoing", probe.reason or "it did not answer the hello")

    def _check_clock(self, theirs: float | None) -> None:
        if theirs is None:
            self._skipped("clock", "the node does not tell its time")
            return
        ahead = theirs - self._wall()
        which = "ahead of" if ahead > 0 else "behind"
        text = f"its clock is {abs(ahead):.0f} s {which} this node's"
        if abs(ahead) > MAX_CLOCK_SECONDS:
            self._failed("clock", text)
        else:
            self._ok("clock", text)


def _resolve(reactor: Any, host: str) -> Deferred[list[str]]:
    """
    The addresses of a host; empty if there are none.
    """
    done: Deferred[list[str]] = Deferred(lambda cancelled: None)
    if isIPAddress(host) or isIPv6Address(host):
        done.callback([host])
    else:
        reactor.nameResolver.resolveHostName(_Addresses(done), host)
    return done


@implementer(IResolutionReceiver)
class _Addresses:
    """
    A receiver of the addresses of a host.
    """

    def __init__(self, done: Deferred[list[str]]) -> None:
        self._done = done
        self._found: list[str] = []

    def resolutionBegan(self, resolutionInProgress: Any) -> None:
        pass

    def addressResolved(self, address: Any) -> None:
        if address.host not in self._found:
            self._found.append(address.host)

    def resolutionComplete(self) -> None:
        if not self._done.called:
            self._done.callback(self._found)
