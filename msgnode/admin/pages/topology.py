"""
The topology that a page shows: nodes of the domain with their sessions, links to other domains, and a map.
"""

from math import cos, pi, sin
from typing import Any

import msgspec
from twisted.internet.defer import Deferred

from msgnode.admin.health import ANYBODY, LIVE
from msgnode.links.operations import LinkOperations, NetworkMap
from msgnode.node import Node

WIDTH, HEIGHT, MARGIN = 800, 420, 60
MAX_DRAWN = 40  # nodes; a larger map is a table only


class Topology:
    """
    The nodes and links around this node.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def is_cluster(self) -> bool:
        return self._node.cluster_status is not None or len(self.names) > 1

    @property
    def names(self) -> list[str]:
        """
        The names of the nodes of the domain, this one first.
        """
        return self._node.operator_requests.nodes()

    @property
    def _links(self) -> LinkOperations | None:
        return self._node.link_operations

    def nodes(self) -> Deferred[dict[str, Any]]:
        """
        The report at `/live` of each node of the domain, or why there is none, by the node's name.
        """
        asked = self._node.operator_requests.ask_all(LIVE, {}, ANYBODY)
        return asked.addCallback(lambda answers: {node: each.report() for node, each in answers.items()})

    def cluster(self) -> dict[str, Any] | None:
        """
        The state of the cluster; None without one.
        """
        status = self._node.cluster_status
        return None if status is None else status.report()

    def domains(self) -> list[Any] | None:
        """
        The other domains, with links and streams; None if there are none.
        """
        links = self._links
        if links is None:
            return None
        own = self._node.config.domain
        found: list[Any] = msgspec.to_builtins([each for each in links.domains() if each.domain != own])
        return found

    def map(self) -> dict[str, Any] | None:
        """
        The nodes and links of the network, with their places in a drawing; None without links, or with too
        many nodes to draw.
        """
        links = self._links
        if links is None:
            return None
        found = links.map()
        return None if not 1 < len(found.nodes) <= MAX_DRAWN else drawn(found)


def drawn(found: NetworkMap) -> dict[str, Any]:
    """
    The map as a drawing: the nodes on an ellipse, this one first, at the left.
    """
    places: dict[str, tuple[float, float]] = {}
    for number, each in enumerate(found.nodes):
        angle = pi + 2 * pi * number / len(found.nodes)
        x = WIDTH / 2 + (WIDTH / 2 - 2 * MARGIN) * cos(angle)
        y = HEIGHT / 2 + (HEIGHT / 2 - MARGIN) * sin(angle)
        places[each.node] = round(x, 1), round(y, 1)
    nodes = [
        {"node": each.node, "cost": each.cost, "own": each.node == found.node, "x": x, "y": y}
        for each in found.nodes
        for x, y in [places[each.node]]
    ]
    links = [
        {"one": each.one, "other": each.other, "cost": each.cost, "x1": x1, "y1": y1, "x2": x2, "y2": y2}
        for each in found.links
        if each.one in places and each.other in places
        for (x1, y1), (x2, y2) in [(places[each.one], places[each.other])]
    ]
    return {"width": WIDTH, "height": HEIGHT, "nodes": nodes, "links": links}
