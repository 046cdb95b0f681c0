"""
The table of the node's metrics: the name, the HELP text and the source of each number.

docs/operations.md repeats it for operators.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgnode.node import Node

CONNECTORS = (
    "websocket",
    "line",
    "poll",
    "socketio",
    "rest",
    "events",
)  # those that show 0 when no client uses them

# Refusals that show 0 before the first, so that a rate of the first burst can be computed.
REFUSALS = (
    (400, "malformed"),
    (401, "no-session"),
    (401, "token"),
    (403, "banned"),
    (403, "not-your-address"),
    (403, "policy"),
    (403, "reserved-address"),
    (404, "no-route"),
    (413, "too-long"),
    (429, "limit"),
    (429, "rate"),
    (500, "failed"),
    (503, "disk"),
    (503, "failed"),
    (503, "limit"),
)
LIMITS = ("connections", "connections_per_ip", "sessions", "state_bytes", "partial_bytes", "flow_bytes")

Samples = Iterator[tuple[tuple[str, ...], float]]  # the values of the labels, and the number


class Number(NamedTuple):
    """
    A metric without labels: its name after `msgnode_`, its HELP text, and how it is read.
    """

    name: str
    help: str
    read: Callable[[Node], float]


class Family(NamedTuple):
    """
    A metric with labels: its name after `msgnode_`, its HELP text, its labels, and how its samples are read.
    """

    name: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[Node], Samples]


def _connections(node: Node) -> Samples:
    numbers = Counter(dict.fromkeys(CONNECTORS, 0))
    numbers.update(node.sessions.connections.by_connector)
    for connector, number in numbers.items():
        yield (connector,), number


def _sessions(node: Node) -> Samples:
    numbers = Counter(dict.fromkeys(CONNECTORS, 0))
    numbers.update(node.sessions.attached)
    for connector, number in numbers.items():
        yield ("attached", connector), number
    yield ("away", ""), len(node.sessions) - numbers.total()


def _circuits(node: Node) -> Samples:
    for back_end in node.back_ends:
        yield (_label(back_end.name),), float(back_end.down)


def _dropped(node: Node) -> Samples:
    counts = node.counts
    yield ("unreadable",), counts.unreadable
    yield ("no-route",), counts.no_route
    yield ("stale",), counts.stale
    yield ("overflow",), counts.overflowed
    yield ("shed",), counts.shed


def _rejected(node: Node) -> Samples:
    yield ("told",), node.connection_limits.refused
    yield ("unheard",), node.connection_limits.dropped


def _over_limit(node: Node) -> Samples:
    for limit, number in sorted(node.budget.refused.items()):
        yield (f"limits.{limit}",), number


def _closed(node: Node) -> Samples:
    for by, number in node.sessions.connections.closed.by.items():
        yield (by,), number


def _received(node: Node) -> Samples:
    numbers = Counter(dict.fromkeys(CONNECTORS, 0))
    numbers.update(node.counts.received_by)
    for connector, number in numbers.items():
        yield (connector,), number


def _limits(node: Node) -> Samples:
    config = node.config
    for key in LIMITS:
        yield (f"limits.{key}",), getattr(config.limits, key)
    yield ("session.max_memory_bytes",), config.session.max_memory_bytes
    yield ("storage.max_spool_bytes",), config.storage.max_spool_bytes
    yield ("storage.reserve_bytes",), config.storage.reserve_bytes


def _refused(node: Node) -> Samples:
    numbers = Counter(dict.fromkeys(REFUSALS, 0))
    numbers.update(node.counts.refused)
    for (code, reason), number in sorted(numbers.items()):
        yield (str(code), reason), number


def _registry_refused(node: Node) -> Samples:
    for code, number in sorted(node.registry_counts.refused.items()):
        yield (str(code),), number


def _back_end_requests(node: Node) -> Samples:
    for back_end in node.back_ends:
        for outcome, number in sorted(back_end.counts.items()):
            yield (_label(back_end.name), outcome), number


def _message_identities(node: Node) -> Samples:
    looks = node.message_identity
    for state, number in sorted(looks.counts.items() if looks is not None else ()):
        yield (state,), number


def _token_requests(node: Node) -> Samples:
    counts = node.logins.access.counts if node.logins is not None else {}
    yield from sorted(counts.items())


def _event_streams(node: Node) -> Samples:
    numbers = Counter(dict.fromkeys(("opened", "resumed", "refused", "gap"), 0))
    numbers.update(node.counts.event_streams)
    for event, number in numbers.items():
        yield (event,), number


def _resource_answers(node: Node) -> Samples:
    yield from sorted(node.counts.resource_answers.items())


def _label(name: str) -> str:
    """
    The name of a back end, as Prometheus' labels are written.
    """
    return name.lower().replace(" ", "_")


CONNECTED = (
    Family("connections", "Open connections.", ("connector",), _connections),
    Family(
        "sessions",
        "Sessions that are attached, by their connector, or away.",
        ("state", "connector"),
        _sessions,
    ),
)
ADDRESSES = (
    Number(
        "objects", "Objects of which the node keeps a journal.", lambda node: len(node.objects.journal or ())
    ),
    Number(
        "objects_journal_bytes",
        "Bytes of the journal of objects on disk.",
        lambda node: node.objects.journal.segments.size if node.objects.journal is not None else 0,
    ),
    Number(
        "objects_journal_failing",
        "1 while the journal of objects cannot be written.",
        lambda node: float(node.objects.journal is not None and bool(node.objects.journal.failing)),
    ),
    Number(
        "objects_catching_up",
        "Subscribers that get what they missed of an object.",
        lambda node: len(node.objects.catch_ups),
    ),
    Number("addresses", "Addresses that sessions are bound to.", lambda node: len(node.routes)),
    Number(
        "addresses_owned",
        "Addresses that a session owns because it announced them.",
        lambda node: len(node.routes.owners),
    ),
)
HELD = (
    Number(
        "held_connections",
        "Connections whose next messages wait while an earlier one is processed.",
        lambda node: len(node.input_order),
    ),
    Number(
        "held_bytes",
        "Bytes of memory for messages of held connections.",
        lambda node: node.input_order.buffered_bytes,
    ),
)
RESOURCES = (
    Number(
        "undelivered_memory_bytes",
        "Bytes of memory used by messages that are queued or unacknowledged.",
        lambda node: node.sessions.journal.bytes_in_memory,
    ),
    Number(
        "flows",
        "Decisions that the compiled data plane repeats.",
        lambda node: node.data_plane.flows,
    ),
    Number(
        "flow_bytes",
        "Bytes of memory used by the flows of the compiled data plane, about.",
        lambda node: node.data_plane.flow_bytes,
    ),
    Number(
        "sockets",
        "Open sockets of the web and lines listeners.",
        lambda node: len(node.connection_limits),
    ),
    Number(
        "store_failing",
        "1 while the node cannot write to its disk, else 0.",
        lambda node: float(bool(node.disk_failure())),
    ),
    Number(
        "disk_low",
        "1 while the disk has too little room for new sessions and messages, else 0.",
        lambda node: node.watermark.low,
    ),
    Number(
        "spool_bytes",
        "Bytes of undelivered messages in the spool.",
        lambda node: node.message_log.live,
    ),
    Number(
        "registry_entries",
        "Entries in the embedded registries.",
        lambda node: node.registry_counts.entries,
    ),
    Number(
        "registry_bytes",
        "Bytes that the entries of the embedded registries count for.",
        lambda node: node.registry_counts.bytes,
    ),
    Number(
        "records",
        "Definitions of records that the node knows.",
        lambda node: len(node.known_records),
    ),
    Number(
        "identity_refresh_tokens",
        "Refresh tokens that are kept for sessions.",
        lambda node: 0 if node.logins is None else len(node.logins.access.grants),
    ),
    Number(
        "identity_device_logins",
        "Device logins that are not over.",
        lambda node: 0 if node.logins is None else len(node.logins.devices),
    ),
    Number(
        "reservations",
        "Reservations of relay bandwidth.",
        lambda node: 0 if node.reservations is None else len(node.reservations),
    ),
    Number(
        "reserved_bits_up",
        "Bits per second that are reserved to the relay.",
        lambda node: sum(each.up for each in node.reservations or ()),
    ),
    Number(
        "reserved_bits_down",
        "Bits per second that are reserved from the relay.",
        lambda node: sum(each.down for each in node.reservations or ()),
    ),
    Number(
        "relay_failures",
        "Failed calls in a row of the TURN server's command line; 0 while it answers.",
        lambda node: 0 if node.reservations is None else node.reservations.failures,
    ),
    Number(
        "draining",
        "1 while the node takes no new clients, else 0.",
        lambda node: float(node.takes_no_clients),
    ),
    Number(
        "disk_free_bytes",
        "Bytes that are free on the disk of the state.",
        lambda node: node.watermark.free,
    ),
)
CIRCUITS = Family(
    "back_end_circuit_open",
    "1 while the circuit breaker of this back end is open, else 0.",
    ("back_end",),
    _circuits,
)
LIMIT = Family("limit", "Limits of the configuration by key; 0 means that there is none.", ("key",), _limits)
COUNTERS = (
    Number(
        "messages_by_flow",
        "Messages that the compiled data plane carried by itself.",
        lambda node: node.data_plane.carried,
    ),
    Number("bytes_in", "Bytes of messages received from clients.", lambda node: node.counts.received_bytes),
    Number(
        "messages_out",
        "Messages sent to clients, counted once per recipient.",
        lambda node: node.counts.sent,
    ),
    Number(
        "bytes_out",
        "Bytes of messages sent to clients, counted once per recipient.",
        lambda node: node.counts.sent_bytes,
    ),
    Number(
        "messages_waited",
        "Messages that were queued for their session.",
        lambda node: node.counts.waited,
    ),
    Number(
        "unkept",
        "Messages not queued because the disk has no room.",
        lambda node: node.counts.turned_away,
    ),
    Number(
        "held_back",
        "Times that a client got more in one turn of the event loop than is buffered.",
        lambda node: node.counts.held_back,
    ),
    Number(
        "unread_answers",
        "Times that the node stopped reading from a client that reads no answers.",
        lambda node: node.counts.unread_answers,
    ),
    Number(
        "waiting_unreadable",
        "Queued messages that could not be read back.",
        lambda node: node.counts.unread,
    ),
    Number("echoes_suppressed", "Messages not echoed to their own sender.", lambda node: node.counts.echoes),
    Number(
        "slices",
        "Slices of long work, between which other clients were served.",
        lambda node: node.slices.done,
    ),
    Number(
        "disk_refused",
        "Requests and messages refused because the disk is low.",
        lambda node: node.watermark.refused,
    ),
    Number(
        "inflated_bytes", "Bytes of compressed messages after inflation.", lambda node: node.inflation.total
    ),
    Number(
        "inflated_pauses",
        "Times that a client was paused because its compressed messages inflated to too much.",
        lambda node: node.inflation.pauses,
    ),
    Number(
        "records_checked",
        "Messages whose body was checked against the definition of their record.",
        lambda node: node.known_records.checked,
    ),
    Number(
        "records_reload_failures",
        "Reloads of definitions that had errors, after which the old ones stayed.",
        lambda node: node.known_records.refused_reloads,
    ),
    Number(
        "unlogged",
        "Messages left out of the traffic log at their sender's request.",
        lambda node: node.counts.unlogged,
    ),
)


def _overused(node: Node) -> Samples:
    if node.reservations is not None:
        yield ("warned",), node.reservations.warned
        yield ("ended",), node.reservations.stopped


COUNTER_FAMILIES = (
    Family("messages_in", "Messages received from clients.", ("connector",), _received),
    Family(
        "objects_events",
        "Messages of kept objects that were written or not, reads of their history, and what was replayed.",
        ("event",),
        lambda node: (((event,), number) for event, number in node.objects.events().items()),
    ),
    Family(
        "reservations_overused",
        "Reservations that were used for more than was reserved, by what happened: a warning, or their end.",
        ("event",),
        _overused,
    ),
    Family(
        "connections_closed",
        "Connections that closed, by who closed them: the client, the node, or an operator (admin).",
        ("by",),
        _closed,
    ),
    Family(
        "messages_punted",
        "Messages that the compiled data plane left to Python, by reason.",
        ("reason",),
        lambda node: (((reason,), number) for reason, number in node.data_plane.punted.items()),
    ),
    Family(
        "resource_answers",
        "Answers to requests at /resource, by method and class of status.",
        ("method", "status"),
        _resource_answers,
    ),
    Family(
        "event_streams",
        "Event streams that were opened, resumed or refused, and those that had a gap.",
        ("event",),
        _event_streams,
    ),
    Family("messages_dropped", "Messages that were not delivered, by reason.", ("reason",), _dropped),
    Family(
        "connections_rejected",
        "Connections rejected because of a limit: told to retry later, or closed at once.",
        ("how",),
        _rejected,
    ),
    Family("over_limit", "Requests refused because of a limit, by the limit's key.", ("limit",), _over_limit),
    Family(
        "messages_refused",
        "Messages refused, by code and reason of the answer.",
        ("code", "reason"),
        _refused,
    ),
    Family(
        "websocket_faults",
        "Protocol errors of WebSocket clients below the level of messages.",
        ("what",),
        lambda node: (((what,), number) for what, number in sorted(node.counts.websocket_faults.items())),
    ),
    Family("registry_refused", "Entries that the embedded registries refused.", ("code",), _registry_refused),
    Family(
        "back_end_requests",
        "Requests to back ends, by outcome.",
        ("back_end", "outcome"),
        _back_end_requests,
    ),
    Family(
        "message_identities",
        "Messages with identity tokens that the node has checked.",
        ("state",),
        _message_identities,
    ),
    Family(
        "identity_token_requests",
        "Requests for tokens to identity providers, by grant and outcome.",
        ("grant", "outcome"),
        _token_requests,
    ),
    Family(
        "session_events",
        "Events of sessions: opened, detached, closed and others.",
        ("event",),
        lambda node: (((event,), number) for event, number in sorted(node.counts.sessions.items())),
    ),
)
