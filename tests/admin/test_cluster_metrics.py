"""
The cluster in the metrics and in /live.
"""

import json
from typing import Any

from twisted.web.test.requesthelper import DummyRequest

from msgnode.admin.cluster_metrics import ClusterCollector
from msgnode.admin.health import EventLoopLag, HealthResource
from msgnode.admin.metrics import Metrics
from msgnode.cluster.status import ClusterFigures
from tests.support.fakes import MemoryNode


class MemoryStatus:
    """
    The state of a cluster, as a test says.
    """

    why_degraded = ""

    def report(self) -> dict[str, Any]:
        return {"nats": "ok", "members": {}, "addresses_elsewhere": 0}

    def figures(self) -> ClusterFigures:
        return ClusterFigures(
            True,
            {"up": 2, "down": 1},
            7,
            700,
            {"malformed": 3},
            {"gaps": 1},
            {"asked": 2},
            {"served": 5},
            4,
            3,
            1,
            {"sent": 4},
            {"taken": 3},
            {"leaving": 2},
            9,
            (3, 0.5),
        )


def page(node: MemoryNode) -> list[str]:
    metrics = Metrics(node, EventLoopLag(node.clock), int, ClusterCollector(lambda: node.cluster_status))
    text = metrics.render_GET(DummyRequest([b""])).decode()
    return [line for line in text.splitlines() if line.startswith("msgnode_cluster")]


def test_figures_of_a_cluster() -> None:
    """
    A node of a cluster has its figures, and one that is alone has none.
    """
    node = MemoryNode()
    alone = page(node)
    node.cluster_status = MemoryStatus()

    assert [] == alone
    assert [
        "msgnode_cluster_nats_connected 1.0",
        'msgnode_cluster_members{state="up"} 2.0',
        'msgnode_cluster_members{state="synchronising"} 0.0',
        'msgnode_cluster_members{state="suspected"} 0.0',
        'msgnode_cluster_members{state="down"} 1.0',
        "msgnode_cluster_addresses 7.0",
        "msgnode_cluster_address_bytes 700.0",
        'msgnode_cluster_refused_total{reason="malformed"} 3.0',
        'msgnode_cluster_directory_total{event="gaps"} 1.0',
        'msgnode_cluster_requests_total{outcome="asked"} 2.0',
        'msgnode_cluster_relayed_total{event="served"} 5.0',
        "msgnode_cluster_relayed_requests 4.0",
        "msgnode_cluster_relayed_connections 3.0",
        "msgnode_cluster_leases_lost_total 1.0",
        'msgnode_cluster_rates_total{outcome="sent"} 4.0',
        'msgnode_cluster_moves_total{event="taken"} 3.0',
        'msgnode_cluster_moving{direction="leaving"} 2.0',
        "msgnode_cluster_copies 9.0",
        "msgnode_cluster_move_seconds_count 3.0",
        "msgnode_cluster_move_seconds_sum 0.5",
    ] == page(node)


def test_liveness_of_a_cluster() -> None:
    """
    /live says degraded while NATS is not reached, and what of the cluster is known.
    """
    node = MemoryNode()
    status = node.cluster_status = MemoryStatus()
    health = HealthResource(node, node.clock)

    before = json.loads(health.render_GET(DummyRequest([b""])))
    status.why_degraded = "no connection to NATS: refused"
    after = json.loads(health.render_GET(DummyRequest([b""])))

    assert ("up", "degraded") == (before["status"], after["status"])
    assert status.report() == after["cluster"]
