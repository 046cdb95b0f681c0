"""
The operations of a node for its operators: everything that the admin API reads and does, and its services.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime

from msgnode.admin.access.named_tokens import ADMIN, OPERATOR, VIEWER
from msgnode.admin.actions.audit_trail import AuditTrail
from msgnode.admin.actions.audited import ActionResult, Audited
from msgnode.admin.actions.ban_actions import FILE as BANS
from msgnode.admin.actions.ban_actions import BanActions, BanList, BanRequest, LimitList, LimitRequest
from msgnode.admin.actions.log_actions import LogActions, LogLevelList, LogLevelRequest
from msgnode.admin.actions.node_actions import DrainRequest, NodeActions, ProbeReport, ProbeRequest
from msgnode.admin.actions.session_actions import (
    Kick,
    KickMany,
    Purge,
    SessionActions,
    Unbind,
    ban_of_kick,
)
from msgnode.admin.actions.token_actions import TokenActions, TokenList, TokenRequest
from msgnode.admin.actions.trace_actions import TraceActions, TraceList, TraceRequest, TraceRow
from msgnode.admin.admin_tokens import AdminTokens
from msgnode.admin.api.endpoint import EVERY_NODE, HOLDER, Call, Endpoint, NoQuery, Reason
from msgnode.admin.backup_api import BackupActions, BackupList, Backups
from msgnode.admin.health import EventLoopLag
from msgnode.admin.live.service import Live
from msgnode.admin.node_facts import NodeFacts
from msgnode.admin.reads.address_report import (
    AddressList,
    AddressReport,
    PrefixQuery,
    list_addresses,
    report_address,
)
from msgnode.admin.reads.audit_list import AuditList, AuditQuery, list_audit
from msgnode.admin.reads.config_report import ConfigReport, report_config
from msgnode.admin.reads.connection_list import ConnectionList, ConnectionQuery, list_connections
from msgnode.admin.reads.inspector import Inspector
from msgnode.admin.reads.memory import MemoryReport, report_memory
from msgnode.admin.reads.node_report import NodeList, NodeReport, list_nodes, report_node
from msgnode.admin.reads.pools import PoolQuery, PoolReport, report_pools
from msgnode.admin.reads.refusal_list import RefusalList, RefusalQuery, list_refusals
from msgnode.admin.reads.series import FILE as HISTORY
from msgnode.admin.reads.series import History, SeriesQuery, SeriesReport
from msgnode.admin.reads.session_list import SessionList, SessionQuery, list_sessions
from msgnode.admin.reads.session_report import AddressPage, SessionReport, report_session
from msgnode.admin.reads.top import Top, TopList, TopQuery
from msgnode.admin.stubs.stub_actions import ACTIONS, StubActions, StubList
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
        self.policies = policies
        self.inspector = Inspector(node, facts, lag, clock)
        self.audit = AuditLog(state, facts.wall, run, lambda: node.config.admin.audit_keep_days)
        self.history = History(self.inspector, None if state is None else state / HISTORY)
        self.backups = Backups(node, run)
        self.live = Live(node, facts, clock, run, facts.wall)
        self._top = Top(self.inspector)
        audited = Audited(self.audit)
        self._bans = BanActions(self.inspector, audited, None if state is None else state / BANS)
        self._sessions = SessionActions(self.inspector, audited, self._bans)
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
        return [self.trail, self._bans, self._node, self.history, self.live]

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
        return [*self._reads(), *self._actions(), *self._kept()]

    def _reads(self) -> list[Endpoint]:
        inspector = self.inspector

        def of(function: Callable[[Inspector, Any], Any]) -> Callable[[Call], Any]:
            return lambda call: function(inspector, call.query)

        def read(
            path: str,
            summary: str,
            act: Callable[[Call], Any],
            answer: Any,
            query: Any = NoQuery,
            role: str = VIEWER,
            reach: str = "",
        ) -> Endpoint:
            return Endpoint("GET", path, role, summary, act, answer, query, is_read=True, reach=reach)

        return [
            read(
                "node",
                "The node: load, limits, certificates, troubles.",
                lambda call: report_node(inspector),
                NodeReport,
            ),
            read(
                "config",
                "The configuration, and where each key comes from.",
                lambda call: report_config(inspector),
                ConfigReport,
            ),
            read("sessions", "Sessions, filtered and sorted.", of(list_sessions), SessionList, SessionQuery),
            read(
                "sessions/{runtime}",
                "One session, with addresses, queue and refusals.",
                lambda call: report_session(inspector, call.path["runtime"], call.query),
                SessionReport,
                AddressPage,
                reach=HOLDER,
            ),
            read(
                "connections",
                "Connections, open or closed.",
                of(list_connections),
                ConnectionList,
                ConnectionQuery,
            ),
            read(
                "addresses", "Addresses that begin with a text.", of(list_addresses), AddressList, PrefixQuery
            ),
            read(
                "addresses/{address}",
                "The sessions that hear an address, and why.",
                lambda call: report_address(inspector, call.path["address"]),
                AddressReport,
            ),
            read("refusals", "Refused and dropped messages.", of(list_refusals), RefusalList, RefusalQuery),
            read(
                "top",
                "The heaviest sessions, users or peers.",
                lambda call: self._top.ask(call.query),
                TopList,
                TopQuery,
            ),
            read("pools", "Pools of addresses, and their leases.", of(report_pools), PoolReport, PoolQuery),
            read(
                "series",
                "The built-in history.",
                lambda call: self.history.report(call.query),
                SeriesReport,
                SeriesQuery,
            ),
            read("memory", "Memory by owner.", lambda call: report_memory(inspector), MemoryReport),
            read("nodes", "The nodes of the domain.", lambda call: list_nodes(inspector), NodeList),
            read("stubs", "Foreign stubs.", self._stubs.stubs, StubList),
            read("bans", "Bans.", self._bans.bans, BanList),
            read("limits", "Temporary limits.", self._bans.limits, LimitList),
            read("tokens", "Named tokens of operators.", self._tokens.tokens, TokenList, role=ADMIN),
            read(
                "audit",
                "What operators did.",
                lambda call: list_audit(self.audit, call.query),
                AuditList,
                AuditQuery,
                ADMIN,
            ),
        ]

    def _kept(self) -> list[Endpoint]:
        """
        The endpoints of what the node keeps for operators: traces, levels of the log, backups.
        """
        traces, backup, log = self._traces, self._backup, self._log
        rows = [
            ("GET", "traces", VIEWER, "Traces that run or are kept.", traces.list, TraceList, None),
            ("GET", "traces/{id}", VIEWER, "One trace.", traces.show, TraceRow, None),
            ("POST", "traces", OPERATOR, "Start a trace.", traces.start, ActionResult, TraceRequest),
            ("POST", "traces/{id}/stop", OPERATOR, "Stop a trace.", traces.stop, ActionResult, Reason),
            ("DELETE", "traces/{id}", OPERATOR, "Delete a trace.", traces.delete, ActionResult, Reason),
            ("GET", "log-level", VIEWER, "The levels of the log.", log.list, LogLevelList, None),
            ("POST", "log-level", ADMIN, "Change it for a while.", log.set, ActionResult, LogLevelRequest),
            ("GET", "backup", ADMIN, "Backups.", backup.list, BackupList, None),
            ("POST", "backup", ADMIN, "Begin a backup.", backup.begin, ActionResult, Reason),
        ]
        return [Endpoint(*row[:-1], body=row[-1]) for row in rows]

    def _actions(self) -> list[Endpoint]:
        def action(
            path: str,
            summary: str,
            act: Callable[[Call], Any],
            body: Any = Reason,
            role: str = OPERATOR,
            verb: str = "POST",
            reach: str = "",
            **more: Any,
        ) -> Endpoint:
            return Endpoint(verb, path, role, summary, act, ActionResult, body=body, reach=reach, **more)

        sessions, bans, node, tokens = self._sessions, self._bans, self._node, self._tokens
        return [
            action(
                "sessions/kick",
                "Close the connections of the sessions that match.",
                sessions.kick_many,
                KickMany,
                reach=EVERY_NODE,
                is_bulk=True,
            ),
            action(
                "sessions/{runtime}/kick",
                "Close the connection of a session.",
                sessions.kick,
                Kick,
                reach=HOLDER,
                also=ban_of_kick,
            ),
            action(
                "sessions/{runtime}/purge",
                "Drop the queued messages of a session.",
                sessions.purge,
                Purge,
                reach=HOLDER,
            ),
            action(
                "sessions/{runtime}/expire-token",
                "Make a session's token void.",
                sessions.expire_token,
                reach=HOLDER,
            ),
            action("addresses/{address}/unbind", "Free an address.", sessions.unbind, Unbind, reach=HOLDER),
            action(
                "pools/{address}/take-back",
                "Take the lease of an address back from its session.",
                sessions.take_back,
                reach=HOLDER,
            ),
            action("bans", "Ban clients.", bans.ban, BanRequest, reach=EVERY_NODE),
            action("bans/{id}", "Lift a ban.", bans.unban, verb="DELETE", reach=EVERY_NODE),
            action("limits", "Throttle a client for a while.", bans.limit, LimitRequest, reach=EVERY_NODE),
            action("limits/{id}", "Lift a temporary limit.", bans.unlimit, verb="DELETE", reach=EVERY_NODE),
            action(
                "drain",
                "Take no new clients, and close the open connections.",
                node.drain,
                DrainRequest,
                ADMIN,
            ),
            action("undrain", "Take new clients again.", node.undrain, role=ADMIN),
            action("reload", "Read the configuration again.", node.reload, role=ADMIN),
            Endpoint(
                "POST",
                "probe",
                OPERATOR,
                "Say what would become of a message.",
                node.probe,
                ProbeReport,
                body=ProbeRequest,
            ),
            action("tokens", "Make a named token.", tokens.add, TokenRequest, ADMIN),
            action("tokens/{name}", "Revoke a named token.", tokens.revoke, role=ADMIN, verb="DELETE"),
            *(
                action(
                    f"stubs/{{domain}}/{what}",
                    f"{what.capitalize()} the stub of a foreign domain.",
                    partial(self._stubs.act, what),
                )
                for what in ACTIONS
            ),
        ]
