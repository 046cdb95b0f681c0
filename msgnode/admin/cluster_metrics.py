"""
The cluster as Prometheus metrics.
"""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from msgnode.cluster.status import ClusterStatus

STATES = ("up", "synchronising", "suspected", "down")

# Name after `msgnode_`, kind, labels, HELP text, in the order of the page.
METRICS: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("cluster_nats_connected", "gauge", (), "1 while there is a connection to NATS."),
    ("cluster_members", "gauge", ("state",), "Other members of the cluster that were heard, by state."),
    ("cluster_addresses", "gauge", (), "Addresses that other members hold."),
    ("cluster_address_bytes", "gauge", (), "Estimated memory of the addresses that other members hold."),
    (
        "cluster_refused_total",
        "counter",
        ("reason",),
        "Packets and entries that came over NATS and were refused.",
    ),
    ("cluster_directory_total", "counter", ("event",), "Events of the directory of addresses."),
    ("cluster_requests_total", "counter", ("outcome",), "Requests between members, by what became of them."),
    (
        "cluster_relayed_total",
        "counter",
        ("event",),
        "Events of requests and connections relayed between members.",
    ),
    ("cluster_relayed_requests", "gauge", (), "Relayed HTTP requests that wait for their response."),
    ("cluster_relayed_connections", "gauge", (), "Connections whose session moved to another member."),
    ("cluster_leases_lost_total", "counter", (), "Addresses of pools that a session here lost to another."),
    (
        "cluster_rates_total",
        "counter",
        ("outcome",),
        "Buckets of shared rates in exchanges between members, by what became of them.",
    ),
    ("cluster_moves_total", "counter", ("event",), "Events of sessions that move between members."),
    ("cluster_moving", "gauge", ("direction",), "Sessions that are moving between members."),
    ("cluster_copies", "gauge", (), "Ids of publications that are remembered for sessions that move."),
    ("cluster_move_seconds", "summary", (), "Seconds until a session was here that its client opened here."),
)


class ClusterCollector(Collector):
    """
    A collector that reads the cluster when Prometheus scrapes; a node that is alone has none of its metrics.
    """

    def __init__(self, status: Callable[[], ClusterStatus | None]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        if status is None:
            return
        found = status.figures()
        values: tuple[dict[tuple[str, ...], float], ...] = (
            {(): float(found.is_connected)},
            {(state,): found.members.get(state, 0) for state in STATES},
            {(): found.addresses},
            {(): found.address_bytes},
            {(reason,): number for reason, number in sorted(found.refused.items())},
            {(event,): number for event, number in found.directory.items()},
            {(outcome,): number for outcome, number in found.requests.items()},
            {(event,): number for event, number in found.relayed.items()},
            {(): found.relayed_now},
            {(): found.relayed_connections},
            {(): found.leases_lost},
            {(outcome,): number for outcome, number in found.rates.items()},
            {(event,): number for event, number in found.moves.items()},
            {(direction,): number for direction, number in found.moving.items()},
            {(): found.copies},
            {(): found.taking[0]},
        )
        for (name, kind, labels, text), numbers in zip(METRICS, values, strict=True):
            family: GaugeMetricFamily | CounterMetricFamily
            if kind == "summary":
                count, seconds = found.taking
                yield SummaryMetricFamily(f"msgnode_{name}", text, count, seconds)
                continue
            if kind == "gauge":
                family = GaugeMetricFamily(f"msgnode_{name}", text, labels=labels)
            else:
                family = CounterMetricFamily(f"msgnode_{name.removesuffix('_total')}", text, labels=labels)
            for values_of_labels, number in numbers.items():
                family.add_metric(values_of_labels, number)
            yield family
