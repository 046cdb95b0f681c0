"""
The report on the node: version, load, limits, listeners, back ends, and what is wrong.
"""

import gc
import os
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from msgnode.admin.health import sessions_by_state
from msgnode.admin.reads.inspector import Inspector
from msgnode.bus.components import BackEnd
from msgnode.structures.url_masking import masked

# From these on something is a trouble.
EXPIRY_WARNING_SECONDS = 14 * 86400.0  # before the end of a certificate
LAG_WARNING_SECONDS = 0.1
SHARE_WARNING = 0.9  # of a limit
CLIENT_KINDS = ("web", "line")
EVERY_ADDRESS = ("0.0.0.0", "::", "")


class LoopLag(msgspec.Struct):
    """
    The lag of the event loop in seconds: now, and of the last minute the 99th percentile and the worst.
    """

    now: float
    p99_1m: float
    worst_1m: float


class ListenerRow(msgspec.Struct):
    """
    A listener; with TLS the subject of its certificate, and its end in seconds since 1970.

    `connections` has the open WebSockets and lines that came by it, null of a listener that is not for
    clients. Requests to `/poll` and `/message` come and go by connections of their own.
    """

    kind: str
    where: str
    tls: bool
    cert_subject: str
    cert_not_after: float | None
    connections: int | None


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


class Trouble(msgspec.Struct):
    """
    A trouble of the node, as a sentence; `level` is `critical` or `warning`.
    """

    level: Literal["critical", "warning"]
    what: str
    text: str


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


class NodeReport(msgspec.Struct, kw_only=True):
    """
    The node. Times are in seconds since 1970, durations in seconds, memory in bytes.
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
    troubles: list[Trouble]


def report_node(inspector: Inspector) -> NodeReport:
    """
    The report, without a pass over the sessions.
    """
    node, facts = inspector.node, inspector.facts
    node.data_plane.update_counts()
    attached, away = sessions_by_state(node)
    last, counts = facts.last_reload, node.counts
    fds = Use(inspector.process.open_fds(), inspector.process.fd_limit)
    lag, used, listeners = lag_of(inspector), uses(inspector), _listeners(inspector)
    log = node.message_log
    report = NodeReport(
        version=facts.version,
        python=facts.python,
        twisted=facts.twisted,
        pid=os.getpid(),
        node=node.config.node,
        domain=node.config.domain,
        status="up",
        started=round(facts.started, 3),
        uptime=round(inspector.uptime, 3),
        config_file=facts.config_file,
        config_revision=facts.revision,
        config_loaded_at=round(facts.config_loaded, 3),
        last_reload=msgspec.convert(last, ReloadReport, from_attributes=True) if last is not None else None,
        draining=node.takes_no_clients,
        data_plane="native" if node.data_plane.is_native else "python",
        sessions={"attached": attached, "away": away},
        slow=node.sessions.count_slow(),
        connections={name: n for name, n in node.sessions.connections.by_connector.items() if n},
        addresses=len(node.routes),
        uses=used,
        waiting_messages=node.sessions.queued.messages,
        totals=Totals(
            counts.received,
            counts.received_bytes,
            counts.sent,
            counts.sent_bytes,
            counts.refused.total(),
            counts.stale + counts.overflowed + counts.shed + counts.turned_away,
            counts.no_route,
        ),
        listeners=listeners,
        store="none" if node.config.state == "none" else node.degraded_reason() or "ok",
        spool=SpoolReport(log.size, log.segments, log.live),
        disk_free=int(node.watermark.free),
        fds=fds,
        rss=inspector.process.memory()[1],
        gc=list(gc.get_count()),
        loop_lag=lag,
        back_ends=[_back_end(each, inspector) for each in node.back_ends],
        policy_version=node.enforcement.version,
        troubles=[],
    )
    report.troubles = troubles(report, inspector)
    degraded = node.degraded_reason() or node.cluster_degraded_reason()
    report.status = "draining" if node.takes_no_clients else "degraded" if degraded else "up"
    return report


class NodeRow(msgspec.Struct):
    """
    A node of the domain: `up` for this one, else its state as the cluster knows it.
    """

    name: str
    is_this: bool
    state: str


class NodeList(msgspec.Struct):
    """
    The nodes of the domain, this one first.
    """

    nodes: list[NodeRow]


def list_nodes(inspector: Inspector) -> NodeList:
    node = inspector.node
    this, *others = node.operator_requests.nodes()
    states = {}
    if node.cluster_status is not None:
        members = node.cluster_status.report().get("members", {})
        states = members if isinstance(members, dict) else {}
    rows = [NodeRow(name, False, _state(states.get(name))) for name in others]
    return NodeList([NodeRow(this, True, "up"), *rows])


def _state(found: Any) -> str:
    return str(found.get("state", "")) if isinstance(found, dict) else str(found or "unknown")


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


def _listeners(inspector: Inspector) -> list[ListenerRow]:
    by_address = inspector.node.sessions.connections.by_local_address
    return [
        ListenerRow(
            each.kind,
            each.where,
            each.tls,
            each.subject,
            each.not_after,
            _connections(each.where, by_address) if each.kind in CLIENT_KINDS else None,
        )
        for each in inspector.facts.listeners()
    ]


def _connections(where: str, by_address: Mapping[str, int]) -> int:
    """
    The connections to a listener; one at every address of the machine has those to its port.
    """
    host, _, port = where.rpartition(":")
    if host not in EVERY_ADDRESS:
        return by_address.get(where, 0)
    return sum(number for address, number in by_address.items() if address.rpartition(":")[2] == port)


def troubles(report: NodeReport, inspector: Inspector) -> list[Trouble]:
    """
    The troubles of the node, the worst first.
    """
    node, now, found = inspector.node, inspector.facts.wall(), []

    def add(level: Any, what: str, text: str) -> None:
        found.append(Trouble(level, what, text))

    if node.config.state != "none" and node.disk_failure():
        add("critical", "disk", f"the disk takes no data: {node.disk_failure()}")
    elif node.watermark.why:
        add("critical", "disk", node.watermark.why)
    if node.cluster_degraded_reason():
        add("critical", "cluster", node.cluster_degraded_reason())
    for listener in report.listeners:
        if listener.cert_not_after is not None:
            left = listener.cert_not_after - now
            where = f"the certificate of the {listener.kind} listener {listener.where}"
            if left <= 0:
                add("critical", "certificate", f"{where} has ended")
            elif left < EXPIRY_WARNING_SECONDS:
                add("warning", "certificate", f"{where} ends in {_days(left)}")
    if report.last_reload is not None and not report.last_reload.ok:
        add("warning", "config", f"the last reload failed: {report.last_reload.text}")
    for back_end in report.back_ends:
        if back_end.state != "closed":
            add("warning", "back-end", f"{back_end.name} does not answer; its circuit breaker is open")
    if node.reservations is not None and node.reservations.failures:
        text = (
            "the TURN server's command line does not answer: what it relays of reservations that have ended"
        )
        add("warning", "relay", f"{text} is not cut")
    for name, use in {**report.uses, "fds": report.fds}.items():
        if use.limit and use.used > SHARE_WARNING * use.limit:
            share = use.used / use.limit
            add("warning", "limit", f"{name}: {use.used:,.0f} of {use.limit:,.0f} are used ({share:.0%})")
    if report.loop_lag.p99_1m > LAG_WARNING_SECONDS:
        add("warning", "lag", f"the event loop is late by {report.loop_lag.p99_1m:.2f} s")
    if report.slow:
        clients = "client does" if report.slow == 1 else "clients do"
        add("warning", "slow", f"{report.slow} {clients} not read; messages wait")
    if report.draining:
        add("warning", "draining", "the node takes no new clients")
    return sorted(found, key=lambda each: each.level != "critical")


def _days(seconds: float) -> str:
    days = round(seconds / 86400)
    return "1 day" if days == 1 else f"{days} days"
