"""
Admission: which domains may have a link with this node, and whether a hello is one of them.
"""

from collections.abc import Callable, Sequence

from msgnode.config.federation import Peer
from msgnode.config.schema import Config
from msgnode.links.carrier.link import CLIENT, SERVER
from msgnode.links.carrier.wire import BAD_REQUEST, FORBIDDEN, Refused
from msgnode.links.overlay.trust import TrustedKey
from msgnode.links.trust.certificates import DomainTrust, UntrustedCertificate
from msgnode.links.wire.datagram import MAX_DATAGRAM_BYTES
from msgnode.links.wire.entries import Hello
from msgnode.links.wire.node_name import parse

MIN_MAX_BYTES = 4 * MAX_DATAGRAM_BYTES  # that a peer must take in one message
POLICY_RETRY_SECONDS = 300.0  # for a peer that the configuration or its certificate excludes


class Admission:
    """
    The decision about links, by the configuration as it is now and by certificates.

    Each method raises Refused.
    """

    def __init__(self, config: Config, anchors: DomainTrust) -> None:
        self.anchors = anchors
        # Why an operator's order allows no link with a domain; "" if none does.
        self.order: Callable[[str], str] = lambda domain: ""
        self._config = config
        self._peers: list[Peer] = []  # the list that `_by_domain` was made of
        self._by_domain: dict[str, Peer] = {}

    def peer(self, domain: str) -> Peer | None:
        peers = self._config.peer
        if peers is not self._peers:  # asked for each datagram; a reload brings another list
            self._peers, self._by_domain = peers, {peer.domain: peer for peer in reversed(peers)}
        return self._by_domain.get(domain)

    def excluded(self, domain: str) -> str:
        """
        Why the configuration, or an order, allows no link with the domain; "" if it may have one.
        """
        if domain == self._config.domain:
            return f"the domain {domain} is this node's own"
        if order := self.order(domain):
            return order
        accept, peer = self._config.federation.accept, self.peer(domain)
        if accept == "none":
            return "this node has no links with other domains"
        if peer is None and accept == "peers":
            return f"the domain {domain} is not a peer of this node"
        if peer is not None and peer.link == "none":
            return f"this node has no direct links with {domain}"
        return ""

    def check_hello(self, hello: Hello, chain: Sequence[bytes], dialled: str) -> TrustedKey:
        """
        The proof that the node is of its domain, which is `dialled` if this node dialled.
        """
        try:
            domain = parse(hello.node).domain
        except ValueError as why:
            raise Refused(BAD_REQUEST, str(why)) from None
        if hello.kind not in (SERVER, CLIENT):
            raise Refused(BAD_REQUEST, f"expected the kind {SERVER} or {CLIENT}, found {hello.kind!r}")
        if hello.max_bytes < MIN_MAX_BYTES:
            text = f"expected max_bytes of {MIN_MAX_BYTES} or more, found {hello.max_bytes}"
            raise Refused(BAD_REQUEST, text)
        if dialled and domain != dialled:
            raise Refused(
                FORBIDDEN, f"expected a node of {dialled}, found {hello.node}", POLICY_RETRY_SECONDS
            )
        return self.check(domain, chain)

    def check(self, domain: str, chain: Sequence[bytes]) -> TrustedKey:
        """
        May the domain have a link with this node, and does the chain prove it?
        """
        if why := self.excluded(domain):
            raise _forbidden(why)
        try:
            return self.anchors.verify(domain, chain)
        except UntrustedCertificate as why:
            raise _forbidden(str(why)) from None


def _forbidden(reason: str) -> Refused:
    return Refused(FORBIDDEN, reason, POLICY_RETRY_SECONDS)
