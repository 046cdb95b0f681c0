"""
The view of the overlay that operators have: the map, the explanation of routes, and a snapshot of all state.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

from msgnode.links.carrier.link import CLIENT
from msgnode.links.operations import LinkName, MapLink, MapNode, NetworkMap, Route
from msgnode.links.overlay.link_state import Record
from msgnode.links.overlay.neighbours import Neighbour
from msgnode.links.overlay.overlay import Overlay
from msgnode.links.overlay.routes.explain import Topology, View, explain
from msgnode.links.wire.node_name import domain_of


class MapChanges:
    """
    A NodeListener that calls `changed` for each change, for a listener that compares maps itself.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def node_added(self, node: str, kind: str, cost: int) -> None:
        self._changed()

    def node_removed(self, node: str, kind: str) -> None:
        self._changed()

    def cost_changed(self, node: str, kind: str, cost: int) -> None:
        self._changed()


def topology(overlay: Overlay) -> Topology:
    """
    The network as this node knows it, to be explained.
    """
    views = [
        View(
            record.advertisement.node,
            record.advertisement.audience,
            record.advertisement.kind == CLIENT,
            overlay.states.links_of(record.advertisement),
        )
        for record in overlay.states.records.values()
        if domain_of(record.advertisement.node) not in overlay.states.excluded
    ]
    return Topology(overlay.node, overlay.neighbours.costs(), tuple(views))


def explain_route(
    overlay: Overlay,
    address: str,
    target: str,
    without: Collection[LinkName] = (),
    costs: Mapping[LinkName, int] | None = None,
) -> Route:
    """
    How messages to an address go. `target` is its node or its home domain, empty if no domain is known.

    Raises Rejected (400) for a link in `without`, or the end of a supposed one, that is not known.
    """
    domain = domain_of(target) if target.startswith("mn://") else target
    found = explain(topology(overlay), target, without, costs)
    kind: Literal["here", "remote", "no-path", "unknown"]
    if target in (overlay.node, domain_of(overlay.node)):
        kind, text = "here", f"{overlay.node} decides who gets it"
    elif found.path is not None:
        hops = len(found.path.hops)
        by = "1 hop" if hops == 1 else f"{hops} hops"
        kind, text = "remote", f"{found.target} is reached by {by} at a cost of {found.path.cost}"
    elif target and (
        overlay.knows(domain) or any(domain_of(node) == domain for node in overlay.states.nodes())
    ):
        kind, text = "no-path", f"no route leads to {target}: {found.reason}"
    else:
        kind, text = (
            "unknown",
            f"the domain of {address[:200]!r} is neither configured as a peer nor reachable",
        )
    return Route(
        node=overlay.node,
        address=address,
        domain=domain,
        kind=kind,
        text=text,
        destination=found.target if found.path is not None else "",
        path=found.path,
        alternatives=found.alternatives,
        is_supposed=bool(without or costs),
        supposed=found.supposed,
    )


def network_map(overlay: Overlay) -> NetworkMap:
    """
    The map with all nodes and links, and what this node's routes make of them.
    """
    nodes = [MapNode(node=overlay.node, kind=_kind(overlay.kind), age_seconds=0.0, cost=0)]
    costs: dict[tuple[str, str], int] = {
        (overlay.node, far): cost for far, cost in overlay.neighbours.costs().items()
    }
    ages = dict.fromkeys(costs, 0.0)
    for node in sorted(overlay.states.nodes()):
        records = list(overlay.states.of_node(node))
        nodes.append(_map_node(overlay, node, records))
        for record in records:
            for far, cost in overlay.states.links_of(record.advertisement).items():
                costs[node, far] = cost
                ages[node, far] = overlay.seconds() - record.received
    pairs = sorted({(min(ends), max(ends)) for ends in costs})
    links = [_map_link(one, other, costs, ages) for one, other in pairs]
    return NetworkMap(node=overlay.node, nodes=tuple(nodes), links=tuple(links))


def _map_node(overlay: Overlay, node: str, records: list[Record]) -> MapNode:
    newest = max(records, key=lambda record: record.advertisement.sequence)
    cost = overlay.routes.cost(node)
    return MapNode(
        node=node,
        kind=_kind(newest.advertisement.kind),
        age_seconds=round(overlay.seconds() - newest.received, 1),
        cost=cost,
        hops=overlay.routes.hops(node) or 0,
        first_hop=overlay.routes.first_hop(node) or "",
    )


def _kind(kind: str) -> Literal["SERVER", "CLIENT"]:
    return "CLIENT" if kind == CLIENT else "SERVER"


def _map_link(
    one: str, other: str, costs: dict[tuple[str, str], int], ages: dict[tuple[str, str], float]
) -> MapLink:
    there, back = costs.get((one, other)), costs.get((other, one))
    return MapLink(
        one=one,
        other=other,
        costs=(there, back),
        cost=None if there is None or back is None else max(there, back),
        age_seconds=round(min(ages[ends] for ends in ((one, other), (other, one)) if ends in ages), 1),
    )


def snapshot(overlay: Overlay) -> dict[str, Any]:
    """
    The state of the overlay, to be written as JSON.
    """
    return {
        "node": overlay.node,
        "kind": overlay.kind,
        "sequence": list(overlay.own.sequence),
        "links": [_link(overlay, neighbour) for neighbour in overlay.neighbours],
        "nodes": [_node(overlay, node) for node in sorted(overlay.states.nodes())],
        "conflicts": [
            {
                "node": conflict.node,
                "held": conflict.held,
                "claimed": conflict.claimed,
                "peer": conflict.peer,
                "age": round(overlay.seconds() - conflict.since, 1),
                "times": conflict.times,
            }
            for conflict in overlay.states.conflicts.values()
        ],
        "refused": dict(overlay.refusals.by_reason),
        "counts": counts(overlay),
    }


def counts(overlay: Overlay) -> dict[str, int]:
    """
    The counters of the overlay, for metrics.
    """
    return {
        "datagrams_sent": overlay.forwarding.sent,
        "datagrams_forwarded": overlay.forwarding.forwarded,
        "datagrams_delivered": overlay.forwarding.delivered,
        "waiting_bytes": overlay.neighbours.budget.bytes,
        "advertisements_signed": overlay.own.number,
        "advertisements_received": overlay.flooding.received,
        "advertisements_repeated": overlay.flooding.duplicates,
        "advertisements_passed_on": overlay.flooding.passed_on,
        "map_bytes": overlay.states.bytes,
        "summaries": overlay.synchronising.summaries,
        "route_computations": overlay.routes.computed,
        "routes": len(overlay.routes),
    }


def _link(overlay: Overlay, neighbour: Neighbour) -> dict[str, Any]:
    return {
        "node": neighbour.node,
        "kind": neighbour.link.kind,
        "counts": neighbour.counts,
        "up": round(overlay.seconds() - neighbour.since, 1),
        "flaps": neighbour.flaps,
        "cost": neighbour.cost.advertised,
        "fixed": neighbour.link.cost is not None,
        "round_trip": neighbour.link.round_trip,
        "transit": neighbour.transit,
        "waiting": neighbour.held.by_priority(),
        "waiting_bytes": neighbour.held.bytes,
    }


def _node(overlay: Overlay, node: str) -> dict[str, Any]:
    records = list(overlay.states.of_node(node))
    newest = max(records, key=lambda record: record.advertisement.sequence)
    links: dict[str, int] = {}
    for record in records:
        links |= record.advertisement.links
    return {
        "node": node,
        "kind": newest.advertisement.kind,
        "gateway": newest.advertisement.gateway,
        "sequence": list(newest.advertisement.sequence),
        "age": round(overlay.seconds() - newest.received, 1),
        "key": newest.signer.key_hash.hex(),
        "features": sorted(newest.advertisement.keys.features),
        "links": links,
        "first_hop": overlay.routes.first_hop(node),
        "cost": overlay.routes.cost(node),
        "hops": overlay.routes.hops(node),
    }
