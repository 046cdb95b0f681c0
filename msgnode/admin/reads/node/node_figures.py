"""
The figures of the node: version, load, limits, listeners and back ends.
"""

import gc
import os

import msgspec

from msgnode.admin.health import sessions_by_state
from msgnode.admin.reads.inspector import Inspector
from msgnode.admin.reads.node.listeners import ListenerRow, list_listeners
from msgnode.bus.components import BackEnd
from msgnode.node import Node
from msgnode.sessions.counters import Counters
from msgnode.structures.url_masking import masked


class LoopLag(msgspec.Struct):
    """
    The lag of the event loop in seconds: now, and of the last minute the 99th percentile and the worst.
    """

    now: float
    p99_1m: float
    worst_1m: float


class BackEndRow(msgspec.Struct):
    """
    A server that the node calls: `closed`, `open` while its circuit breaker lets no call through, or `trial`
    while one call is let through to try; since then in seconds since 1970.

    `p99` is the time that 99 of 100 of its latest 500 calls took at most, in seconds, with retries; null
    before the first.
    """

    name: str
    url: str
    state: str
    since: float
    in_flight: int
    queued: int
    by_outcome: dict[str, int]
    p99: float | None


class SpoolReport(msgspec.Struct):
    """
    The spool of undelivered messages: bytes and segments on disk, and the bytes of undelivered messages.
    """

    bytes: int
    segments: int
    owed_bytes: int


class Use(msgspec.Struct):
    """
    How much of a limit is used; a limit of 0 is none.
    """

    used: float
    limit: float


class Totals(msgspec.Struct):
    """
    Counts since the node started.
    """

    in_messages: int
    in_bytes: int
    out_messages: int
    out_bytes: int
    refused: int
    dropped: int
    no_route: int


class ReloadReport(msgspec.Struct):
    """
    The last reload of the configuration.
    """

    time: float
    ok: bool
    text: str
    changed: list[str]
    needs_restart: list[str]
    by: str


class NodeFigures(msgspec.Struct, kw_only=True):
    """
    The figures of the node. Times are in seconds since 1970, durations in seconds, memory in bytes.
    """

    version: str
    python: str
    twisted: str
    pid: int
    node: str
    domain: str
    status: str
    started: float
    uptime: float
    config_file: str
    config_revision: str
    config_loaded_at: float
    last_reload: ReloadReport | None
    draining: bool
    data_plane: str
    sessions: dict[str, int]
    slow: int
    connections: dict[str, int]
    addresses: int
    uses: dict[str, Use]
    waiting_messages: int
    totals: Totals
    listeners: list[ListenerRow]
    store: str
    spool: SpoolReport
    disk_free: int
    fds: Use
    rss: int
    gc: list[int]
    loop_lag: LoopLag
    back_ends: list[BackEndRow]
    policy_version: int


def figures_of(inspector: Inspector) -> NodeFigures:
    """
    The figures, without a pass over the sessions.
    """
    node, facts, process = inspector.node, inspector.facts, inspector.process
    node.data_plane.update_counts()
    attached, away = sessions_by_state(node)
    return NodeFigures(
        version=facts.version,
        python=facts.python,
        twisted=facts.twisted,
        pid=os.getpid(),
        node=node.config.node,
        domain=node.config.domain,
        status=_status(node),
        started=round(facts.started, 3),
        uptime=round(inspector.uptime, 3),
        config_file=facts.config_file,
        config_revision=facts.revision,
        config_loaded_at=round(facts.config_loaded, 3),
        last_reload=_last_reload(inspector),
        draining=node.takes_no_clients,
        data_plane="native" if node.data_plane.is_native else "python",
        sessions={"attached": attached, "away": away},
        slow=node.sessions.count_slow(),
        connections={name: n for name, n in node.sessions.connections.by_connector.items() if n},
        addresses=len(node.routes),
        uses=uses(inspector),
        waiting_messages=node.sessions.queued.messages,
        totals=_totals(node.counts),
        listeners=list_listeners(inspector),
        store="none" if node.config.state == "none" else node.degraded_reason() or "ok",
        spool=SpoolReport(node.message_log.size, node.message_log.segments, node.message_log.live),
        disk_free=int(node.watermark.free),
        fds=Use(process.open_fds(), process.fd_limit),
        rss=process.memory()[1],
        gc=list(gc.get_count()),
        loop_lag=lag_of(inspector),
        back_ends=[_back_end(each, inspector) for each in node.back_ends],
        policy_version=node.enforcement.version,
    )


def _status(node: Node) -> str:
    if node.takes_no_clients:
        return "draining"
    return "degraded" if node.degraded_reason() or node.cluster_degraded_reason() else "up"


def _last_reload(inspector: Inspector) -> ReloadReport | None:
    last = inspector.facts.last_reload
    return None if last is None else msgspec.convert(last, ReloadReport, from_attributes=True)


def _totals(counts: Counters) -> Totals:
    return Totals(
        counts.received,
        counts.received_bytes,
        counts.sent,
        counts.sent_bytes,
        counts.refused.total(),
        counts.stale + counts.overflowed + counts.shed + counts.turned_away,
        counts.no_route,
    )


def lag_of(inspector: Inspector) -> LoopLag:
    recent = sorted(inspector.lag.recent)
    p99 = recent[int(0.99 * (len(recent) - 1))] if recent else 0.0
    return LoopLag(round(inspector.lag.last, 6), round(p99, 6), round(recent[-1] if recent else 0.0, 6))


def uses(inspector: Inspector) -> dict[str, Use]:
    """
    How much of each limit of the node is used.
    """
    node = inspector.node
    limits, session = node.config.limits, node.config.session
    return {
        "sessions": Use(len(node.sessions), limits.sessions),
        "connections": Use(len(node.connection_limits), limits.connections),
        "memory_bytes": Use(node.sessions.journal.bytes_in_memory, session.max_memory_bytes),
        "state_bytes": Use(node.budget.node.bytes, limits.state_bytes),
        "spool_bytes": Use(node.message_log.live, node.config.storage.max_spool_bytes),
        "waiting_bytes": Use(node.sessions.queued.bytes, 0),
    }


def _back_end(back_end: BackEnd, inspector: Inspector) -> BackEndRow:
    state = "closed" if not back_end.down else "trial" if back_end.under_way else "open"
    took = sorted(back_end.latest)
    return BackEndRow(
        back_end.name,
        masked(back_end.url),
        state,
        round(inspector.wall_of(back_end.since), 3),
        back_end.under_way,
        back_end.queued,
        dict(back_end.counts),
        round(took[int(0.99 * (len(took) - 1))], 6) if took else None,
    )
