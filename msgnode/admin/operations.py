"""
The operations of a node for its operators: everything that the admin API reads and does, and its services.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime

from msgnode.admin.access.named_tokens import ADMIN
from msgnode.admin.actions.audit_trail import AuditTrail
from msgnode.admin.actions.audited import Audited
from msgnode.admin.actions.ban_actions import FILE as BANS
from msgnode.admin.actions.ban_actions import BanActions
from msgnode.admin.actions.label_actions import FILE as LABELS
from msgnode.admin.actions.label_actions import LabelActions
from msgnode.admin.actions.limit_actions import LimitActions
from msgnode.admin.actions.log_actions import LogActions
from msgnode.admin.actions.node_actions import NodeActions
from msgnode.admin.actions.session_actions import SessionActions
from msgnode.admin.actions.token_actions import TokenActions
from msgnode.admin.actions.trace_actions import TraceActions
from msgnode.admin.admin_tokens import AdminTokens
from msgnode.admin.api.endpoint import Endpoint
from msgnode.admin.backup_api import BackupActions, Backups
from msgnode.admin.endpoints.actions import (
    backup_endpoints,
    ban_endpoints,
    label_endpoints,
    node_endpoints,
    reservation_endpoints,
    session_endpoints,
    stub_endpoints,
    token_endpoints,
    trace_endpoints,
)
from msgnode.admin.endpoints.reads import node_reads, read
from msgnode.admin.health import EventLoopLag
from msgnode.admin.live.service import Live
from msgnode.admin.node_facts import NodeFacts
from msgnode.admin.reads.audit_list import AuditList, AuditQuery, list_audit
from msgnode.admin.reads.inspector import Inspector
from msgnode.admin.reads.series import FILE as HISTORY
from msgnode.admin.reads.series import History, SeriesQuery, SeriesReport
from msgnode.admin.reads.top import Top, TopList, TopQuery
from msgnode.admin.reservations.reservation_actions import ReservationActions
from msgnode.admin.stubs.stub_actions import StubActions
from msgnode.node import Node
from msgnode.policy.administration.commands import PolicyCommands
from msgnode.storage.audit_log import AuditLog


class Operations:
    """
    The operations of one node, with its endpoints and the services behind them.

    `run` runs a function that uses the disk, perhaps in a thread.
    """

    def __init__(
        self,
        node: Node,
        facts: NodeFacts,
        lag: EventLoopLag,
        clock: IReactorTime,
        tokens: AdminTokens,
        policies: PolicyCommands,
        run: Callable[..., Deferred[Any]] = maybeDeferred,
    ) -> None:
        state = None if node.config.state == "none" else Path(node.config.state)
        self.tokens = tokens
        self.run = run
        self.policies = policies
        self.inspector = Inspector(node, facts, lag, clock)
        self.audit = AuditLog(state, facts.wall, run, lambda: node.config.admin.audit_keep_days)
        self.history = History(self.inspector, None if state is None else state / HISTORY)
        self.backups = Backups(node, run)
        self.live = Live(node, facts, clock, run, facts.wall)
        self.inspector.events = self.live.events_of
        self._top = Top(self.inspector)
        self.inspector.rates = self._top.rates
        self.audited = audited = Audited(self.audit)
        self._bans = BanActions(self.inspector, audited, None if state is None else state / BANS)
        self._limits = LimitActions(self.inspector, audited)
        self._labels = LabelActions(self.inspector, audited, None if state is None else state / LABELS)
        self.inspector.labels = self._labels.of
        self._sessions = SessionActions(self.inspector, audited, self._bans)
        self._reservations = ReservationActions(self.inspector.node, audited)
        self._node = NodeActions(self.inspector, audited, policies)
        self.trail = AuditTrail(self.audit, facts, tokens)
        self.audit.on_entry = self._audited
        self._tokens = TokenActions(self.inspector, audited, tokens.named)
        self._traces = TraceActions(audited, self.live.traces)
        self._log = LogActions(self.inspector, audited)
        self._backup = BackupActions(audited, self.backups)
        self._stubs = StubActions(self.inspector, audited)

    def services(self) -> list[Service]:
        """
        The services, in the order in which they start.
        """
        return [self.trail, self._bans, self._labels, self._node, self.history, self.live]

    def _audited(self, entry: dict[str, Any]) -> None:
        """
        Shows what is done as an event, too.
        """
        if entry.get("phase") == "result":
            shown = ("id", "who", "via", "action", "target", "number", "reason", "result", "ok")
            self.live.ring.add("audit", {key: entry[key] for key in shown if key in entry}, entry["time"])

    def endpoints(self) -> list[Endpoint]:
        """
        The endpoints of the API.
        """
        return [
            *node_reads(self.inspector),
            read(
                "top",
                "The heaviest sessions, users or peers.",
                lambda call: self._top.ask(call.query),
                TopList,
                TopQuery,
            ),
            read(
                "series",
                "The built-in history.",
                lambda call: self.history.report(call.query),
                SeriesReport,
                SeriesQuery,
            ),
            read(
                "audit",
                "What operators did.",
                lambda call: list_audit(self.audit, call.query),
                AuditList,
                AuditQuery,
                ADMIN,
            ),
            *session_endpoints(self._sessions),
            *reservation_endpoints(self._reservations),
            *ban_endpoints(self._bans, self._limits),
            *label_endpoints(self._labels),
            *node_endpoints(self._node, self._log),
            *token_endpoints(self._tokens),
            *stub_endpoints(self._stubs),
            *trace_endpoints(self._traces),
            *backup_endpoints(self._backup),
        ]
