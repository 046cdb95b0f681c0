"""
`msgnode admin drain`, `undrain`, `reload`, `probe`, `log-level` and `stub`: what an operator does to a node.
"""

import json
from typing import Any

import click

from msgnode.cli import REFUSED
from msgnode.cli.admin.actions.orders import MAX_SHOWN, acts, ask, do, tell
from msgnode.cli.admin.times import Duration, left
from msgnode.cli.admin.view import operates, plain
from msgnode.cli.links.admin_client import AdminClient
from msgnode.cli.links.layout import duration
from msgnode.structures.log_levels import LEVELS
from msgnode.structures.log_limits import printable


@click.command(short_help="Take no new clients, and close the old ones evenly.")
@click.option(
    "--over", "seconds", type=Duration(), default="10m", show_default=True, help="Within this time."
)
@click.option("--keep", is_flag=True, help="Do not close the connections there are.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@acts
def drain(client: AdminClient, seconds: float, keep: bool, yes: bool, reason: str, dry_run: bool) -> None:
    """
    Let the node take no new clients, and close the connections there are, evenly; nothing else stops.

    'msgnode admin undrain' ends it.
    """
    body: dict[str, Any] = {"reason": reason, "seconds": 0 if keep else seconds}
    if not (yes or keep or dry_run):
        ask(client, f"this would close the connections of all clients within {duration(seconds)}", [])
    tell(client, "drain", do(client, "drain", dry_run=dry_run, **body), "node")


@click.command(short_help="Take clients again.")
@acts
def undrain(client: AdminClient, reason: str, dry_run: bool) -> None:
    """
    Let the node take clients again.
    """
    tell(client, "undrain", do(client, "undrain", dry_run=dry_run, reason=reason), "node")


@click.command(short_help="Read the configuration again, and say what changed.")
@acts
def reload(client: AdminClient, reason: str, dry_run: bool) -> None:
    """
    Let the node read its configuration again, as SIGHUP does, and show its verdict.

    \b
    Exit code 0: read, or with --dry-run readable.  1: it has a mistake, and nothing has changed.
    """
    found = do(client, "reload", dry_run=dry_run, reason=reason)
    if dry_run:
        tell(client, "reload", found, "node")
        return
    verdict = found["details"]
    lines = [printable(verdict["text"])]
    if verdict["needs_restart"]:
        lines.append(f"needs a restart: {plain(verdict['needs_restart'])}")
    client.console.result("\n".join(lines), found)


@click.command(short_help="Say what would become of a message.")
@click.option("--from", "from_", required=True, metavar="ADDRESS", help="Its sender.")
@click.option("--to", required=True, metavar="ADDRESS", help="Its recipient.")
@click.option("--type", "kind", default="create", show_default=True, help="Its type.")
@click.option("--body", default="", metavar="JSON", help="Its body, which policies may look at.")
@operates
def probe(client: AdminClient, from_: str, to: str, kind: str, body: str) -> None:
    """
    Say what would become of a message, without sending it: who would get it, and what the policies decide.

    \b
    Exit code 0: it would be delivered, answered or kept.  1: refused, or no session is bound.
    """
    try:
        value = json.loads(body) if body else None
    except ValueError as why:
        raise click.UsageError(f"--body: not JSON: {why}") from None
    asked = {"from": from_, "to": to, "type": kind, "body": value}
    found = client.order("POST", "probe", body=asked)
    lines = [f"{found['outcome']}: {printable(found['text'])}"]
    lines += [
        f"  {printable(each['runtime'])} ({plain(each['why'])})"
        for each in found["to"]["hearers"][:MAX_SHOWN]
    ]
    if isinstance(found["policy"], dict):
        rule = f" by {printable(found['rule'])}" if found["rule"] else ""
        lines.append(f"policies: {printable(str(found['policy'].get('effect', '')))}{rule}")
    client.console.result("\n".join(lines), found)
    raise SystemExit(REFUSED if found["outcome"] in ("refused", "no-route") else 0)


@click.command(short_help="Show the level of the log, or change it for a while.")
@click.argument("namespace", required=False, default="")
@click.argument("level", required=False, type=click.Choice(LEVELS))
@click.option("--for", "seconds", type=Duration(), default="10m", show_default=True, help="So long.")
@click.option("--reason", default="", metavar="TEXT", help="Why; it goes into the audit log.")
@click.option("--dry-run", is_flag=True, help="Only say what it would change.")
@operates
def log_level(
    client: AdminClient, namespace: str, level: str | None, seconds: float, reason: str, dry_run: bool
) -> None:
    """
    Show the level of the log, and the namespaces that have another one; or give the log lines of NAMESPACE,
    and those below it, another LEVEL for a while, at most a day. That needs a node that was started with
    --log-level or --log-format: without them its log has every level.

    \b
    Examples:
      msgnode admin log-level
      msgnode admin log-level msgnode.links warn --for 1h --reason "a link is down, and known to be"
    """
    if not namespace:
        found = client.get("log-level")
        lines = [f"the log has {found['level'] or 'every level'}"]
        lines += [
            f"  {printable(each['namespace'])}: {each['level']}, for {left(each['until'])} more"
            for each in found["namespaces"]
        ]
        client.console.result("\n".join(lines), found)
        return
    if level is None or not reason:
        raise click.UsageError("Give NAMESPACE, LEVEL and --reason, or none of them.")
    body: dict[str, Any] = {"namespace": namespace, "level": level, "seconds": seconds, "reason": reason}
    tell(client, "change", do(client, "log-level", dry_run=dry_run, **body), "namespace")


@click.command(short_help="Start, stop or restart the stub of a foreign domain.")
@click.argument("what", type=click.Choice(["start", "stop", "restart"]))
@click.argument("domain")
@acts
def stub(client: AdminClient, what: str, domain: str, reason: str, dry_run: bool) -> None:
    """
    Start, stop or restart the stub of a foreign domain.
    """
    found = do(client, "stubs", domain, what, dry_run=dry_run, reason=reason)
    tell(client, f"{what} the stub", found, "domain")
