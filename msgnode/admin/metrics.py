"""
The counters of the node as Prometheus metrics: `/metrics` on the admin listener.

On the path of a message they are plain integers.  They are read, and put into
Prometheus' text form, when an operator's Prometheus asks.
"""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from twisted.web.resource import Resource
from twisted.web.server import Request

from msgnode.admin.health import EventLoopLag
from msgnode.admin.metric_table import (
    ADDRESSES,
    AUTHENTICATED,
    CIRCUITS,
    CONNECTED,
    COUNTER_FAMILIES,
    COUNTERS,
    HELD,
    RESOURCES,
    Family,
    Number,
)
from msgnode.node import Node

LONGEST_BIN = 22  # the last bin of the delivery histogram with a bound of its own: about 4 seconds


class Metrics(Resource):
    """
    The resource `/metrics`, in Prometheus' text form; every name begins `msgnode_`.
    """

    isLeaf = True

    def __init__(
        self, node: Node, lag: EventLoopLag, lost_lines: Callable[[], int], *others: Collector
    ) -> None:
        super().__init__()
        self._registry = CollectorRegistry()
        for collector in (NodeCollector(node, lag, lost_lines), *others):
            self._registry.register(collector)

    def render_GET(self, request: Request) -> bytes:
        request.setHeader(b"Content-Type", b"text/plain; version=0.0.4; charset=utf-8")
        return generate_latest(self._registry)


class NodeCollector(Collector):
    """
    A collector that reads the node's counters when Prometheus scrapes.
    """

    def __init__(self, node: Node, lag: EventLoopLag, lost_lines: Callable[[], int]) -> None:
        self._node = node
        self._lag = lag
        self._lost_lines = lost_lines

    def collect(self) -> Iterator[Metric]:
        self._node.data_plane.update_counts()
        yield from map(self._labelled_gauge, CONNECTED)
        yield self._gauge(AUTHENTICATED)
        yield from self._memory()
        yield from map(self._gauge, ADDRESSES)
        yield from self._queues()
        yield from map(self._gauge, RESOURCES)
        yield self._labelled_gauge(CIRCUITS)
        yield from self._event_loop()
        yield from map(self._counter, COUNTERS)
        yield CounterMetricFamily(
            "msgnode_traffic_lines_lost",
            "Lines lost because the traffic log could not be written.",
            self._lost_lines(),
        )
        yield from map(self._labelled_counter, COUNTER_FAMILIES)
        yield self._delivery()

    def _gauge(self, row: Number) -> Metric:
        return GaugeMetricFamily(f"msgnode_{row.name}", row.help, row.read(self._node))

    def _counter(self, row: Number) -> Metric:
        return CounterMetricFamily(f"msgnode_{row.name}", row.help, row.read(self._node))

    def _labelled_gauge(self, row: Family) -> Metric:
        family = GaugeMetricFamily(f"msgnode_{row.name}", row.help, labels=row.labels)
        for labels, number in row.read(self._node):
            family.add_metric(labels, number)
        return family

    def _labelled_counter(self, row: Family) -> Metric:
        family = CounterMetricFamily(f"msgnode_{row.name}", row.help, labels=row.labels)
        for labels, number in row.read(self._node):
            family.add_metric(labels, number)
        return family

    def _memory(self) -> Iterator[Metric]:
        """
        Memory for state, and the most of it that one session, user or address uses.
        """
        budget = self._node.budget
        yield GaugeMetricFamily(
            "msgnode_state_bytes",
            "Bytes of memory used by sessions, addresses, keys and registrations.",
            budget.node.bytes,
        )
        sessions = GaugeMetricFamily(
            "msgnode_sessions_most", "The most sessions that one user or address has.", labels=["of"]
        )
        size = GaugeMetricFamily(
            "msgnode_state_bytes_most",
            "The most memory used by the state of one session, user or address.",
            labels=["of"],
        )
        for of, accounts in budget.by_kind(self._node.sessions).items():
            if of != "session":
                sessions.add_metric([of], max((account.sessions for account in accounts), default=0))
            size.add_metric([of], max((account.bytes for account in accounts), default=0))
        yield sessions
        yield size
        partial_input = self._node.partial_input
        text = "Bytes of messages and requests that are not yet complete."
        yield GaugeMetricFamily("msgnode_partial_bytes", text, partial_input.bytes)
        text = "The most memory for incomplete messages of one address."
        yield GaugeMetricFamily("msgnode_partial_bytes_most", text, partial_input.most_of_one())
        yield GaugeMetricFamily(
            "msgnode_delayed_closes",
            "Refused connections that are closed after a delay.",
            self._node.sessions.connections.delayed_closes,
        )

    def _queues(self) -> Iterator[Metric]:
        """
        Messages that wait for their session, and messages of a client that wait for those before them.
        """
        queued = [session for session in self._node.sessions if session.mailbox.queued]
        yield GaugeMetricFamily(
            "msgnode_waiting_messages", "Messages queued for sessions.", sum(s.mailbox.queued for s in queued)
        )
        yield from map(self._gauge, HELD)
        yield GaugeMetricFamily(
            "msgnode_waiting_bytes",
            "Bytes of messages queued for sessions.",
            sum(s.mailbox.queued_bytes for s in queued),
        )

    def _event_loop(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "msgnode_event_loop_lag_seconds",
            "How late the event loop runs, by the last measurement.",
            self._lag.last,
        )
        yield GaugeMetricFamily(
            "msgnode_event_loop_lag_worst_seconds",
            "How late the event loop ran at worst since the node started.",
            self._lag.worst,
        )

    def _delivery(self) -> Metric:
        """
        The histogram of delivery times: bin n counts those of less than 2**n microseconds.
        """
        bins = self._node.counts.handed_over
        total, buckets = 0, []
        for n, number in enumerate(bins):
            total += number
            if n <= LONGEST_BIN:
                buckets.append((repr(2**n / 1e6), total))
        middle = sum(number * 2**n * 0.75 for n, number in enumerate(bins)) / 1e6
        text = (
            "Time from the arrival of a message until it is sent to its last recipient.  "
            "The sum is computed from the buckets, and may be wrong by half."
        )
        return HistogramMetricFamily(
            "msgnode_delivery_seconds", text, buckets=[*buckets, ("+Inf", total)], sum_value=middle
        )
