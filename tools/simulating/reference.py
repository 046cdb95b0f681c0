"""
The costs that routes must have, computed by networkx from the wires alone.

Each node has one place for all neighbours that it grants transit, and one for each of the others; a wire
joins the places of its two ends. So a path passes through a node only between neighbours that both have
transit.
"""

from collections.abc import Iterator

import networkx

from msgnode.links.carrier.link import CLIENT
from msgnode.links.overlay.costs import LinkCost
from simulating.links import Wire
from simulating.world import Node, World

Place = tuple[str, str]


def expected_costs(world: World) -> Iterator[tuple[str, dict[str, int]]]:
    """
    Each node that lives, with the cost to each node that it can reach.
    """
    common = _graph(world, None)
    large = {node.domain for node in world.nodes.values() if not _is_gateway(node)}
    graphs = {domain: _graph(world, domain) for domain in large}
    for node in world.alive():
        yield node.name, _costs(world, node, graphs.get(node.domain, common))


def _graph(world: World, domain: str | None) -> networkx.DiGraph:
    """
    The network as nodes of `domain` know it: of other domains only the gateways.
    """
    graph = networkx.DiGraph()
    for wire in world.wires.values():
        ends = [world.nodes[end.node] for end in wire.ends]
        known = all(_is_gateway(node) or node.domain == domain for node in ends)
        if not wire.is_up or not known:
            continue
        places = [place_of(world, wire, node.name) for node in ends]
        cost = cost_of(wire)
        for (place, node), to in zip(zip(places, ends, strict=True), reversed(places), strict=True):
            if node.kind != CLIENT:
                graph.add_edge(place, to, weight=cost)
            graph.add_node(to)
    return graph


def _costs(world: World, node: Node, graph: networkx.DiGraph) -> dict[str, int]:
    first = ("", node.name)
    graph.add_node(first)
    for wire in node.wires:
        far = next(end.node for end in wire.ends if end.node != node.name)
        place = place_of(world, wire, far)
        if wire.is_up and place in graph:
            graph.add_edge(first, place, weight=cost_of(wire))
    found: dict[str, int] = {}
    for place, cost in networkx.single_source_dijkstra_path_length(graph, first).items():
        name = place[0]
        if name not in ("", node.name) and cost < found.get(name, cost + 1):
            found[name] = cost
    graph.remove_node(first)
    return found


def place_of(world: World, wire: Wire, name: str) -> Place:
    """
    The place of a node at which a wire ends.
    """
    own, far = wire.ends if wire.ends[0].node == name else reversed(wire.ends)
    inside = world.nodes[own.node].domain == world.nodes[far.node].domain
    return (name, "") if own.transit or inside else (name, far.node)


def cost_of(wire: Wire) -> int:
    """
    The cost that both ends advertise: for a measured one, which may differ from the delay by a quarter, the
    greater.
    """
    found = []
    for link in wire.links:
        neighbour = link.end.listener.neighbours.get(link.node)  # type: ignore[attr-defined]
        found.append(LinkCost(link).advertised if neighbour is None else neighbour.cost.advertised)
    return max(found)


def _is_gateway(node: Node) -> bool:
    """
    Has the node a wire that is up to another domain?
    """
    return any(
        wire.is_up and any(node.world.nodes[end.node].domain != node.domain for end in wire.ends)
        for wire in node.wires
    )
