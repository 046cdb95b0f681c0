"""
The graph of the network: a vertex for each advertisement, and an edge where two of them list each other's
node.

A node has one advertisement for each audience (advertisement.py), so it may have several vertices. An
advertisement for one neighbour lists that neighbour alone: its vertex is a dead end, and no path leads
through a node that refuses transit. The node itself is no vertex: its links that are up are where paths
start.
"""

from collections.abc import Container, Iterator, Mapping, Sequence

from msgnode.links.overlay.routes.shortest_path import (
    UNREACHABLE,
    ShortestPaths,
    cost_of,
    no_paths,
    search,
    shortest_paths,
    weight,
)

Key = tuple[str, str]  # the node and the audience of an advertisement


class Graph:
    """
    The graph as node `own` sees it, with the tree of shortest paths of its last computation.

    `is_current` is False while a change may have changed the tree.
    """

    def __init__(self, own: str) -> None:
        self.is_current = True
        self._own = own
        self._index: dict[Key, int] = {}
        self._views: dict[str, list[int]] = {}
        self._free: list[int] = []
        self._nodes: list[str] = []
        self._links: list[Mapping[str, int]] = []
        self._edges: list[dict[int, int]] = []
        self._ends: list[bool] = []
        self._first_hops: list[str] = []
        self._starts: dict[str, int] = {}  # weights of our own links
        self._tree = no_paths(0)
        self._next_tree: ShortestPaths | None = None  # while it is computed
        self._is_outdated = False

    def __len__(self) -> int:
        return len(self._index)

    def put(self, key: Key, is_end: bool, links: Mapping[str, int]) -> None:
        """
        Add an advertisement, or replace the one with this key. `links` has the cost by neighbour.
        """
        vertex = self._index.get(key)
        if vertex is None:
            vertex = self._add(key)
        if is_end != self._ends[vertex]:
            self._ends[vertex] = is_end
            self.is_current, self._is_outdated = False, True
        old = self._links[vertex]
        self._links[vertex] = links
        if old.get(self._own) != links.get(self._own):
            self.is_current, self._is_outdated = False, True
        for node in old.keys() | links.keys():
            for other in self._views.get(node, ()):
                self._connect(vertex, other)

    def remove(self, key: Key) -> None:
        vertex = self._index.get(key)
        if vertex is None:
            return
        self.put(key, self._ends[vertex], {})
        del self._index[key]
        views = self._views[key[0]]
        views.remove(vertex)
        if not views:
            del self._views[key[0]]
        self._free.append(vertex)

    def set_links(self, links: Mapping[str, int]) -> None:
        """
        Set this node's own links: the cost by neighbour.
        """
        starts = {node: weight(cost) for node, cost in links.items()}
        if starts != self._starts:
            self._starts = starts
            self.is_current, self._is_outdated = False, True

    def compute(self) -> None:
        """
        Compute the shortest paths.
        """
        for _ in self.computing():
            pass

    def computing(self) -> Iterator[None]:
        """
        Compute the shortest paths in slices. What changes between two slices counts for the next computation.
        """
        first_hops = sorted(self._starts)
        if first_hops != self._first_hops:
            self._first_hops = first_hops
        self._next_tree = no_paths(len(self._edges))
        self._is_outdated = False
        yield from search(self._edges, self._ends, self._start_labels(()), self._next_tree)
        self._tree, self._next_tree = self._next_tree, None
        self.is_current = not self._is_outdated

    def without(self, first_hops: Container[str]) -> ShortestPaths:
        """
        The shortest paths that do not begin with these first hops.
        """
        return shortest_paths(self._edges, self._ends, self._start_labels(first_hops))

    def labels(self, tree: ShortestPaths | None = None) -> dict[str, int]:
        """
        The lowest label of each reachable node.
        """
        labels = (tree or self._tree).labels
        found: dict[str, int] = {}
        for node, views in self._views.items():
            # A vertex that was added later than the tree has no label yet.
            label = min([labels[vertex] for vertex in views if vertex < len(labels)], default=UNREACHABLE)
            if label != UNREACHABLE:
                found[node] = label
        return found

    def path(self, node: str, tree: ShortestPaths | None = None) -> list[tuple[str, int]]:
        """
        The shortest path: each node from the first hop to `node`, with the cost of the link to it. Empty if
        there is no path.
        """
        tree = tree or self._tree
        views = [vertex for vertex in self._views.get(node, ()) if vertex < len(tree.labels)]
        best = min(views, key=tree.labels.__getitem__, default=-1)
        if best < 0 or tree.labels[best] == UNREACHABLE:
            return []
        path, before = [], 0
        for vertex in tree.path(best):
            cost = cost_of(tree.labels[vertex])
            path.append((self._nodes[vertex], cost - before))
            before = cost
        return path

    def first_hops(self) -> Sequence[str]:
        """
        The neighbours by their index in labels. It is another object when the neighbours are others.
        """
        return self._first_hops

    def cost_to(self, neighbour: str) -> int | None:
        """
        The cost of the link to a neighbour; None if that is down since the paths were computed.
        """
        labels = self._start_labels(()).items()
        costs = [cost_of(label) for vertex, label in labels if self._nodes[vertex] == neighbour]
        return min(costs, default=None)

    def _start_labels(self, left_out: Container[str]) -> dict[int, int]:
        starts = {}
        for index, node in enumerate(self._first_hops):
            if node in left_out or node not in self._starts:
                continue
            for vertex in self._views.get(node, ()):
                told = self._links[vertex].get(self._own)
                if told is not None:
                    starts[vertex] = max(self._starts[node], weight(told)) + index
        return starts

    def _add(self, key: Key) -> int:
        if self._free:
            vertex = self._free.pop()
            self._nodes[vertex] = key[0]
            self._ends[vertex] = False
            self._tree.labels[vertex] = UNREACHABLE
            self._tree.before[vertex] = -1
        else:
            vertex = len(self._nodes)
            self._nodes.append(key[0])
            self._links.append({})
            self._edges.append({})
            self._ends.append(False)
            for tree in (self._tree, self._next_tree):
                if tree is not None:
                    tree.labels.append(UNREACHABLE)
                    tree.before.append(-1)
        self._index[key] = vertex
        self._views.setdefault(key[0], []).append(vertex)
        return vertex

    def _connect(self, one: int, other: int) -> None:
        """
        Set the edge between two vertices as both advertisements have it, or remove it.
        """
        there = self._links[one].get(self._nodes[other])
        back = self._links[other].get(self._nodes[one])
        old = self._edges[one].get(other)
        if there is None or back is None:
            if old is None:
                return
            del self._edges[one][other]
            del self._edges[other][one]
            new = None
        else:
            new = weight(max(there, back))  # of both directions, the greater cost counts
            self._edges[one][other] = self._edges[other][one] = new
        if new == old:
            return
        self._is_outdated = True
        if self.is_current:
            self.is_current = not (self._changes(one, other, new) or self._changes(other, one, new))

    def _changes(self, one: int, other: int, new: int | None) -> bool:
        """
        May a changed edge from `one` to `other` change the tree? Only if it was in it, or makes a path
        shorter.
        """
        if self._tree.before[other] == one:
            return True
        label = self._tree.labels[one]
        return new is not None and not self._ends[one] and label + new < self._tree.labels[other]
