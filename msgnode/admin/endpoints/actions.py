"""
The endpoints of the admin API that do something: to sessions, clients, the node, tokens, stubs and backups.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from msgnode.admin.access.named_tokens import ADMIN, OPERATOR, VIEWER
from msgnode.admin.actions.audited import ActionResult
from msgnode.admin.actions.ban_actions import BanActions, BanList, BanRequest
from msgnode.admin.actions.label_actions import LabelActions, LabelList, LabelRequest
from msgnode.admin.actions.limit_actions import LimitActions, LimitList, LimitRequest
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
from msgnode.admin.api.endpoint import AT_MOST, EVERY_NODE, EXACTLY, HOLDER, Call, Endpoint, Reason
from msgnode.admin.backup_api import BackupActions, BackupList
from msgnode.admin.endpoints.reads import read
from msgnode.admin.reservations.reservation_actions import ReservationActions
from msgnode.admin.stubs.stub_actions import ACTIONS, StubActions, StubList


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
    """
    The endpoint of an action.
    """
    return Endpoint(verb, path, role, summary, act, ActionResult, body=body, reach=reach, **more)


def session_endpoints(sessions: SessionActions) -> list[Endpoint]:
    """
    The actions on sessions, and on the addresses that they have.
    """
    return [
        action(
            "sessions/kick",
            "Close the connections of the sessions that match.",
            sessions.kick_many,
            KickMany,
            reach=EVERY_NODE,
            confirms=EXACTLY,
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
    ]


def reservation_endpoints(reservations: ReservationActions) -> list[Endpoint]:
    """
    The actions on reservations of relay bandwidth.
    """
    summary = "Take a reservation of relay bandwidth back from its session."
    return [action("reservations/{id}/take-back", summary, reservations.take_back, reach=HOLDER)]


def ban_endpoints(bans: BanActions, limits: LimitActions) -> list[Endpoint]:
    """
    Bans and temporary limits.
    """
    return [
        read("bans", "Bans.", bans.bans, BanList),
        action("bans", "Ban clients.", bans.ban, BanRequest, reach=EVERY_NODE, confirms=AT_MOST),
        action("bans/{id}", "Lift a ban.", bans.unban, verb="DELETE", reach=EVERY_NODE),
        read("limits", "Temporary limits.", limits.limits, LimitList),
        action("limits", "Throttle a client for a while.", limits.limit, LimitRequest, reach=EVERY_NODE),
        action("limits/{id}", "Lift a temporary limit.", limits.unlimit, verb="DELETE", reach=EVERY_NODE),
    ]


def label_endpoints(labels: LabelActions) -> list[Endpoint]:
    """
    The labels of sessions.
    """
    summary = "Set the labels of a session."
    return [
        read("labels", "Labels of sessions.", labels.list, LabelList),
        action("sessions/{runtime}/labels", summary, labels.set, LabelRequest, reach=EVERY_NODE),
    ]


def node_endpoints(node: NodeActions, log: LogActions) -> list[Endpoint]:
    """
    The actions on the node as a whole, and on its log.
    """
    probe = "Say what would become of a message."
    levels = "The levels of the log."
    return [
        action(
            "drain",
            "Take no new clients, and close the open connections.",
            node.drain,
            DrainRequest,
            ADMIN,
        ),
        action("undrain", "Take new clients again.", node.undrain, role=ADMIN),
        action("reload", "Read the configuration again.", node.reload, role=ADMIN),
        Endpoint("POST", "probe", OPERATOR, probe, node.probe, ProbeReport, body=ProbeRequest),
        Endpoint("GET", "log-level", VIEWER, levels, log.list, LogLevelList),
        action("log-level", "Change it for a while.", log.set, LogLevelRequest, ADMIN),
    ]


def token_endpoints(tokens: TokenActions) -> list[Endpoint]:
    """
    The named tokens of operators.
    """
    return [
        read("tokens", "Named tokens of operators.", tokens.tokens, TokenList, role=ADMIN),
        action("tokens", "Make a named token.", tokens.add, TokenRequest, ADMIN),
        action("tokens/{name}", "Revoke a named token.", tokens.revoke, role=ADMIN, verb="DELETE"),
    ]


def stub_endpoints(stubs: StubActions) -> list[Endpoint]:
    """
    The stubs of foreign domains.
    """
    return [
        read("stubs", "Foreign stubs.", stubs.stubs, StubList),
        *(
            action(
                f"stubs/{{domain}}/{what}",
                f"{what.capitalize()} the stub of a foreign domain.",
                partial(stubs.act, what),
            )
            for what in ACTIONS
        ),
    ]


def trace_endpoints(traces: TraceActions) -> list[Endpoint]:
    """
    Traces; their lines have a resource of their own.
    """
    return [
        Endpoint("GET", "traces", VIEWER, "Traces that run or are kept.", traces.list, TraceList),
        Endpoint("GET", "traces/{id}", VIEWER, "One trace.", traces.show, TraceRow),
        action("traces", "Start a trace.", traces.start, TraceRequest),
        action("traces/{id}/stop", "Stop a trace.", traces.stop),
        action("traces/{id}", "Delete a trace.", traces.delete, verb="DELETE"),
    ]


def backup_endpoints(backup: BackupActions) -> list[Endpoint]:
    """
    Backups of the state.
    """
    return [
        Endpoint("GET", "backup", ADMIN, "Backups.", backup.list, BackupList),
        action("backup", "Begin a backup.", backup.begin, role=ADMIN),
    ]
