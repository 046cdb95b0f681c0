"""
Permissions: may a subscriber at another node hear an address of this domain?
"""

from msgnode.links.exchange.counts import ExchangeCounts
from msgnode.links.exchange.domains import HomeDomains
from msgnode.links.exchange.envelopes import check_identity
from msgnode.links.exchange.node_parts import NodeParts
from msgnode.links.exchange.node_sessions import Arrival, NodeSessions, peer_of
from msgnode.links.exchange.status import told
from msgnode.links.exchange.subscriptions.grant_table import Grant, Identity
from msgnode.links.wire.node_name import domain_of
from msgnode.policy.enforcement.points import SUBSCRIBE
from msgnode.protocol.address import MAX_ADDRESS_CHARS, Domain, is_multicast
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message, compose
from msgnode.sessions.routing import RUNTIMES
from msgnode.sessions.session import Session
from msgnode.structures.bounded_cache import BoundedCache

MAX_DECISIONS = 10_000  # answers of the policies that are cached
MAX_CACHED_BYTES = 2048  # of an address with its subscriber, in the cache
PERSONAL = ("hyperty://", *RUNTIMES)  # addresses of one client each

Verdict = tuple[int, str, str]  # code, text, reason
PERMITTED: Verdict = 200, "", ""


class Permissions:
    """
    The decisions about subscribers at other nodes, cached until the policies change.
    """

    def __init__(
        self, node: NodeParts, homes: HomeDomains, nodes: NodeSessions, counts: ExchangeCounts
    ) -> None:
        self._node = node
        self._homes = homes
        self._nodes = nodes
        self._counts = counts
        self._domain = Domain(node.config.domain)
        self._decided: BoundedCache[tuple[str, str, Identity], Verdict] = BoundedCache(MAX_DECISIONS)
        self._program = node.enforcement.program

    @property
    def is_outdated(self) -> bool:
        """
        Have the policies changed since the last decision?
        """
        return self._node.enforcement.program is not self._program

    def decide(self, source: str, address: str, grant: Grant) -> Verdict:
        """
        May the subscriber hear the address? The answer is what it may know.
        """
        if self.is_outdated:
            self._program = self._node.enforcement.program
            self._decided.clear()
        key = address, f"{source} {grant.from_}", grant.identity
        known = self._decided.get(key)
        if known is None:
            known = self._decide_now(source, address, grant)
            if len(address) + grant.size <= MAX_CACHED_BYTES:
                self._decided.put(key, known)
        return known

    def _decide_now(self, source: str, address: str, grant: Grant) -> Verdict:
        is_exposed = self._node.config.policy.expose_reason
        try:
            _check_lengths(address, grant)
            self._check(source, address, grant)
        except Rejected as why:
            self._counts.note(source, why.reason)
            return told(why.code, str(why), why.reason, is_exposed)
        return PERMITTED

    def _check(self, source: str, address: str, grant: Grant) -> None:
        home = self._homes.home
        if home(grant.from_) != domain_of(source) or home(address) != self._homes.own:
            raise Rejected("a node asks for its own clients, and for addresses of this domain", 403, "peer")
        if self._domain.owns(address):
            raise Rejected(f"{address} is the node's own address", 403, "reserved-address")
        if self._node.routes.runtime(address) is not None:
            raise Rejected(f"{address} belongs to a runtime", 403, "not-your-address")
        session = self._nodes.find(source)
        if session is None:
            return
        topic = self._topic(source, address, grant, session)
        if _is_personal(address) and not self._node.enforcement.names(
            SUBSCRIBE, topic, session, address.partition("://")[0] + "://"
        ):
            raise Rejected(f"{address} is the address of one client", 403, "not-your-address")
        policy = self._node.router.policy
        if policy is not None:
            policy.check(SUBSCRIBE, topic, session)

    def _topic(self, source: str, address: str, grant: Grant, session: Session) -> Message:
        """
        The subscription as a message, for the policies.
        """
        topic = compose(0, "subscribe", grant.from_, address, {"resources": [address]})
        far = peer_of(source, 1, dict(grant.identity))
        topic.origin = Arrival(far, session, (b"", 0), lambda node, data: None)
        return topic


def _check_lengths(address: str, grant: Grant) -> None:
    for text in (address, grant.from_):
        if not text or len(text) > MAX_ADDRESS_CHARS:
            raise Rejected(
                f"an address has 1 to {MAX_ADDRESS_CHARS} characters, not {len(text)}", 413, "too-long"
            )
    check_identity(dict(grant.identity))


def _is_personal(address: str) -> bool:
    """
    Is it the address of a client itself, at which it gets what is sent to it alone?
    """
    return address.lower().startswith(PERSONAL) and not is_multicast(address)
