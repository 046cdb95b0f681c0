"""
The home domain of an address, which alone resolves it and fans out, and the node of it that takes messages.
"""

from collections.abc import Callable, Set

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from msgnode.links.exchange.counts import ExchangeCounts
from msgnode.links.exchange.node_parts import ExchangeOptions
from msgnode.links.exchange.node_sessions import MAX_NODES, NodeSessions
from msgnode.links.overlay.network import Network
from msgnode.links.stream.streams import Streams
from msgnode.links.wire.node_name import domain_of
from msgnode.policy.decision import addresses
from msgnode.sessions.access.address_ownership import AddressOwnership
from msgnode.sessions.routing import ALLOCATED, LEARNED, OWNED
from msgnode.sessions.session import Session
from msgnode.structures.bounded_cache import BoundedCache

log = Logger()

REPLACE_SECONDS = 15.0  # a node that is only started again is back before
WATCH_SECONDS = 5.0
MAX_LABELS = 16  # of a host that are tried; a longer name has no home
_THIS_NODE = ("mn:", "global:")
_HOLDS = ALLOCATED | OWNED | LEARNED


class HomeDomains:
    """
    The lookup of the home domain of an address, and of the sessions that hold an address of another domain.

    Between domains that contain each other, the longest name that is known wins.
    """

    def __init__(
        self,
        own: str,
        network: Network,
        owners: AddressOwnership,
        resolve: Callable[[str], tuple[Session, ...]],
        options: ExchangeOptions,
    ) -> None:
        self.own = own.casefold()
        self.is_linked = True  # has this node links to other domains?
        self.by_member: Callable[[str], bool] = lambda domain: False  # does another member reach it?
        self._network = network
        self._owners = owners
        self._resolve = resolve
        self._options = options

    def home(self, address: str) -> str:
        """
        The home domain; "" if no known domain is in the address.
        """
        if address.startswith(_THIS_NODE):
            return self.own
        return self.domain_of_host(addresses.split(address)[1])

    def domain_of_host(self, host: str) -> str:
        if host == self.own:
            return host
        if host.count(".") >= MAX_LABELS:
            return ""
        while host:
            if host == self.own or self._network.knows(host) or self.by_member(host):
                return host
            host = host.partition(".")[2]
        return ""

    def is_reached(self, domain: str) -> bool:
        """
        Does this node reach another domain by itself, and not by another member of its cluster?
        """
        return self.is_linked and domain != self.own and self._network.knows(domain)

    def decides(self, address: str, session: Session, is_redirected: bool = False) -> bool:
        """
        Does another domain decide who gets what this session sends to the address, or what a policy here
        redirects to it?
        """
        home = self.home(address)
        if home in ("", self.own):
            return False
        if session.is_node and domain_of(session.runtime) == home:
            return is_redirected  # else it has decided
        return not self._is_held_here(address, home)

    def is_held_elsewhere(self, address: str, session: Session) -> bool:
        """
        Is it an address of another domain that this session may not hold?
        """
        home = self.home(address)
        if home in ("", self.own) or session.bindings.get(address, 0) & ALLOCATED:
            return False
        return address[:9].lower() == "domain://" or not self._may_hold(session, home)

    def _is_held_here(self, address: str, home: str) -> bool:
        """
        Does a session of this node hold the address by right?
        """
        if address[:9].lower() == "domain://":
            return False
        owner = self._owners.owner(address)
        if owner is not None:
            return self._may_hold(owner, home) or bool(owner.bindings.get(address, 0) & ALLOCATED)
        found = self._resolve(address) if home in self._options.triangle else ()
        return len(found) == 1 and bool(found[0].bindings.get(address, 0) & _HOLDS)

    def _may_hold(self, session: Session, home: str) -> bool:
        """
        May the session hold addresses of the domain: everyone may, or the domain asserts its identity.
        """
        if home in self._options.triangle:
            return True
        proof = session.proof
        return proof is not None and bool(session.identity) and self.domain_of_host(proof.idp) == home


class Gateways:
    """
    The choice of a gateway for each domain: the nearest node, kept until it has acknowledged all it was sent.

    A gateway without a route for REPLACE_SECONDS, while another node of its domain has one, is replaced: what
    it was never sent moves to the other. `replaced` is called then; `lost`, when nodes to which something is
    to be delivered have no route any more.
    """

    def __init__(
        self,
        network: Network,
        nodes: NodeSessions,
        streams: Streams,
        clock: IReactorTime,
        counts: ExchangeCounts,
    ) -> None:
        self._network = network
        self._nodes = nodes
        self._streams = streams
        self._clock = clock
        self._counts = counts
        self.lost: Callable[[Set[str]], None] = lambda nodes: None
        self.replaced: Callable[[str], None] = lambda node: None
        self.watched: Callable[[], None] = lambda: None  # called with each look
        self.member: Callable[[str], str] = lambda domain: ""  # which reaches a domain for this node
        self._chosen: BoundedCache[str, str] = BoundedCache(MAX_NODES)
        self._moving: set[str] = set()  # gateways that are being replaced
        self._done: set[str] = set()  # those that were, until they have a route again
        self._lost: dict[str, float] = {}  # since when nodes have no route, and something to deliver
        self._watch: IDelayedCall | None = None

    def start(self) -> None:
        """
        Watches for gateways without a route.
        """
        self._watch = self._clock.callLater(WATCH_SECONDS, self._look)

    def stop(self) -> None:
        if self._watch is not None and self._watch.active():
            self._watch.cancel()

    def choose(self, domain: str) -> str:
        """
        The gateway; "" if no node of the domain was ever known.

        Without a route it is the last one known, in whose stream the message waits. For a domain that only
        another member of the cluster reaches, it is that member.
        """
        chosen = self._chosen.get(domain) or self._undelivered(domain)
        if chosen is not None and (self._streams.undelivered(chosen) or chosen in self._moving):
            self._chosen.put(domain, chosen)
            return chosen
        member = self.member(domain)
        if member:
            return member
        nearest = self._nearest(domain) or chosen
        if nearest is None:
            nearest = next(iter(self._nodes.nodes_of(domain)), "")
        if nearest:
            self._chosen.put(domain, nearest)
        return nearest

    def has_route(self, node: str) -> bool:
        return self._network.has_route(node)

    def _undelivered(self, domain: str) -> str | None:
        """
        After a restart, the gateway that has not acknowledged all.
        """
        nodes = self._nodes.nodes_of(domain)
        return next((node for node in nodes if self._streams.undelivered(node)), None)

    def _nearest(self, domain: str) -> str | None:
        return next(iter(self._network.nodes_of(domain)), None)

    def _look(self) -> None:
        """
        Looks for gateways to replace.
        """
        self._watch = self._clock.callLater(WATCH_SECONDS, self._look)
        self.watched()
        now, before = self._clock.seconds(), self._lost
        without = [node for node in self._streams.waiting() if not self._network.has_route(node)]
        self._lost = {node: before.get(node, now) for node in without}
        if lost := self._lost.keys() - before.keys():
            self.lost(lost)
        self._done &= self._lost.keys()
        for node, since in list(self._lost.items()):
            other = self._nearest(domain_of(node))
            if other is not None and now - since >= REPLACE_SECONDS and node not in self._done:
                self._replace(node, other)

    def _replace(self, node: str, other: str) -> None:
        domain = domain_of(node)
        self._moving.add(node)
        self._done.add(node)

        def moved() -> None:
            self._moving.discard(node)
            if self._chosen.get(domain) == node:
                self._chosen.put(domain, other)
                self.replaced(node)

        if self._chosen.get(domain) == node:
            self._counts.note(domain, "gateway-replaced")
            log.warn(
                "{node} is not reached; messages for {domain} go to {other}",
                node=node,
                domain=domain,
                other=other,
            )
        self._streams.replace(node, other, moved)
