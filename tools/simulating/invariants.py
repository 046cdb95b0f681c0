"""
The judge of a simulation: what must hold at every hop, and what must hold when the network is quiet again.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from msgnode.links.carrier.link import CLIENT
from msgnode.links.overlay.holding import MAX_LINK_BYTES
from msgnode.links.wire.datagram import HOP_LIMIT, Datagram
from msgnode.links.wire.entries import Data
from simulating.links import MemoryLink
from simulating.reference import cost_of, expected_costs
from simulating.streams import MAX_MEMORY_BYTES
from simulating.world import Node, World

MAX_PRINTED = 10


class Judge:
    """
    A judge that looks at each datagram on each wire.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.broken: list[str] = []
        self.counts: Counter[str] = Counter()
        self.most_stream_bytes = 0
        for wire in world.wires.values():
            wire.watch = self._left

    def compare_routes(self) -> None:
        """
        The network is quiet: each node has exactly the routes that networkx has, with the same costs.
        """
        for name, expected in expected_costs(self.world):
            routes = self.world.nodes[name].overlay.routes
            found = {node: routes.cost(node) for node in routes.labels()}
            self.counts["routes compared"] += len(expected)
            if found != expected:
                differing = [
                    (node, expected.get(node), found.get(node))
                    for node in expected.keys() | found.keys()
                    if expected.get(node) != found.get(node)
                ]
                self.broke(f"{name} has {len(differing)} routes that differ: {sorted(differing)[:3]}")

    def probe(self, number: int) -> None:
        """
        The network is quiet: so many datagrams arrive, each by a path of the expected cost.
        """
        sent = {}
        nodes = list(self.world.alive())
        for _ in range(number):
            node = self.world.chance.choice(nodes)
            if targets := sorted(node.overlay.routes.labels()):
                target = self.world.chance.choice(targets)
                if (serial := self.world.send(node.name, target)) is None:
                    self.broke(f"{node.name} did not send to {target}, to which it has a route")
                else:
                    sent[serial] = (node.name, target)
        self.world.run(10)
        for serial, (source, target) in sent.items():
            arrived = self.world.arrived.get(serial)
            if arrived is None:
                self.broke(f"a datagram from {source} to {target} did not arrive in a quiet network")
                continue
            self.counts["probes arrived"] += 1
            cost = self._cost(arrived)
            if cost != self.world.nodes[source].overlay.routes.cost(target):
                self.broke(f"a datagram from {source} to {target} went by a path of cost {cost}")

    def check_bounds(self) -> None:
        """
        The network is quiet: nothing waits anywhere, and no map has more than there is.
        """
        for node in self.world.alive():
            overlay = node.overlay
            waiting = overlay.flooding.waiting_bytes + overlay.neighbours.budget.bytes
            if waiting or any(neighbour.unsent for neighbour in overlay.neighbours):
                self.broke(f"{node.name} still holds {waiting} bytes")
            known = set(overlay.states.nodes())
            if known - self.world.nodes.keys():
                self.broke(f"{node.name} knows nodes that there are not")
            for kind in ("conflict", "malformed", "domain-full", "map-full"):
                if overlay.refusals.by_reason[kind]:
                    self.broke(f"{node.name} has refused advertisements: {kind}")

    def check_streams(self, nodes: Iterable[Node], is_quiet: bool = False) -> None:
        """
        The streams of these nodes hold no more than they may; nothing, if the network is quiet.
        """
        for node in nodes:
            held = 0 if node.streams is None else node.streams.memory_bytes
            self.most_stream_bytes = max(self.most_stream_bytes, held)
            if held > (0 if is_quiet else MAX_MEMORY_BYTES):
                self.broke(f"the streams of {node.name} hold {held} bytes")

    def _left(self, link: MemoryLink, data: Data) -> None:
        """
        A datagram leaves a node.
        """
        self.counts["hops"] += 1
        datagram, node = data.datagram, link.end.node
        visited = [name for name, _ in datagram.path]
        if len(set(visited)) != len(visited) or link.node in visited:
            self.broke(f"a datagram comes back to {link.node}: {visited}")
        if len(visited) > HOP_LIMIT or not 1 <= datagram.hop_limit <= HOP_LIMIT:
            self.broke(f"a datagram lives beyond the hop limit: {visited}")
        if datagram.source == node:
            return
        if link.end.kind == CLIENT:
            self.broke(f"{node} is a CLIENT and forwards")
        for far in (visited[-2], link.node):
            if not self._grants(node, far):
                self.broke(f"{node} forwards from {visited[-2]} to {link.node} without transit")
        held = max(len(each.held) and each.held.bytes for each in self.world.nodes[node].overlay.neighbours)
        if held > MAX_LINK_BYTES:
            self.broke(f"{node} holds {held} bytes for a link")

    def _grants(self, node: str, far: str) -> bool:
        wire = self.world.wires[frozenset((node, far))]
        end = next(end for end in wire.ends if end.node == node)
        return end.transit or self.world.nodes[node].domain == self.world.nodes[far].domain

    def _cost(self, datagram: Datagram) -> int:
        names = [name for name, _ in datagram.path] + [datagram.destination]
        total = 0
        for one, other in pairwise(names):
            total += cost_of(self.world.wires[frozenset((one, other))])
        return total

    def broke(self, what: str) -> None:
        """
        Count a broken invariant, and keep the first ones.
        """
        self.counts["broken"] += 1
        if len(self.broken) < MAX_PRINTED:
            self.broken.append(what)
