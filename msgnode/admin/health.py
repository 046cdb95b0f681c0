"""
How the node is: `/live` for everybody, more of it and `/metrics` for operators.

The numbers are kept as plain integers on the messages' path; they are put
into Prometheus' form only when somebody asks.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.web.resource import Resource
from twisted.web.server import Request

from msgnode import __version__
from msgnode.node import Node
from msgnode.transport.http_answers import answer_json

LAG_EVERY = 0.5  # seconds
CONNECTORS = ("websocket", "line", "poll", "socketio", "rest")  # those that show 0 when nobody uses them


class EventLoopLag(Service):
    """
    A gauge of how late the event loop runs.

    How late the event loop runs: `last` and `worst` in seconds.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.last = self.worst = 0.0
        self._clock = clock
        self._since = self._due = 0.0
        self._beat = LoopingCall(self._measure)
        self._beat.clock = clock

    def startService(self) -> None:
        super().startService()
        self._since = self._clock.seconds()
        self._due = self._since + LAG_EVERY
        self._beat.start(LAG_EVERY, now=False)

    def stopService(self) -> None:
        super().stopService()
        if self._beat.running:
            self._beat.stop()

    def _measure(self) -> None:
        now = self._clock.seconds()
        self.last = max(0.0, now - self._due)
        self.worst = max(self.worst, self.last)
        # A LoopingCall keeps to multiples from its beginning, and leaves out those it missed.
        beats = int((now - self._since) / LAG_EVERY) + 1
        self._due = self._since + beats * LAG_EVERY


class LivenessResource(Resource):
    """
    The resource `/live` on the web port: status and version, for a load balancer.
    """

    isLeaf = True

    def __init__(self, node: Node) -> None:
        super().__init__()
        self._node = node

    def render_GET(self, request: Request) -> bytes:
        request.setHeader(b"Access-Control-Allow-Origin", b"*")
        return answer_json(request, 200, self.report())

    def report(self) -> dict[str, Any]:
        return {"status": self._status(), "version": __version__}

    def _status(self) -> str:
        """
        `degraded`: messages are carried, but nothing that needs the disk is promised.
        """
        if self._node.draining:
            return "draining"
        return "degraded" if self._node.strain() else "up"


class HealthResource(LivenessResource):
    """
    The resource `/live` on the admin listener.
    """

    def __init__(self, node: Node, clock: IReactorTime) -> None:
        super().__init__(node)
        self._clock = clock
        self._since = clock.seconds()

    def report(self) -> dict[str, Any]:
        attached, away = sessions_by_state(self._node)
        return {
            **super().report(),
            "node": self._node.config.node,
            "domain": self._node.config.domain,
            "uptime": round(self._clock.seconds() - self._since, 3),
            "sessions": {"attached": attached, "away": away},
            "connectors": dict(Counter(c.connector for c in self._node.sessions.connections)),
            "store": self._store(),
        }

    def _store(self) -> str:
        """
        `ok`, `none` where nothing is kept on disk, or why nothing, or nothing new, can be.
        """
        return "none" if self._node.config.state == "none" else self._node.strain() or "ok"


def sessions_by_state(node: Node) -> tuple[int, int]:
    """
    How many sessions have a connection, and how many are away.
    """
    attached = sum(session.connection is not None for session in node.sessions)
    return attached, len(node.sessions) - attached


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
    Reads the node's numbers when Prometheus asks.
    """

    def __init__(self, node: Node, lag: EventLoopLag, lost_lines: Callable[[], int]) -> None:
        self._node = node
        self._lag = lag
        self._lost_lines = lost_lines

    def collect(self) -> Iterator[Metric]:
        yield from self._gauges()
        yield from self._counters()
        yield self._delivery()

    def _gauges(self) -> Iterator[Metric]:
        node = self._node
        connections = GaugeMetricFamily("msgnode_connections", "Open connections.", labels=["connector"])
        attached: Counter[str] = Counter(dict.fromkeys(CONNECTORS, 0))
        for connection in node.sessions.connections:
            attached[connection.connector] += 1
        for connector, number in attached.items():
            connections.add_metric([connector], number)
        yield connections
        sessions = GaugeMetricFamily(
            "msgnode_sessions",
            "Sessions that are attached, by their connector, or away.",
            labels=["state", "connector"],
        )
        places = Counter(dict.fromkeys((*CONNECTORS, ""), 0))
        places.update(s.connection.connector if s.connection else "" for s in node.sessions)
        for place, number in places.items():
            sessions.add_metric(["attached" if place else "away", place], number)
        yield sessions
        proved = sum(bool(session.identity) for session in node.sessions)
        yield GaugeMetricFamily(
            "msgnode_sessions_authenticated", "Sessions whose identity is proved, attached or away.", proved
        )
        held = [session for session in node.sessions if session.waiting]
        yield from self._budget()
        yield GaugeMetricFamily(
            "msgnode_addresses", "Addresses that sessions are bound to.", len(node.routes)
        )
        yield GaugeMetricFamily(
            "msgnode_addresses_owned",
            "Addresses that a session owns because it announced them.",
            len(node.routes.owners),
        )
        yield GaugeMetricFamily(
            "msgnode_waiting_messages", "Messages queued for sessions.", sum(s.waiting for s in held)
        )
        yield GaugeMetricFamily(
            "msgnode_held_connections",
            "Connections whose next messages wait while an earlier one is processed.",
            len(node.input_order),
        )
        yield GaugeMetricFamily(
            "msgnode_held_bytes", "Memory for what held connections had sent.", node.input_order.kept_bytes
        )
        yield GaugeMetricFamily(
            "msgnode_waiting_bytes", "Bytes of messages that wait.", sum(s.waiting_bytes for s in held)
        )
        owed = "Bytes of memory used by messages that are queued or unacknowledged."
        yield GaugeMetricFamily("msgnode_undelivered_memory_bytes", owed, node.sessions.journal.held)
        yield GaugeMetricFamily(
            "msgnode_sockets",
            "Open sockets of the web and lines listeners.",
            len(node.connection_limits),
        )
        yield GaugeMetricFamily(
            "msgnode_store_failing",
            "1 while the node cannot write to its disk, else 0.",
            float(bool(node.trouble())),
        )
        yield GaugeMetricFamily(
            "msgnode_disk_low",
            "1 while the disk has too little room for new sessions and messages, else 0.",
            node.watermark.low,
        )
        yield GaugeMetricFamily(
            "msgnode_spool_bytes", "Bytes of undelivered messages in the spool.", node.message_log.live
        )
        yield GaugeMetricFamily(
            "msgnode_registry_entries", "Entries in the embedded registries.", node.registry_counts.entries
        )
        yield GaugeMetricFamily(
            "msgnode_registry_bytes",
            "Bytes that the entries of the embedded registries count for.",
            node.registry_counts.bytes,
        )
        yield GaugeMetricFamily(
            "msgnode_disk_free_bytes", "Bytes that are free on the disk of the state.", node.watermark.free
        )
        down = GaugeMetricFamily(
            "msgnode_back_end_circuit_open",
            "1 while the circuit breaker of this back end is open, else 0.",
            labels=["back_end"],
        )
        for back_end in node.back_ends:
            down.add_metric([_label(back_end.name)], float(back_end.down))
        yield down
        yield GaugeMetricFamily(
            "msgnode_event_loop_lag_seconds",
            "How late the event loop runs, by the last measurement.",
            self._lag.last,
        )
        yield GaugeMetricFamily(
            "msgnode_event_loop_lag_worst_seconds",
            "How late the event loop ran at worst since the start.",
            self._lag.worst,
        )

    def _budget(self) -> Iterator[Metric]:
        """
        What is remembered, and the most of it that one of each kind has.
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
            "The most memory for what one session, user or address has remembered.",
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
        text = "The most memory for what one address has begun to send."
        yield GaugeMetricFamily("msgnode_partial_bytes_most", text, partial_input.most_of_one())
        yield GaugeMetricFamily(
            "msgnode_delayed_closes",
            "Refused connections that are closed after a delay.",
            self._node.sessions.delayed_closes,
        )

    def _counters(self) -> Iterator[Metric]:
        counts = self._node.counts
        for name, text, number in (
            ("messages_in", "Messages received from clients.", counts.received),
            ("bytes_in", "Bytes of messages received.", counts.received_bytes),
            ("messages_out", "Messages sent to clients, counted once per recipient.", counts.sent),
            ("bytes_out", "Bytes of messages handed to connections.", counts.sent_bytes),
            ("messages_waited", "Messages that were queued for their session.", counts.waited),
            ("unkept", "Messages not queued because the disk has no room.", counts.turned_away),
            (
                "held_back",
                "Times that a client got more in one turn of the event loop than is buffered.",
                counts.held_back,
            ),
            (
                "unread_answers",
                "Times that the node stopped reading from a client that reads no answers.",
                counts.unread_answers,
            ),
            ("waiting_unreadable", "Queued messages that could not be read back.", counts.unread),
            ("echoes_suppressed", "Messages not echoed to their own sender.", counts.echoes),
            (
                "slices",
                "Slices of long work, between which other clients were served.",
                self._node.slices.done,
            ),
            (
                "disk_refused",
                "Requests and messages refused because the disk is low.",
                self._node.watermark.refused,
            ),
            ("inflated_bytes", "Bytes of inflated messages.", self._node.inflation.total),
            (
                "inflated_pauses",
                "How often too much came out of compressed messages in a second.",
                self._node.inflation.pauses,
            ),
            ("unlogged", "Messages left out of the traffic log at their sender's request.", counts.unlogged),
            (
                "traffic_lines_lost",
                "Lines lost because the traffic log could not be written.",
                self._lost_lines(),
            ),
        ):
            yield CounterMetricFamily(f"msgnode_{name}", text, number)
        dropped = CounterMetricFamily(
            "msgnode_messages_dropped", "Messages that reached nobody, by why.", labels=["reason"]
        )
        for reason, number in (
            ("unreadable", counts.unreadable),
            ("no-route", counts.no_route),
            ("stale", counts.stale),
            ("overflow", counts.overflowed),
            ("shed", counts.shed),
        ):
            dropped.add_metric([reason], number)
        yield dropped
        connection_limits = self._node.connection_limits
        rejected = CounterMetricFamily(
            "msgnode_connections_rejected",
            "Connections rejected because of a limit: told to retry later, or closed at once.",
            labels=["how"],
        )
        rejected.add_metric(["told"], connection_limits.refused)
        rejected.add_metric(["unheard"], connection_limits.dropped)
        yield rejected
        over = CounterMetricFamily(
            "msgnode_over_limit", "Requests refused because of a limit, by the limit's key.", labels=["limit"]
        )
        for limit, number in sorted(self._node.budget.refused.items()):
            over.add_metric([f"limits.{limit}"], number)
        yield over
        refused = CounterMetricFamily(
            "msgnode_messages_refused",
            "Messages refused, by the code of the answer and why.",
            labels=["code", "reason"],
        )
        for (code, reason), number in sorted(counts.refused.items()):
            refused.add_metric([str(code), reason], number)
        yield refused
        faults = CounterMetricFamily(
            "msgnode_websocket_faults",
            "Protocol errors of WebSocket clients below the level of messages.",
            labels=["what"],
        )
        for what, number in sorted(counts.websocket_faults.items()):
            faults.add_metric([what], number)
        yield faults
        unregistered = CounterMetricFamily(
            "msgnode_registry_refused", "Entries that the embedded registries refused.", labels=["code"]
        )
        for code, number in sorted(self._node.registry_counts.refused.items()):
            unregistered.add_metric([str(code)], number)
        yield unregistered
        asked = CounterMetricFamily(
            "msgnode_back_end_requests", "Requests to back ends, by outcome.", labels=["back_end", "outcome"]
        )
        for back_end in self._node.back_ends:
            for outcome, number in sorted(back_end.counts.items()):
                asked.add_metric([_label(back_end.name), outcome], number)
        yield asked
        identity_expiry = CounterMetricFamily(
            "msgnode_message_identities",
            "Messages with identity tokens that the node has checked.",
            labels=["state"],
        )
        looks = self._node.message_identity
        for state, number in sorted(looks.counts.items() if looks is not None else ()):
            identity_expiry.add_metric([state], number)
        yield identity_expiry
        events = CounterMetricFamily(
            "msgnode_session_events", "Events in the life of sessions.", labels=["event"]
        )
        for event, number in sorted(counts.sessions.items()):
            events.add_metric([event], number)
        yield events

    def _delivery(self) -> Metric:
        """
        Bin n holds what took less than 2**n microseconds.
        """
        bins = self._node.counts.handed_over
        total, buckets = 0, []
        for n, number in enumerate(bins):
            total += number
            if n <= 22:
                buckets.append((repr(2**n / 1e6), total))
        middle = sum(number * 2**n * 0.75 for n, number in enumerate(bins)) / 1e6
        text = (
            "From a message's arrival until it was handed to its last connection.  "
            "The sum is made of the buckets, and may be wrong by half."
        )
        return HistogramMetricFamily(
            "msgnode_delivery_seconds", text, buckets=[*buckets, ("+Inf", total)], sum_value=middle
        )


def _label(name: str) -> str:
    """
    What people call a back end, as Prometheus' labels are written.
    """
    return name.lower().replace(" ", "_")
