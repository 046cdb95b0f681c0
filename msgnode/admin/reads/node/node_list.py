"""
The nodes of the domain, as this one knows them.
"""

from typing import Any

import msgspec

from msgnode.admin.reads.inspector import Inspector


class NodeRow(msgspec.Struct):
    """
    A node of the domain: `up` for this one, else its state as the cluster knows it.
    """

    name: str
    is_this: bool
    state: str


class NodeList(msgspec.Struct):
    """
    The nodes of the domain, this one first.
    """

    nodes: list[NodeRow]


def list_nodes(inspector: Inspector) -> NodeList:
    node = inspector.node
    this, *others = node.operator_requests.nodes()
    states = {}
    if node.cluster_status is not None:
        members = node.cluster_status.report().get("members", {})
        states = members if isinstance(members, dict) else {}
    rows = [NodeRow(name, False, _state(states.get(name))) for name in others]
    return NodeList([NodeRow(this, True, "up"), *rows])


def _state(found: Any) -> str:
    return str(found.get("state", "")) if isinstance(found, dict) else str(found or "unknown")
