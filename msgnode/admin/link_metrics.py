"""
Links and streams as Prometheus metrics, and in `/live`, by peer: the configured domains, and `other`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from msgnode.links.operations import DomainStatus, LinkOperations, LinkStatus, OwnCertificates, StreamStatus
from msgnode.links.peer_counts import OTHER, PeerCounts
from msgnode.links.wire.datagram import PRIORITIES

Values = Iterator[tuple[tuple[str, ...], float]]  # the labels after the peer's, and the number
# From the one that carries messages to the one that waits longest for them.
_STATES = ("up", "synchronising", "authenticating", "connecting", "waiting", "lost", "refused", "configured")


class Peer(NamedTuple):
    """
    The domains that share a label: one configured domain, or all others.
    """

    domains: list[DomainStatus]

    @property
    def links(self) -> list[LinkStatus]:
        return [link for domain in self.domains for link in domain.links]

    @property
    def streams(self) -> list[StreamStatus]:
        return [stream for domain in self.domains for stream in domain.streams]


class Gauge(NamedTuple):
    """
    A metric of this moment: its name after `msgnode_`, its HELP text, the labels after `peer`, its source.
    """

    name: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[Peer], Values]


class Count(NamedTuple):
    """
    A metric that counts since the node started, likewise.
    """

    name: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[PeerCounts], Values]


def by_peer(operations: LinkOperations) -> dict[str, Peer]:
    """
    Returns all domains by label, in the order of the configuration.
    """
    peers = {domain: Peer([]) for domain in (*operations.peers, OTHER)}
    for status in operations.domains():
        peers[status.domain if status.domain in peers else OTHER].domains.append(status)
    return peers


def live_report(operations: LinkOperations, own: str) -> dict[str, dict[str, Any]]:
    """
    Returns the peers as `/live` has them; strangers only if there are any. The `own` domain is none of them.
    """
    peers = by_peer(operations)
    strangers = peers[OTHER].domains
    strangers[:] = [status for status in strangers if status.domain != own]
    peers.pop(own, None)  # which the metrics have for the links between the nodes of a cluster
    return {label: _live(peer) for label, peer in peers.items() if label != OTHER or strangers}


def _live(peer: Peer) -> dict[str, Any]:
    states = [link.state for link in peer.links]
    admin_states = {domain.admin_state for domain in peer.domains} - {"enabled"}
    return {
        "state": min(states, key=_STATES.index, default="configured"),
        "admin_state": min(admin_states, default="enabled"),
        "links_up": states.count("up"),
        "reachable": any(domain.cost is not None for domain in peer.domains),
        "undelivered": sum(stream.undelivered for stream in peer.streams),
    }


def _one(number: float | None) -> Values:
    if number is not None:
        yield (), number


def _links(peer: Peer) -> Values:
    states = Counter(link.state for link in peer.links)
    yield ("up",), states.pop("up", 0)
    for state, number in sorted(states.items()):
        yield (state,), number


def _admin_states(peer: Peer) -> Values:
    for state, number in sorted(Counter(domain.admin_state for domain in peer.domains).items()):
        yield (state,), number


def _queue(peer: Peer) -> Values:
    for priority in range(PRIORITIES):
        yield (str(priority),), sum(sum(link.queue[priority : priority + 1]) for link in peer.links)


def _refused(counts: PeerCounts) -> Values:
    for reason, number in sorted(counts.refused.items()):
        yield (reason,), number


def _exchanged(counts: PeerCounts) -> Values:
    for event, number in sorted(counts.exchanged.items()):
        yield (event,), number


def _greatest(values: list[float | None]) -> Values:
    return _one(max((value for value in values if value is not None), default=None))


def _least(values: list[float | None]) -> Values:
    return _one(min((value for value in values if value is not None), default=None))


GAUGES = (
    Gauge("links", "Links to nodes of the peer, by state.", ("state",), _links),
    Gauge(
        "peer_admin_state",
        "Domains of the peer that an operator has paused, banned, is draining, or left enabled.",
        ("state",),
        _admin_states,
    ),
    Gauge(
        "route_cost",
        "Cost of the route to the nearest node of the peer; absent without a route.",
        (),
        lambda peer: _greatest([domain.cost for domain in peer.domains]),
    ),
    Gauge(
        "link_round_trip_seconds",
        "Round trip of the peer's slowest link, the least of the last four.",
        (),
        lambda peer: _greatest([link.round_trip for link in peer.links]),
    ),
    Gauge(
        "link_queue_datagrams",
        "Datagrams that wait for the peer's links, by priority.",
        ("priority",),
        _queue,
    ),
    Gauge(
        "link_queue_bytes",
        "Bytes of the datagrams that wait for the peer's links.",
        (),
        lambda peer: _one(sum(link.queue_bytes for link in peer.links)),
    ),
    Gauge(
        "link_certificate_days",
        "Days until the first certificate of the peer's links ends.",
        (),
        lambda peer: _least([link.certificate_days for link in peer.links]),
    ),
    Gauge(
        "stream_undelivered_messages",
        "Messages that nodes of the peer have not acknowledged.",
        (),
        lambda peer: _one(sum(stream.undelivered for stream in peer.streams)),
    ),
    Gauge(
        "stream_undelivered_bytes",
        "Bytes of messages that nodes of the peer have not acknowledged.",
        (),
        lambda peer: _one(sum(stream.undelivered_bytes for stream in peer.streams)),
    ),
    Gauge(
        "stream_oldest_seconds",
        "Age of the oldest message that a node of the peer has not acknowledged.",
        (),
        lambda peer: _one(max((stream.oldest_seconds for stream in peer.streams), default=0.0)),
    ),
    Gauge(
        "stream_window_messages",
        "Messages that may be under way to nodes of the peer.",
        (),
        lambda peer: _one(sum(stream.window for stream in peer.streams)),
    ),
    Gauge(
        "grants",
        "Subscriptions of the peer's clients to addresses of this domain.",
        (),
        lambda peer: _one(sum(domain.grants for domain in peer.domains)),
    ),
    Gauge(
        "upstream_subscriptions",
        "Subscriptions of clients of this node to addresses of the peer.",
        (),
        lambda peer: _one(sum(domain.upstream for domain in peer.domains)),
    ),
)
TOTALS = (
    ("streams_bytes", "Bytes of all messages for other nodes, with 1 KiB more for each."),
    ("streams_limit_bytes", "Bytes that all messages for other nodes may have."),
)
OWN_GAUGES: tuple[tuple[str, str, Callable[[OwnCertificates], float | None]], ...] = (
    (
        "node_certificate_days",
        "Days until the certificate of this node for links ends.",
        lambda own: own.certificate_days,
    ),
    (
        "revocation_list_days",
        "Days until the first revocation list ends, after which certificates of its authority are refused.",
        lambda own: own.list_days,
    ),
)
COUNTS = (
    Count("link_bytes_in", "Bytes received on links of the peer.", (), lambda c: _one(c.bytes_in)),
    Count("link_bytes_out", "Bytes sent on links of the peer.", (), lambda c: _one(c.bytes_out)),
    Count(
        "link_failures",
        "Attempts to connect to the peer that failed, and links that were lost.",
        (),
        lambda c: _one(c.failures),
    ),
    Count(
        "stream_sent_again",
        "Messages sent again because the peer did not acknowledge them in time.",
        (),
        lambda c: _one(c.sent_again),
    ),
    Count(
        "stream_in_doubt",
        "Messages that the peer may or may not have, because it lost its memory of the stream.",
        (),
        lambda c: _one(c.in_doubt),
    ),
    Count(
        "stream_bytes_saved",
        "Bytes that compression saved on the way to the peer.",
        (),
        lambda c: _one(c.bytes_saved),
    ),
    Count(
        "stream_refused",
        "Messages for the peer that were not accepted or were dropped, by reason.",
        ("reason",),
        _refused,
    ),
    Count(
        "exchange",
        "Messages sent to the peer and received from it, and what was refused or lost, by event.",
        ("event",),
        _exchanged,
    ),
    Count(
        "peer_faults",
        "Faults of the peer: what it sent and should not have, and connections that it did not finish.",
        ("layer", "cause"),
        lambda counts: ((labels, number) for labels, number in sorted(counts.faults.items())),
    ),
)


class LinkCollector(Collector):
    """
    A collector that reads links when Prometheus scrapes; a node without federation has none of its metrics.
    """

    def __init__(self, operations: Callable[[], LinkOperations | None]) -> None:
        self._operations = operations

    def collect(self) -> Iterator[Metric]:
        operations = self._operations()
        if operations is None:
            return
        for (name, text), total in zip(TOTALS, operations.spool(), strict=True):
            yield GaugeMetricFamily(f"msgnode_{name}", text, total)
        peers = by_peer(operations)
        for row in GAUGES:
            gauge = GaugeMetricFamily(f"msgnode_{row.name}", row.help, labels=("peer", *row.labels))
            for label, peer in peers.items():
                for labels, number in row.read(peer):
                    gauge.add_metric((label, *labels), number)
            yield gauge
        own = operations.own_certificates()
        for name, text, value in OWN_GAUGES:
            if (days := value(own)) is not None:
                yield GaugeMetricFamily(f"msgnode_{name}", text, days)
        counts: Mapping[str, PeerCounts] = operations.counts()
        for count in COUNTS:
            counter = CounterMetricFamily(f"msgnode_{count.name}", count.help, labels=("peer", *count.labels))
            for label, counted in counts.items():
                for labels, number in count.read(counted):
                    counter.add_metric((label, *labels), number)
            yield counter
