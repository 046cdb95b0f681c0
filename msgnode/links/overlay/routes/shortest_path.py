"""
Dijkstra's algorithm over the graph of advertisements.

A label is one integer for the cost, the number of hops and the first hop of a path, in this order of
weight. So one comparison decides by cost, then by fewer hops, then by the name of the first hop, and a path
grows by one addition. A heap entry is one integer, too: the label and the vertex.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush

FIRST_HOP_BITS = 10
HOP_BITS = 20
VERTEX_BITS = 20
MAX_COST = 1_000_000  # of one link; in milliseconds, a quarter of an hour
UNREACHABLE = 1 << 200
SLICE = 2000  # vertices that are visited in one slice: about 10 ms
_FIRST_HOP_MASK = (1 << FIRST_HOP_BITS) - 1
_HOP_MASK = (1 << HOP_BITS) - 1
_VERTEX_MASK = (1 << VERTEX_BITS) - 1


class ShortestPaths:
    """
    A tree of shortest paths: the label of each vertex, and the vertex before it.

    `before` is -1 at a first hop and at an unreachable vertex.
    """

    __slots__ = ("before", "labels")

    def __init__(self, labels: list[int], before: list[int]) -> None:
        self.labels = labels
        self.before = before

    def path(self, vertex: int) -> list[int]:
        """
        The vertices of the path, from the first hop to `vertex`.
        """
        path = [vertex]
        while (vertex := self.before[vertex]) >= 0:
            path.append(vertex)
        return path[::-1]


def weight(cost: int) -> int:
    """
    The part of a label that one link of this cost adds.
    """
    return ((cost << HOP_BITS) | 1) << FIRST_HOP_BITS


def cost_of(label: int) -> int:
    return label >> (FIRST_HOP_BITS + HOP_BITS)


def hops_of(label: int) -> int:
    return (label >> FIRST_HOP_BITS) & _HOP_MASK


def first_hop_of(label: int) -> int:
    """
    The index of the first hop, as its start label has it.
    """
    return label & _FIRST_HOP_MASK


def search(
    edges: Sequence[Mapping[int, int]], ends: Sequence[bool], starts: Mapping[int, int], tree: ShortestPaths
) -> Iterator[None]:
    """
    Find the shortest paths to all vertices, in slices: it yields when some milliseconds have passed.

    `edges` has the weights by vertex and neighbour, `starts` the labels of first hops. No path leads on
    from a vertex whose entry in `ends` is true. `tree` is filled; it has no paths at the beginning.
    """
    labels, before = tree.labels, tree.before
    for vertex, label in starts.items():
        labels[vertex] = label
    heap = [label << VERTEX_BITS | vertex for vertex, label in starts.items()]
    heapify(heap)
    while heap:
        for _ in range(SLICE):
            if not heap:
                return
            entry = heappop(heap)
            vertex = entry & _VERTEX_MASK
            label = entry >> VERTEX_BITS
            if label > labels[vertex] or ends[vertex]:
                continue
            for neighbour, added in edges[vertex].items():
                longer = label + added
                if longer < labels[neighbour]:
                    labels[neighbour] = longer
                    before[neighbour] = vertex
                    heappush(heap, longer << VERTEX_BITS | neighbour)
        yield


def shortest_paths(
    edges: Sequence[Mapping[int, int]], ends: Sequence[bool], starts: Mapping[int, int]
) -> ShortestPaths:
    """
    The shortest paths to all vertices, in one go.
    """
    tree = no_paths(len(edges))
    for _ in search(edges, ends, starts, tree):
        pass
    return tree


def no_paths(vertices: int) -> ShortestPaths:
    return ShortestPaths([UNREACHABLE] * vertices, [-1] * vertices)
