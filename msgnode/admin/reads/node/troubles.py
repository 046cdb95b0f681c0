"""
The troubles of the node: what is wrong with it, in sentences.
"""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from msgnode.admin.reads.inspector import Inspector
from msgnode.admin.reads.node.node_figures import NodeFigures
from msgnode.node import Node

CRITICAL: Final = "critical"
WARNING: Final = "warning"
# From these on something is a trouble.
EXPIRY_WARNING_SECONDS = 14 * 86400.0  # before the end of a certificate
LAG_WARNING_SECONDS = 0.1
SHARE_WARNING = 0.9  # of a limit


class Trouble(msgspec.Struct):
    """
    A trouble of the node, as a sentence; `level` is `critical` or `warning`.
    """

    level: Literal["critical", "warning"]
    what: str
    text: str


def troubles(report: NodeFigures, inspector: Inspector) -> list[Trouble]:
    """
    The troubles of the node, the worst first.
    """
    found = [
        *_of_disk_and_cluster(inspector.node),
        *_of_certificates(report, inspector.facts.wall()),
        *_of_services(report, inspector.node),
        *_of_load(report),
    ]
    return sorted(found, key=lambda each: each.level != CRITICAL)


def _of_disk_and_cluster(node: Node) -> Iterator[Trouble]:
    if node.config.state != "none" and node.disk_failure():
        yield Trouble(CRITICAL, "disk", f"the disk takes no data: {node.disk_failure()}")
    elif node.watermark.why:
        yield Trouble(CRITICAL, "disk", node.watermark.why)
    if node.cluster_degraded_reason():
        yield Trouble(CRITICAL, "cluster", node.cluster_degraded_reason())


def _of_certificates(report: NodeFigures, now: float) -> Iterator[Trouble]:
    for listener in report.listeners:
        if listener.cert_not_after is None:
            continue
        left = listener.cert_not_after - now
        where = f"the certificate of the {listener.kind} listener {listener.where}"
        if left <= 0:
            yield Trouble(CRITICAL, "certificate", f"{where} has ended")
        elif left < EXPIRY_WARNING_SECONDS:
            yield Trouble(WARNING, "certificate", f"{where} ends in {_days(left)}")


def _of_services(report: NodeFigures, node: Node) -> Iterator[Trouble]:
    if report.last_reload is not None and not report.last_reload.ok:
        yield Trouble(WARNING, "config", f"the last reload failed: {report.last_reload.text}")
    for back_end in report.back_ends:
        if back_end.state != "closed":
            text = f"{back_end.name} does not answer; its circuit breaker is open"
            yield Trouble(WARNING, "back-end", text)
    if node.reservations is not None and node.reservations.failures:
        text = "the TURN server's command line does not answer"
        text += ": what it relays of reservations that have ended is not cut"
        yield Trouble(WARNING, "relay", text)


def _of_load(report: NodeFigures) -> Iterator[Trouble]:
    for name, use in {**report.uses, "fds": report.fds}.items():
        if use.limit and use.used > SHARE_WARNING * use.limit:
            share = use.used / use.limit
            text = f"{name}: {use.used:,.0f} of {use.limit:,.0f} are used ({share:.0%})"
            yield Trouble(WARNING, "limit", text)
    if report.loop_lag.p99_1m > LAG_WARNING_SECONDS:
        yield Trouble(WARNING, "lag", f"the event loop is late by {report.loop_lag.p99_1m:.2f} s")
    if report.slow:
        clients = "client does" if report.slow == 1 else "clients do"
        yield Trouble(WARNING, "slow", f"{report.slow} {clients} not read; messages wait")
    if report.draining:
        yield Trouble(WARNING, "draining", "the node takes no new clients")


def _days(seconds: float) -> str:
    days = round(seconds / 86400)
    return "1 day" if days == 1 else f"{days} days"
