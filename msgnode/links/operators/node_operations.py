"""
The LinkOperations of a node with links: what its parts know, and the orders of operators put into effect.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from typing import Any

from twisted.internet.defer import Deferred

from msgnode.links.admin_states import AdminStates
from msgnode.links.carrier.service import LinkService
from msgnode.links.exchange.exchange import Exchange
from msgnode.links.operations import (
    AdminState,
    Check,
    DomainStatus,
    LinkName,
    LinkStatus,
    NetworkMap,
    NotAPeer,
    OwnCertificates,
    Route,
)
from msgnode.links.operators.link_check import LinkCheck
from msgnode.links.operators.link_view import LinkView
from msgnode.links.operators.overlay_view import OverlayView
from msgnode.links.operators.stream_view import StreamView
from msgnode.links.peer_counts import OTHER, PeerCounts
from msgnode.links.stream.node_streams import NodeStreams
from msgnode.links.wire.node_name import domain_of, parse
from msgnode.protocol.errors import Rejected

LinkChecker = Callable[[str, Sequence[LinkStatus]], Deferred[Sequence[Check]]]


class NodeOperations:
    """
    The operators' view of the links of this node, and their orders; LinkOperations.

    `changed` puts changed administrative states into effect; `peers_of` gives the configured domains. `own`
    is the domain of this node, which no order may concern: its links are those of a cluster.
    """

    def __init__(
        self,
        peers_of: Callable[[], Collection[str]],
        states: AdminStates,
        streams: NodeStreams,
        overlay: OverlayView,
        link_view: LinkView,
        stream_view: StreamView,
        check: LinkChecker,
        now: Callable[[], float],
        changed: Callable[[], None],
        exchange: Exchange | None = None,
        own: str = "",
    ) -> None:
        self._own = own
        self._peers_of = peers_of
        self._states = states
        self._streams = streams
        self._overlay = overlay
        self._link_view = link_view
        self._stream_view = stream_view
        self._check = check
        self._now = now
        self._changed = changed
        self._exchange = exchange

    # -- what is seen -----------------------------------------------------------------

    @property
    def peers(self) -> Collection[str]:
        return self._peers_of()

    def domains(self) -> Sequence[DomainStatus]:
        return [self._status(domain) for domain in sorted(self._known())]

    def domain(self, domain: str) -> DomainStatus:
        self._check_known(domain)
        return self._status(domain)

    def spool(self) -> tuple[int, int]:
        return self._stream_view.spool

    def own_certificates(self) -> OwnCertificates:
        return self._link_view.own_certificates()

    def counts(self) -> Mapping[str, PeerCounts]:
        """
        The counts so far, with those of the connections and streams of this moment.
        """
        found = {label: copy(counts) for label, counts in self._streams.peer_counts.counts.items()}
        for domain in self._link_view.domains_with_traffic():
            self._link_view.add_traffic(domain, found.get(domain) or found[OTHER])
        for domain, saved in self._stream_view.saved().items():
            (found.get(domain) or found[OTHER]).bytes_saved += saved
        return found

    def map(self) -> NetworkMap:
        return self._overlay.map()

    def explain(self, address: str, without: Collection[LinkName], costs: Mapping[LinkName, int]) -> Route:
        return self._overlay.explain(address, without, costs)

    def check(self, domain: str) -> Deferred[Sequence[Check]]:
        self._check_known(domain)
        return self._check(domain, self._link_view.of(domain))

    # -- orders -----------------------------------------------------------------------

    def ban(self, domain: str) -> None:
        _check_domain(domain)
        self._refuse_own(domain)
        self._set(domain, "banned")

    def pause(self, domain: str) -> None:
        self._check_known(domain)
        self._refuse_own(domain)
        self._set(domain, "paused")

    def resume(self, domain: str) -> None:
        self._check_known(domain)
        self._set(domain, "enabled")

    def drain(self, domain: str) -> None:
        self._check_known(domain)
        self._refuse_own(domain)
        self._set(domain, "draining")

    def forget(self, domain: str) -> int:
        self._check_known(domain)
        dropped = 0
        for node in list(self._streams.peers):
            if domain_of(node) == domain:
                dropped += self._streams.forget(node)
        return dropped

    def _set(self, domain: str, state: AdminState) -> None:
        self._states.set(domain, state)
        self._changed()

    # -- within -----------------------------------------------------------------------

    def _known(self) -> set[str]:
        return {*self.peers, *self._states, *self._link_view.domains(), *self._stream_view.domains()}

    def _check_known(self, domain: str) -> None:
        _check_domain(domain)
        if domain not in self._known():
            raise NotAPeer(domain, self.peers)

    def _refuse_own(self, domain: str) -> None:
        if domain == self._own:
            raise Rejected(f"{domain} is this node's own domain; to take the node out of a cluster, stop it")

    def _status(self, domain: str) -> DomainStatus:
        exchange = self._exchange
        return DomainStatus(
            domain=domain,
            is_configured=domain in self.peers,
            admin_state=self._states.of(domain),
            cost=self._overlay.cost(domain),
            links=self._link_view.of(domain),
            streams=self._stream_view.of(domain, self._now()),
            grants=exchange.grants.table.count(domain) if exchange is not None else 0,
            upstream=exchange.upstream.count(domain) if exchange is not None else 0,
        )


def order_text(states: AdminStates, domain: str) -> str:
    """
    Why an order allows no link with the domain; "" if none does.
    """
    state = states.of(domain)
    return (
        f"the operators of this node have {state} links with {domain}"
        if state in ("paused", "banned")
        else ""
    )


def check_new(states: AdminStates, domain: str, is_answer: bool = False) -> None:
    """
    Raises Rejected if an order allows no new message for the domain. Answers pass while it is drained.
    """
    state = states.of(domain)
    if state == "banned" or (state == "draining" and not is_answer):
        raise Rejected(
            f"the operators of this node accept no message for {domain}: it is {state}", 403, "policy"
        )


def _check_domain(domain: str) -> None:
    try:
        parse(f"mn://{domain}/x")
    except ValueError:
        raise Rejected(f"expected a domain such as b.example, found {domain[:80]!r}") from None


def make_operations(
    links: LinkService,
    streams: NodeStreams,
    overlay: OverlayView,
    link_view: LinkView,
    stream_view: StreamView,
    states: AdminStates,
    peers_of: Callable[[], Collection[str]],
    changed: Callable[[], None],
    reactor: Any,
    wall: Callable[[], float],
    exchange: Exchange | None = None,
    own: str = "",
) -> NodeOperations:
    """
    The operations of a node; streams, links and the exchange count by peer in one table from now on.
    """
    links.table.peer_counts = streams.peer_counts
    if exchange is not None:
        exchange.counts.peers = streams.peer_counts
    links.table.admission.order = lambda domain: order_text(states, domain)

    def check(domain: str, found: Sequence[LinkStatus]) -> Deferred[Sequence[Check]]:
        return LinkCheck(domain, links, reactor, wall).run(found)

    return NodeOperations(
        peers_of,
        states,
        streams,
        overlay,
        link_view,
        stream_view,
        check,
        reactor.seconds,
        changed,
        exchange,
        own,
    )
