"""
The links of the carrier, for operators: those that are there, and attempts to have one.
"""

from collections.abc import Callable
from typing import Literal

from msgnode.links.carrier.dialer import Dialer
from msgnode.links.carrier.node_link import NodeLink
from msgnode.links.carrier.service import LinkService
from msgnode.links.operations import LinkState, LinkStatus, OwnCertificates
from msgnode.links.overlay.overlay import Overlay
from msgnode.links.peer_counts import PeerCounts
from msgnode.links.wire.node_name import domain_of

DAY_SECONDS = 86_400.0


class LinkView:
    """
    A view of the links of one node. `wall` is the time of day, for the end of certificates.
    """

    def __init__(self, links: LinkService, overlay: Overlay, wall: Callable[[], float]) -> None:
        self._links = links
        self._overlay = overlay
        self._wall = wall

    def domains(self) -> set[str]:
        """
        The domains that are linked, or dialled.
        """
        return {link.domain for link in self._links.table.links.values()} | self._links.dialers.keys()

    def own_certificates(self) -> OwnCertificates:
        end, links = self._links.anchors.lists_end, self._links
        list_days = (end - self._wall()) / DAY_SECONDS if end < float("inf") else None
        return OwnCertificates(certificate_days=links.credentials.days_left, list_days=list_days)

    def of(self, domain: str) -> tuple[LinkStatus, ...]:
        """
        The links with a domain; one that is attempted, or configured, if there are none.
        """
        links = [link for link in self._links.table.links.values() if link.domain == domain]
        if links:
            return tuple(self._linked(link) for link in sorted(links, key=lambda link: link.node))
        dialer = self._links.dialers.get(domain)
        if dialer is not None:
            return (self._dialled(dialer),)
        return (self._configured(domain),) if self._links.table.peer(domain) is not None else ()

    def add_traffic(self, domain: str, counts: PeerCounts) -> None:
        """
        Add the bytes of the connections that are there now.
        """
        for connection in self._links.table.connections:
            of = domain_of(connection.node) if connection.node else connection.dialled
            if of == domain:
                counts.bytes_in += connection.bytes_in
                counts.bytes_out += connection.bytes_out

    def domains_with_traffic(self) -> set[str]:
        connections = self._links.table.connections
        return {domain_of(each.node) if each.node else each.dialled for each in connections}

    def _linked(self, link: NodeLink) -> LinkStatus:
        neighbour = self._overlay.neighbours.get(link.node)
        connection = link.connection
        proof = connection.proof
        dialer = self._links.dialers.get(link.domain)
        dialled_by: Literal["us", "them"] = "us" if connection.dialled else "them"
        counts = neighbour is not None and neighbour.counts
        error, ago = self._fault(link.node, link.domain)
        return LinkStatus(
            domain=link.domain,
            node=link.node,
            state="up" if counts else "synchronising",
            state_seconds=self._since(neighbour.since) if neighbour is not None else None,
            url=dialer.url if connection.dialled and dialer is not None else "",
            dialled_by=dialled_by,
            round_trip=link.round_trip,
            cost=neighbour.cost.advertised if neighbour is not None else None,
            is_cost_fixed=link.cost is not None,
            transit=link.transit,
            queue=tuple(link.queue.lengths()),
            queue_bytes=link.queue.bytes,
            bytes_in=connection.bytes_in,
            bytes_out=connection.bytes_out,
            certificate_days=(proof.until - self._wall()) / DAY_SECONDS if proof is not None else None,
            last_error=error,
            last_error_seconds=ago,
        )

    def _dialled(self, dialer: Dialer) -> LinkStatus:
        error, ago = self._fault(dialer.node, dialer.domain)
        return LinkStatus(
            domain=dialer.domain,
            node=dialer.node,
            state=self._attempt(dialer),
            url=dialer.url,
            transit=self._transit(dialer.domain),
            last_error=error,
            last_error_seconds=ago,
        )

    def _attempt(self, dialer: Dialer) -> LinkState:
        if dialer.is_resting:
            return "refused"
        if dialer.is_waiting:
            return "waiting"
        connections = self._links.table.connections
        is_open = any(each.dialled == dialer.domain and each.chain for each in connections)
        return "authenticating" if is_open else "connecting"

    def _configured(self, domain: str) -> LinkStatus:
        error, ago = self._fault(domain)
        return LinkStatus(
            domain=domain, transit=self._transit(domain), last_error=error, last_error_seconds=ago
        )

    def _transit(self, domain: str) -> bool:
        peer = self._links.table.peer(domain)
        return peer is not None and peer.transit

    def _fault(self, *names: str) -> tuple[str, float | None]:
        """
        The last fault that is known by one of these names, and how long ago it was.
        """
        faults = [found for name in names if name and (found := self._links.table.faults.get(name))]
        if not faults:
            return "", None
        text, when = max(faults, key=lambda fault: fault[1])
        return text, self._since(when)

    def _since(self, when: float) -> float:
        return round(self._overlay.seconds() - when, 3)
