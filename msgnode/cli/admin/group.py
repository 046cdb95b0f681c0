"""
The group `msgnode admin`.
"""

import click

from msgnode.cli.admin.actions.access import audit, ban, bans, limit, limits, token, unban, unlimit
from msgnode.cli.admin.actions.backup import backup
from msgnode.cli.admin.actions.labels import label, labels
from msgnode.cli.admin.actions.node import drain, log_level, probe, reload, stub, undrain
from msgnode.cli.admin.actions.sessions import expire_token, kick, purge, take_back, unbind
from msgnode.cli.admin.addresses import address, pools, registry
from msgnode.cli.admin.check import check
from msgnode.cli.admin.history import history
from msgnode.cli.admin.lists import config, connections, memory, nodes, sessions, stubs
from msgnode.cli.admin.live import events, trace
from msgnode.cli.admin.refusals import refusals
from msgnode.cli.admin.reports import session, status, why
from msgnode.cli.admin.reservations import reservations
from msgnode.cli.admin.top import top

VERBS = (
    *(status, top, sessions, session, connections, address, refusals, why, trace, events, probe),
    *(kick, purge, expire_token, unbind, take_back, ban, unban, bans, limit, unlimit, limits, label, labels),
    *(
        history,
        drain,
        undrain,
        reload,
        log_level,
        backup,
        config,
        memory,
        pools,
        reservations,
        registry,
        nodes,
        stubs,
        stub,
    ),
    *(check, token, audit),
)


@click.group(short_help="See what a node does, and act on it.")
def admin() -> None:
    """
    See what a running node does, and act on it: who is connected, what is refused and why, what is slow.

    docs/admin.md has the questions, and which verb answers each.
    """


for _verb in VERBS:
    admin.add_command(_verb)
