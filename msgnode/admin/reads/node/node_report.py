"""
The report on the node: its figures, and what is wrong.
"""

import msgspec

from msgnode.admin.reads.inspector import Inspector
from msgnode.admin.reads.node.node_figures import NodeFigures, figures_of
from msgnode.admin.reads.node.troubles import Trouble, troubles


class NodeReport(NodeFigures, kw_only=True):
    """
    The node. Times are in seconds since 1970, durations in seconds, memory in bytes.
    """

    troubles: list[Trouble]


def report_node(inspector: Inspector) -> NodeReport:
    """
    The report, without a pass over the sessions.
    """
    figures = figures_of(inspector)
    return NodeReport(**msgspec.structs.asdict(figures), troubles=troubles(figures, inspector))
