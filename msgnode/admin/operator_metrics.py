"""
The work of operators as Prometheus metrics: bans, failed logins, and the audit log.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from msgnode.admin.operations import Operations


class OperatorCollector(Collector):
    """
    A collector that reads what operators keep at a node when Prometheus scrapes.
    """

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def collect(self) -> Iterator[Metric]:
        node = self._operations.inspector.node
        yield GaugeMetricFamily("msgnode_bans", "Bans in effect.", float(len(node.bans)))
        yield CounterMetricFamily(
            "msgnode_banned_total", "Clients that bans have kept out.", float(node.bans.refused)
        )
        yield GaugeMetricFamily(
            "msgnode_temporary_limits",
            "Temporary rate limits in effect.",
            float(len(node.rates.temporary.all())),
        )
        yield CounterMetricFamily(
            "msgnode_admin_rejected_tokens_total",
            "Requests to the admin listener with a token that is not valid.",
            float(self._operations.tokens.failures.total),
        )
        yield CounterMetricFamily(
            "msgnode_audit_failures_total",
            "Lines of the audit log that could not be written.",
            float(self._operations.audit.failures),
        )
