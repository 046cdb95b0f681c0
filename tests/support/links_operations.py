"""
Links in memory as operators see them: a LinkOperations over a map that the test draws.
"""

from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count

import msgspec
from twisted.internet.defer import Deferred, succeed

from msgnode.links.operations import (
    AdminState,
    Check,
    DomainStatus,
    Hop,
    LinkName,
    LinkStatus,
    MapLink,
    MapNode,
    NetworkMap,
    NotAPeer,
    OwnCertificates,
    Path,
    Route,
    StreamStatus,
)
from msgnode.links.peer_counts import PeerCounts, PeerTable
from msgnode.links.wire.node_name import domain_of, parse
from msgnode.protocol.errors import Rejected

A, B, C, D = (f"mn://{name}.example/n1" for name in "abcd")
CHECKS = (
    Check("dns", "ok", "msg-node.b.example is 192.0.2.7"),
    Check("tcp", "ok", "connected to 192.0.2.7:9093 in 12 ms"),
    Check("certificate", "failed", "it ended on 2026-11-20"),
    Check("pin", "skipped", "no pins are configured"),
)


class MemoryOperations:
    """
    The links of a node whose map the test draws: `join` and `cut`. A domain is configured by `add_peer`.
    """

    def __init__(self, node: str = A) -> None:
        self.node = node
        self.costs: dict[tuple[str, str], int] = {}  # of both directions, the ends in order
        self.kinds: dict[str, str] = {node: "SERVER"}
        self.statuses: dict[str, list[LinkStatus]] = {}
        self.streams: dict[str, list[StreamStatus]] = {}
        self.admin_states: dict[str, AdminState] = {}
        self.checks: Deferred[Sequence[Check]] | None = None  # None: CHECKS, at once
        self.table = PeerTable(())
        self.used = 0, 1 << 30
        self.list_days: float | None = None
        self._peers: dict[str, None] = {}

    # -- what the test draws ---------------------------------------------------

    def add_peer(self, domain: str, *links: LinkStatus, streams: Sequence[StreamStatus] = ()) -> None:
        self._peers[domain] = None
        self.statuses[domain] = list(links) or [LinkStatus(domain=domain)]
        self.streams[domain] = list(streams)
        self.table.apply(self._peers)

    def add_stranger(self, domain: str, *links: LinkStatus, streams: Sequence[StreamStatus] = ()) -> None:
        """
        Link a domain that is not configured.
        """
        self.statuses[domain] = list(links)
        self.streams[domain] = list(streams)

    def join(self, one: str, other: str, cost: int) -> None:
        self.costs[min(one, other), max(one, other)] = cost
        for node in (one, other):
            self.kinds.setdefault(node, "SERVER")

    def cut(self, one: str, other: str) -> None:
        del self.costs[min(one, other), max(one, other)]

    # -- what operators see ----------------------------------------------------

    def spool(self) -> tuple[int, int]:
        return self.used

    @property
    def peers(self) -> Collection[str]:
        return self._peers

    def domains(self) -> Sequence[DomainStatus]:
        return [self.domain(domain) for domain in sorted(self.statuses)]

    def domain(self, domain: str) -> DomainStatus:
        self._check_known(domain)
        paths = self._paths(self.costs)
        costs = [path.cost for node, path in paths.items() if domain_of(node) == domain]
        return DomainStatus(
            domain=domain,
            is_configured=domain in self._peers,
            admin_state=self.admin_states.get(domain, "enabled"),
            cost=min(costs, default=None),
            links=tuple(self.statuses.get(domain, ())),
            streams=tuple(self.streams.get(domain, ())),
        )

    def own_certificates(self) -> OwnCertificates:
        return OwnCertificates(certificate_days=80.5, list_days=self.list_days)

    def counts(self) -> Mapping[str, PeerCounts]:
        return self.table.counts

    def map(self) -> NetworkMap:
        paths = self._paths(self.costs)
        names = [self.node, *sorted(self.kinds.keys() - {self.node})]
        nodes = [
            MapNode(
                node=name,
                kind=self.kinds[name],
                age_seconds=90.0,
                cost=paths[name].cost if name in paths else None,
                hops=len(paths[name].hops) if name in paths else 0,
                first_hop=paths[name].hops[0].node if name in paths and paths[name].hops else "",
            )
            for name in names
        ]
        links = [
            MapLink(one=one, other=other, costs=(cost, cost), cost=cost, age_seconds=90.0)
            for (one, other), cost in sorted(self.costs.items())
        ]
        return NetworkMap(node=self.node, nodes=tuple(nodes), links=tuple(links))

    def explain(self, address: str, without: Collection[LinkName], costs: Mapping[LinkName, int]) -> Route:
        for name in (*without, *costs):
            if not any(name.is_between(*ends) for ends in self.costs):
                raise Rejected(f"no link of the map is between {name.one} and {name.other}")
        domain = address.partition("://")[2].partition("/")[0] or address
        own = domain_of(self.node)
        if domain == own:
            text = f"{own} is the domain of this node"
            return Route(node=self.node, address=address, domain=domain, kind="here", text=text)
        known = domain in self._peers or any(domain_of(node) == domain for node in self.kinds)
        route = Route(
            node=self.node,
            address=address,
            domain=domain,
            kind="no-path" if known else "unknown",
            text=f"no path leads to {domain}"
            if known
            else f"{domain} is neither configured as a peer nor in the map",
            is_supposed=bool(without or costs),
        )
        if without or costs:
            route = msgspec.structs.replace(
                route, supposed=self._nearest(domain, self._suppose(without, costs))
            )
        path = self._nearest(domain, self.costs)
        if path is None:
            return route
        return msgspec.structs.replace(
            route,
            kind="remote",
            text=f"{domain} is reached by {path.hops[0].node}",
            destination=path.hops[-1].node,
            path=path,
            alternatives=self._alternatives(domain, path),
        )

    def check(self, domain: str) -> Deferred[Sequence[Check]]:
        self._check_known(domain)
        return self.checks or succeed(CHECKS)

    def ban(self, domain: str) -> None:
        _check_domain(domain)
        self.statuses.setdefault(domain, [])
        self._stop(domain, "banned", "refused")

    def pause(self, domain: str) -> None:
        self._check_known(domain)
        self._stop(domain, "paused", "configured")

    def resume(self, domain: str) -> None:
        self._check_known(domain)
        self.admin_states.pop(domain, None)

    def drain(self, domain: str) -> None:
        self._check_known(domain)
        self.admin_states[domain] = "draining"

    def forget(self, domain: str) -> int:
        self._check_known(domain)
        return sum(stream.undelivered for stream in self.streams.pop(domain, ()))

    # -- within ----------------------------------------------------------------

    def _check_known(self, domain: str) -> None:
        _check_domain(domain)
        if domain not in self.statuses:
            raise NotAPeer(domain, self._peers)

    def _stop(self, domain: str, admin_state: AdminState, state: str) -> None:
        self.admin_states[domain] = admin_state
        self.statuses[domain] = [
            msgspec.structs.replace(link, state=state, dialled_by="", round_trip=None, cost=None)
            for link in self.statuses[domain]
        ]
        for ends in [ends for ends in self.costs if {self.node, domain} <= {*ends, *map(domain_of, ends)}]:
            self.cut(*ends)

    def _suppose(
        self, without: Collection[LinkName], costs: Mapping[LinkName, int]
    ) -> dict[tuple[str, str], int]:
        supposed = {
            ends: cost
            for ends, cost in self.costs.items()
            if not any(name.is_between(*ends) for name in without)
        }
        for name, cost in costs.items():
            supposed |= {ends: cost for ends in self.costs if name.is_between(*ends)}
        return supposed

    def _alternatives(self, domain: str, path: Path) -> tuple[Path, ...]:
        found = []
        firsts = {end for ends in self.costs for end in ends if self.node in ends} - {self.node}
        for first in firsts - {path.hops[0].node}:
            others = {(self.node, other) for other in firsts - {first}}
            left = {ends: cost for ends, cost in self.costs.items() if not {ends, ends[::-1]} & others}
            found.append(self._nearest(domain, left))
        return tuple(sorted((each for each in found if each is not None), key=lambda each: each.cost))

    def _nearest(self, domain: str, costs: Mapping[tuple[str, str], int]) -> Path | None:
        found = [path for node, path in self._paths(costs).items() if domain_of(node) == domain]
        return min(found, key=lambda path: path.cost, default=None)

    def _paths(self, costs: Mapping[tuple[str, str], int]) -> dict[str, Path]:
        paths: dict[str, Path] = {}
        ties = count()
        heap: list[tuple[int, str, int, tuple[Hop, ...]]] = [(0, self.node, 0, ())]
        while heap:
            total, node, _, hops = heappop(heap)
            if node in paths:
                continue
            paths[node] = Path(hops, total)
            if hops and self.kinds[node] == "CLIENT":
                continue
            for ends, cost in costs.items():
                if node in ends:
                    other = ends[ends[0] == node]
                    heappush(heap, (total + cost, other, next(ties), (*hops, Hop(other, cost))))
        return paths


def _check_domain(domain: str) -> None:
    try:
        parse(f"mn://{domain}/x")
    except ValueError:
        raise Rejected(f"expected a domain such as b.example, found {domain[:80]!r}") from None


def sample() -> MemoryOperations:
    """
    The links of a.example: b is near, c behind it, d the long way round; and a stranger.
    """
    made = MemoryOperations()
    made.add_peer(
        "b.example",
        LinkStatus(
            domain="b.example",
            node=B,
            state="up",
            state_seconds=7300.0,
            url="wss://msg-node.b.example:9093/link",
            dialled_by="us",
            round_trip=0.0121,
            cost=10,
            queue=(0, 0, 0, 0, 0, 4, 0, 1, 0, 0),
            queue_bytes=900,
            bytes_in=5_000,
            bytes_out=70_000,
            certificate_days=89.2,
        ),
        streams=[
            StreamStatus(
                destination=B,
                undelivered=3,
                undelivered_bytes=600,
                oldest_seconds=0.4,
                window=32,
                sent_again=1,
                refused={"overflow": 2},
            )
        ],
    )
    made.add_peer("c.example")
    made.add_peer(
        "d.example",
        LinkStatus(
            domain="d.example",
            state="waiting",
            state_seconds=12.0,
            url="wss://msg-node.d.example:9093/link",
            last_error="the certificate of msg-node.d.example ended on 2026-11-20",
            last_error_seconds=12.0,
        ),
        streams=[StreamStatus(destination=D, undelivered=1200, oldest_seconds=90_000.0)],
    )
    made.add_stranger("e.example", LinkStatus(domain="e.example", node="mn://e.example/x", state="up"))
    for one, other, cost in ((A, B, 10), (B, C, 20), (A, D, 100), (C, D, 30)):
        made.join(one, other, cost)
    counts = made.table.of("b.example")
    counts.bytes_out, counts.sent_again, counts.refused["overflow"] = 70_000, 1, 2
    return made
