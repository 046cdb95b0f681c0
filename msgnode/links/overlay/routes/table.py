"""
The table of routes: the first hop to each node, computed when the graph has changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.links.overlay.routes.graph import Graph
from msgnode.links.overlay.routes.shortest_path import (
    ShortestPaths,
    cost_of,
    first_hop_of,
    hops_of,
)
from msgnode.links.wire.datagram import HOP_LIMIT
from msgnode.links.wire.node_name import domain_of
from msgnode.structures.bounded_cache import BoundedCache

MIN_INTERVAL_SECONDS = 0.1
SECONDS_PER_VERTEX = 0.0002  # a computation takes a tenth of the interval to the next, or less
AVOIDED_SECONDS = 60.0
MAX_AVOIDED = 1024  # nodes
MAX_AVOIDED_HOPS = 4  # first hops that are left out of a computation of alternatives


class RouteListener(Protocol):
    """
    A listener to routes, called after a computation.
    """

    def node_added(self, node: str) -> None: ...

    def node_removed(self, node: str) -> None: ...

    def cost_changed(self, node: str, cost: int) -> None: ...

    def first_hop_changed(self, node: str) -> None:
        """
        The first hop is another one, or there is one or none now.
        """


class Routes:
    """
    The routes of a node. They are computed at most ten times a second.
    """

    def __init__(self, clock: IReactorTime, graph: Graph, listener: RouteListener) -> None:
        self.graph = graph
        self.computed = 0
        self._clock = clock
        self._listener = listener
        self._labels: dict[str, int] = {}
        self._first_hops: Sequence[str] = ()
        self._last = float("-inf")
        self._timer: IDelayedCall | None = None
        self._avoided: BoundedCache[str, tuple[str, float]] = BoundedCache(MAX_AVOIDED)
        self._without: dict[frozenset[str], tuple[ShortestPaths, dict[str, int]]] = {}
        self._alternatives: dict[str, str | None] = {}  # of nodes whose first hop is avoided
        self._by_domain: dict[str, list[str]] | None = None
        self._renewed: set[str] = set()  # neighbours with a new link, of which the listener hears soon

    def __contains__(self, node: str) -> bool:
        return node in self._labels

    def __len__(self) -> int:
        return len(self._labels)

    def labels(self) -> Mapping[str, int]:
        return self._labels

    def hops(self, node: str) -> int | None:
        label = self._labels.get(node)
        return None if label is None else hops_of(label)

    def cost(self, node: str) -> int | None:
        label = self._labels.get(node)
        return None if label is None else cost_of(label)

    def changed(self) -> None:
        """
        The graph may have changed: compute soon, if it has.
        """
        if (self.graph.is_current and not self._renewed) or self._timer is not None:
            return
        interval = max(MIN_INTERVAL_SECONDS, len(self.graph) * SECONDS_PER_VERTEX)
        wait = max(0.0, self._last + interval - self._clock.seconds())
        self._timer = self._clock.callLater(wait, self._compute)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def first_hop(self, node: str) -> str | None:
        """
        The first hop to a node for what this node itself sends.
        """
        label = self._labels.get(node)
        if label is None:
            return None
        hop = self._first_hops[first_hop_of(label)]
        if not self._avoided or (avoided := self._avoided.get(node)) is None:
            return hop
        if node not in self._alternatives:
            self._alternatives[node] = self._alternative(node, avoided, label)
        return self._alternatives[node] or hop

    def transit_hop(self, node: str, refused: frozenset[str]) -> str | None:
        """
        The first hop to a node for datagrams of others: a neighbour that is not `refused`, because its own
        datagrams may not pass through this node.
        """
        labels = self._left_out(refused)[1] if refused else self._labels
        label = labels.get(node)
        return None if label is None else self._first_hops[first_hop_of(label)]

    def renewed(self, neighbour: str) -> None:
        """
        The neighbour has a new link. What did not get to it by the one before says nothing of it: the direct
        way is avoided no more, and what was lost is sent again soon. The way through it to others stays
        avoided: a neighbour that passes nothing on could else begin its link again and again.
        """
        self._renewed.add(neighbour)
        avoided = self._avoided.get(neighbour)
        if avoided is not None and avoided[0] == neighbour:
            self._avoid_no_more(neighbour)
        self.changed()

    def avoid_first_hop(self, node: str) -> None:
        """
        Avoid the present first hop to a node for 60 seconds, if there is another one.
        """
        hop = self.first_hop(node)
        if hop is None:
            return
        self._alternatives.pop(node, None)
        self._avoided.put(node, (hop, self._clock.seconds() + AVOIDED_SECONDS))
        if self.first_hop(node) != hop:
            self._listener.first_hop_changed(node)

    def forget_avoided(self) -> None:
        """
        End what was avoided for 60 seconds; call it every few seconds.
        """
        now = self._clock.seconds()
        for node, (_, until) in list(self._avoided.items()):
            if now >= until:
                self._avoid_no_more(node)

    def _avoid_no_more(self, node: str) -> None:
        before = self.first_hop(node)
        self._avoided.pop(node)
        self._alternatives.pop(node, None)
        if self.first_hop(node) != before:
            self._listener.first_hop_changed(node)

    def nodes_of(self, domain: str) -> list[str]:
        """
        The reachable nodes of a domain, the nearest first.
        """
        if self._by_domain is None:
            self._by_domain = {}
            for node in sorted(self._labels, key=lambda node: (self._labels[node], node)):
                self._by_domain.setdefault(domain_of(node), []).append(node)
        return self._by_domain.get(domain, [])

    def _compute(self) -> None:
        self._timer = None
        self._last = self._clock.seconds()
        if self.graph.is_current:
            self._tell(self._labels, self._first_hops)
            return
        self.computed += 1
        self._continue(self.graph.computing())

    def _continue(self, steps: Iterator[None]) -> None:
        """
        Take one step of a computation, and the next one in another turn.
        """
        self._timer = None
        for _ in steps:
            self._timer = self._clock.callLater(0, self._continue, steps)
            return
        self._take_over()
        self.changed()  # what has changed meanwhile

    def _take_over(self) -> None:
        before, hops_before = self._labels, self._first_hops
        labels = self.graph.labels()
        # A path that is longer than the hop limit leads nowhere.
        self._labels = {node: label for node, label in labels.items() if hops_of(label) <= HOP_LIMIT}
        self._first_hops = self.graph.first_hops()
        self._without.clear()
        alternatives, self._alternatives = self._alternatives, {}
        self._by_domain = None
        self._tell(before, hops_before)
        for node, hop in alternatives.items():
            if hop is not None and node in self._labels and self.first_hop(node) != hop:
                self._listener.first_hop_changed(node)

    def _tell(self, before: Mapping[str, int], hops_before: Sequence[str]) -> None:
        after, hops, tell = self._labels, self._first_hops, self._listener
        renewed, self._renewed = self._renewed, set()
        for node in before.keys() - after.keys():
            tell.first_hop_changed(node)
            tell.node_removed(node)
        for node, label in after.items():
            old = before.get(node)
            if old == label and hops is hops_before and not renewed:
                continue
            if old is None:
                tell.node_added(node)
                tell.first_hop_changed(node)
                continue
            hop = hops[first_hop_of(label)]
            if hop in renewed or hop != hops_before[first_hop_of(old)]:
                tell.first_hop_changed(node)
            if cost_of(label) != cost_of(old):
                tell.cost_changed(node, cost_of(label))

    def _alternative(self, node: str, avoided: tuple[str, float], label: int) -> str | None:
        """
        Another first hop that does not lead back here, or None.
        """
        hop, until = avoided
        if hop != self._first_hops[first_hop_of(label)] or self._clock.seconds() >= until:
            return None
        left_out = frozenset((hop,))
        if left_out not in self._without and len(self._without) >= MAX_AVOIDED_HOPS:
            return None
        other = self._left_out(left_out)[1].get(node)
        if other is None or hops_of(other) > HOP_LIMIT:
            return None
        found = self._first_hops[first_hop_of(other)]
        # RFC 5286, inequality 1: its own path to the node is shorter than one back through this node.
        to_it = self.graph.cost_to(found)
        if to_it is None:
            return None
        return found if cost_of(other) - to_it < to_it + cost_of(label) else None

    def _left_out(self, first_hops: frozenset[str]) -> tuple[ShortestPaths, dict[str, int]]:
        found = self._without.get(first_hops)
        if found is None:
            tree = self.graph.without(first_hops)
            found = self._without[first_hops] = tree, self.graph.labels(tree)
        return found
