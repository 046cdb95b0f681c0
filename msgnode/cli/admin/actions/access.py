"""
`msgnode admin ban`, `limit`, `token` and `audit`: who may do what, and what was done.
"""

import time
from typing import Any

import click

from msgnode.cli import REFUSED, USAGE
from msgnode.cli.admin.actions.orders import acts, confirmed_most, do, stop_if_incomplete, tell
from msgnode.cli.admin.times import Duration, ago, date, left
from msgnode.cli.admin.view import Column, View, plain, shows
from msgnode.cli.links.admin_client import AdminClient
from msgnode.cli.links.layout import count
from msgnode.storage.audit_log import DIRECTORY, mistakes
from msgnode.structures.log_limits import printable

BAN_KINDS = ("runtime", "user", "peer", "origin", "device")
LIMIT_KINDS = ("session", "user", "peer")
MAX_CONFIRMED = 999_999_999  # as large a number as the API takes
ROLES = ("viewer", "operator", "policy-manager", "admin", "metrics")
BANS = (
    Column("ID", "id", plain, True),
    Column("KIND", "kind", plain, True),
    Column("VALUE", "value", plain, True),
    Column("ENDS IN", "until", lambda value: left(value) or "never", True),
    Column("BY", "by", plain, True),
    Column("REASON", "reason", plain, True),
)
LIMITS = (
    *BANS,
    Column("MESSAGES/s", "rate_messages", plain),
    Column("BYTES/s", "rate_bytes", plain),
)
TOKENS = (
    Column("NAME", "name", plain, True),
    Column("ROLES", "roles", plain, True),
    Column("ENDS IN", "until", lambda value: left(value) or "never", True),
    Column("BY", "by", plain, True),
    Column("CREATED", "created", lambda value: f"{ago(value)} ago"),
)
AUDIT = (
    Column("TIME", "time", date, True),
    Column("WHO", "who", plain, True),
    Column("VIA", "via", plain, True),
    Column("ACTION", "action", plain, True),
    Column("TARGET", "target", plain, True),
    Column("RESULT", "result", plain, True),
    Column("REASON", "reason", plain, True),
)

SOME = ("asked", "before", "peer", "roles", "number")  # fields that not every line of the audit log has


@click.command(short_help="Keep clients out.")
@click.argument("kind", type=click.Choice(BAN_KINDS))
@click.argument("value")
@click.option(
    "--for", "seconds", type=Duration(True), default="1h", show_default=True, help="So long, or 'forever'."
)
@click.option("--yes", is_flag=True, help="Do not ask if it disconnects several.")
@acts
def ban(
    client: AdminClient, kind: str, value: str, seconds: float, yes: bool, reason: str, dry_run: bool
) -> None:
    """
    Keep out the clients of KIND and VALUE, and disconnect those that are there. More than a day needs the
    role admin.

    \b
    Examples:
      msgnode admin ban peer 203.0.113.0/24 --for 24h --reason flood
      msgnode admin ban user eve@example.org --dry-run --reason spam
    """
    body: dict[str, Any] = {"kind": kind, "value": value, "seconds": seconds, "reason": reason}
    if dry_run:
        found = do(client, "bans", dry_run=True, **body)
        tell(client, "ban and disconnect", {**found, "targets": found["targets"][1:]})
        return
    most = MAX_CONFIRMED if yes else confirmed_most(client, "disconnect", "bans", body)
    found = do(client, "bans", confirm=most, **body)
    made = found["details"]["ban"]
    disconnected = count(found["done"], "client")
    client.console.result(f"ban {made['id']}: {disconnected} disconnected; audit {found['audit']}", found)
    stop_if_incomplete(client, found)


@click.command(short_help="Lift a ban.")
@click.argument("id")
@acts
def unban(client: AdminClient, id: str, reason: str, dry_run: bool) -> None:
    """
    Lift the ban ID; 'msgnode admin bans' lists them.
    """
    tell(client, "unban", do(client, "bans", id, method="DELETE", dry_run=dry_run, reason=reason), "ban")


@click.command(short_help="List bans.")
@shows
def bans(view: View) -> None:
    """
    List the bans that are not over.
    """

    def draw(found: Any) -> list[str]:
        refused = f"{count(found['refused'], 'client')} kept out since the node started"
        bans = count(len(found["bans"]), "ban")
        return [*view.table(found["bans"], BANS), *view.below(f"{bans}; {refused}")]

    view.show(draw, "bans")


@click.command(short_help="Throttle a client for a while.")
@click.argument("kind", type=click.Choice(LIMIT_KINDS))
@click.argument("value")
@click.option("--messages", type=click.IntRange(0), default=0, help="Messages per second.")
@click.option("--bytes", "size", type=click.IntRange(0), default=0, help="Bytes per second.")
@click.option("--for", "seconds", type=Duration(), default="10m", show_default=True, help="So long.")
@acts
def limit(
    client: AdminClient,
    kind: str,
    value: str,
    messages: int,
    size: int,
    seconds: float,
    reason: str,
    dry_run: bool,
) -> None:
    """
    Limit the messages or bytes that a session, a user or an IP address may send, for a while.

    \b
    Example:
      msgnode admin limit session runtime://example.org/cam7 --messages 5 --reason "sends too much"
    """
    body: dict[str, Any] = {
        "kind": kind,
        "value": value,
        "rate_messages": messages,
        "rate_bytes": size,
        "seconds": seconds,
    }
    found = do(client, "limits", dry_run=dry_run, reason=reason, **body)
    tell(client, "limit", found, kind)


@click.command(short_help="Lift a temporary limit.")
@click.argument("id")
@acts
def unlimit(client: AdminClient, id: str, reason: str, dry_run: bool) -> None:
    """
    Lift the temporary limit ID; 'msgnode admin limits' lists them.
    """
    tell(
        client, "unlimit", do(client, "limits", id, method="DELETE", dry_run=dry_run, reason=reason), "limit"
    )


@click.command(short_help="List temporary limits.")
@shows
def limits(view: View) -> None:
    """
    List the temporary limits.
    """

    def draw(found: Any) -> list[str]:
        number = count(len(found["limits"]), "temporary limit")
        return [*view.table(found["limits"], LIMITS), *view.below(number)]

    view.show(draw, "limits")


@click.group(short_help="Make, list and revoke tokens of operators.")
def token() -> None:
    """
    Make, list and revoke the named tokens of operators. The node keeps only their hashes.
    """


@token.command(name="add", short_help="Make a token.")
@click.argument("name")
@click.option(
    "--role", "roles", multiple=True, required=True, type=click.Choice(ROLES), help="May be repeated."
)
@click.option("--expires", "seconds", type=Duration(True), default="forever", show_default=True)
@acts
def add(
    client: AdminClient, name: str, roles: tuple[str, ...], seconds: float, reason: str, dry_run: bool
) -> None:
    """
    Make a token NAME, and print it: it is shown this once.

    \b
    Example:
      msgnode admin token add grafana --role viewer --expires 90d --reason "for the dashboard"
    """
    body: dict[str, Any] = {"name": name, "roles": list(roles), "seconds": seconds, "reason": reason}
    found = do(client, "tokens", dry_run=dry_run, **body)
    if dry_run:
        tell(client, "make", found, "token")
        return
    client.console.note("this token is not shown again:")
    client.console.result(found["details"]["token"], found)


@token.command(name="list", short_help="List tokens.")
@shows
def list_(view: View) -> None:
    """
    List the tokens, without their text, which the node does not know.
    """

    def draw(found: Any) -> list[str]:
        number = count(len(found["tokens"]), "named token")
        return [*view.table(found["tokens"], TOKENS), *view.below(number)]

    view.show(draw, "tokens")


@token.command(short_help="Make a token void.")
@click.argument("name")
@acts
def revoke(client: AdminClient, name: str, reason: str, dry_run: bool) -> None:
    """
    Make the token NAME void at once.
    """
    found = do(client, "tokens", name, method="DELETE", dry_run=dry_run, reason=reason)
    tell(client, "revoke", found, "token")


@click.command(short_help="Show what operators did.")
@click.option("--since", type=Duration(), help="Only the last so long.")
@click.option("--who", default="", help="Only by this operator.")
@click.option("--action", default="", help="Only this action.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--verify", is_flag=True, help="Look for changed or removed lines in the files of --state.")
@shows
def audit(view: View, since: float | None, verify: bool, **given: Any) -> None:
    """
    Show what operators did, the newest first. The node remembers the last 1,000 lines, two for each action;
    the files in STATE/audit have all. Needs the role admin.

    \b
    Examples:
      msgnode admin audit --since 1d
      msgnode admin audit --verify --state /var/lib/msgnode

    \b
    Exit code of --verify, which needs no node: 0, the chain of lines holds; 1, it is broken; 2, there are
    no lines in --state.
    """
    if verify:
        _verify(view.client)

    def draw(found: Any) -> list[str]:
        keys = [*(column.key for column in AUDIT), *SOME] + [
            key for entry in found["entries"] for key in entry
        ]
        rows = [{**dict.fromkeys(keys, ""), **entry} for entry in found["entries"]]
        return view.table([row for row in rows if row["phase"] == "result"], AUDIT)

    query = [("since", None if since is None else time.time() - since), *given.items()]
    view.show(draw, "audit", query=query)


def _verify(client: AdminClient) -> None:
    """
    Looks for lines in the state directory that were changed or removed, and exits with 1 if there are any.
    """
    if click.get_current_context().params.get("state") is None:
        raise click.UsageError("--verify reads files: name the node's state directory with --state.")
    directory = client.state / DIRECTORY
    lines, found = mistakes(directory)
    if not lines:
        client.console.stop(f"{directory}: there are no lines", USAGE)
    text = [f"{directory}: {count(lines, 'line')}, {count(len(found), 'mistake')}", *map(printable, found)]
    client.console.result("\n".join(text), {"lines": lines, "mistakes": found})
    raise SystemExit(REFUSED if found else 0)
