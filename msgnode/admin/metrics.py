"""
The counters of the node as Prometheus metrics: `/metrics` on the admin listener.

On the path of a message they are plain integers.  They are read, and put into
Prometheus' text form, when an operator's Prometheus asks.
"""

import gzip
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from twisted.web.resource import Resource
from twisted.web.server import Request

from msgnode.admin.health import LAG_BOUNDS, EventLoopLag
from msgnode.admin.metric_table import (
    ADDRESSES,
    CIRCUITS,
    CONNECTED,
    COUNTER_FAMILIES,
    COUNTERS,
    HELD,
    LIMIT,
    RESOURCES,
    Family,
    Number,
)
from msgnode.admin.node_facts import NodeFacts
from msgnode.admin.process_metrics import ProcessCollector, ProcessFigures
from msgnode.admin.survey import Survey
from msgnode.node import Node

LONGEST_BIN = 22  # the last bin of the delivery histogram with a bound of its own: about 4 seconds


class Metrics(Resource):
    """
    The resource `/metrics`, in the form that the client accepts: Prometheus' text or OpenMetrics.

    Names begin `msgnode_`, those of the process `process_` and `python_gc_`.
    """

    isLeaf = True

    def __init__(
        self,
        node: Node,
        lag: EventLoopLag,
        lost_lines: Callable[[], int],
        *others: Collector,
        facts: NodeFacts | None = None,
    ) -> None:
        super().__init__()
        self._registry = CollectorRegistry()
        facts = facts or NodeFacts(node.config)
        process = ProcessCollector(ProcessFigures())
        for collector in (NodeCollector(node, lag, lost_lines, facts), process, *others):
            self._registry.register(collector)

    def render_GET(self, request: Request) -> bytes:
        encode, kind = choose_encoder(_header(request, b"Accept"))
        request.setHeader(b"Content-Type", kind.encode())
        data: bytes = encode(self._registry)
        request.setHeader(b"Vary", b"Accept-Encoding")
        if "gzip" in _header(request, b"Accept-Encoding").lower():
            request.setHeader(b"Content-Encoding", b"gzip")
            return gzip.compress(data, 1)
        return data


def _header(request: Request, name: bytes) -> str:
    return ",".join(value.decode("latin-1") for value in request.requestHeaders.getRawHeaders(name, []))


class NodeCollector(Collector):
    """
    A collector that reads the node's counters when Prometheus scrapes.
    """

    def __init__(
        self, node: Node, lag: EventLoopLag, lost_lines: Callable[[], int], facts: NodeFacts
    ) -> None:
        self._facts = facts
        self._survey = Survey(node)
        self._node = node
        self._lag = lag
        self._lost_lines = lost_lines

    def collect(self) -> Iterator[Metric]:
        self._node.data_plane.update_counts()
        yield from self._about()
        yield from map(self._labelled_gauge, CONNECTED)
        yield from self._memory()
        yield from map(self._gauge, ADDRESSES)
        yield from self._queues()
        yield from map(self._gauge, RESOURCES)
        yield self._labelled_gauge(LIMIT)
        yield self._labelled_gauge(CIRCUITS)
        yield self._event_loop()
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
        found = self._survey.look()
        yield GaugeMetricFamily(
            "msgnode_sessions_authenticated",
            "Sessions with a verified identity, attached or away; of many those of the last scrape.",
            found.authenticated,
        )
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
        for of, number in found.most_sessions.items():
            sessions.add_metric([of], number)
        for of, number in found.most_bytes.items():
            size.add_metric([of], number)
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
        queued = self._node.sessions.queued
        yield GaugeMetricFamily("msgnode_waiting_messages", "Messages queued for sessions.", queued.messages)
        yield from map(self._gauge, HELD)
        yield GaugeMetricFamily(
            "msgnode_waiting_bytes",
            "Bytes of messages queued for sessions.",
            queued.bytes,
        )

    def _event_loop(self) -> Metric:
        total, buckets = 0, []
        for bound, number in zip((*map(repr, LAG_BOUNDS), "+Inf"), self._lag.bins, strict=True):
            total += number
            buckets.append((bound, total))
        return HistogramMetricFamily(
            "msgnode_event_loop_lag_seconds",
            "How late the event loop runs, measured twice a second.",
            buckets=buckets,
            sum_value=self._lag.total,
        )

    def _about(self) -> Iterator[Metric]:
        """
        The version, the configuration, and the certificates of the listeners.
        """
        facts, config = self._facts, self._node.config
        info = GaugeMetricFamily(
            "msgnode_info", "1, with the version of the node.", labels=["version", "node", "domain", "python"]
        )
        info.add_metric([facts.version, config.node, config.domain, facts.python], 1)
        yield info
        revision = GaugeMetricFamily(
            "msgnode_config_info", "1, with the revision of the configuration in effect.", labels=["revision"]
        )
        revision.add_metric([facts.revision], 1)
        yield revision
        last = facts.last_reload
        yield GaugeMetricFamily(
            "msgnode_config_last_reload_successful",
            "1 if the last reload succeeded, or there was none, else 0.",
            float(last is None or last.ok),
        )
        yield GaugeMetricFamily(
            "msgnode_config_last_reload_timestamp_seconds",
            "When the configuration was last read with success, in seconds since 1970.",
            facts.config_loaded,
        )
        expiry = GaugeMetricFamily(
            "msgnode_certificate_expiry_timestamp_seconds",
            "When the certificate of a listener ends, in seconds since 1970.",
            labels=["listener", "where"],
        )
        for each in facts.listeners():
            if each.not_after is not None:
                expiry.add_metric([each.kind, each.where], each.not_after)
        yield expiry

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
