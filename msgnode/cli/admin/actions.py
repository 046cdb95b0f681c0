"""
`msgnode admin kick`, `purge`, `unbind`, `drain`, `reload`, `probe` and others: what an operator does.
"""

import json
import sys
from typing import Any

import click

from msgnode.cli import REFUSED, USAGE
from msgnode.cli.admin.times import Duration
from msgnode.cli.admin.view import F, operates, plain
from msgnode.cli.links.admin_client import AdminClient
from msgnode.cli.links.layout import count, duration
from msgnode.structures.log_levels import LEVELS
from msgnode.structures.log_limits import printable

MAX_SHOWN = 20


def acts(command: F) -> F:
    """
    Give a verb the options of an action: its reason, and a try.
    """
    options = (
        click.option("--reason", required=True, metavar="TEXT", help="Why; it goes into the audit log."),
        click.option("--dry-run", is_flag=True, help="Only say whom it would hit."),
    )
    shown = operates(command)
    for option in reversed(options):
        shown = option(shown)
    return shown


def do(
    client: AdminClient,
    *path: str,
    dry_run: bool = False,
    method: str = "POST",
    confirm: int | None = None,
    **body: Any,
) -> dict[str, Any]:
    """
    Returns the result of an action.
    """
    query = [("dry_run", "1")] if dry_run else []
    if confirm is not None:
        query.append(("confirm", str(confirm)))
    result: dict[str, Any] = client.order(method, *path, body=body, query=query)
    return result


def tell(client: AdminClient, what: str, found: dict[str, Any], noun: str = "session") -> None:
    """
    Prints what was done, or would be.
    """
    if found["dry_run"]:
        lines = [f"this would {what} {count(found['done'], noun)}:", *targets(found)]
    else:
        lines = [f"{what}: done to {count(found['done'], noun)}; audit {found['audit']}"]
    lines += [f"  {key.replace('_', ' ')}: {shown}" for key, shown in details(found)]
    client.console.result("\n".join(lines), found)
    stop_if_incomplete(client, found)


def not_reached(found: dict[str, Any]) -> list[str]:
    """
    Returns a line for each node of the domain that has not done what was asked, with the reason.
    """
    nodes = found["details"].get("nodes") or {}
    return [f"{printable(name)}: {printable(why)}" for name, why in nodes.items() if isinstance(why, str)]


def stop_if_incomplete(client: AdminClient, found: dict[str, Any]) -> None:
    """
    Names the nodes that have not done what was asked, and ends the command as refused if there are any.
    """
    missing = not_reached(found)
    if not missing:
        return
    if not client.console.as_json:
        again = "" if found["dry_run"] else "; repeat it for them"
        click.echo(f"not done at {count(len(missing), 'node')}{again}:", err=True)
        click.echo("\n".join(f"  {line}" for line in missing), err=True)
    raise SystemExit(REFUSED)


def targets(found: dict[str, Any]) -> list[str]:
    shown = [f"  {printable(target)}" for target in found["targets"][:MAX_SHOWN]]
    more = found["done"] - len(shown)
    return [*shown, *([f"  and {more:,} more"] if more > 0 else [])]


def details(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (key, value)
        for key, each in found["details"].items()
        if not isinstance(each, dict) and (value := plain(each))
    ]


def confirmed(client: AdminClient, what: str, yes: bool, path: tuple[str, ...], body: dict[str, Any]) -> int:
    """
    Returns the number of sessions that the operator confirms.
    """
    tried = do(client, *path, dry_run=True, **body)
    if not tried["done"]:
        client.console.stop("no session matches", REFUSED)
    if yes:
        return int(tried["done"])
    lines = [*targets(tried), *(f"  not at {line}" for line in not_reached(tried))]
    ask(client, f"this would {what} {count(tried['done'], 'session')}", lines)
    return int(tried["done"])


def confirmed_most(client: AdminClient, what: str, path: str, body: dict[str, Any]) -> int:
    """
    Returns how many clients the operator lets the action disconnect at most; one needs no question.
    """
    tried = do(client, path, dry_run=True, **body)
    if tried["done"] <= 1:
        return 1
    ask(client, f"this would {what} {count(tried['done'], 'client')}", targets(tried))
    return int(tried["done"])


def ask(client: AdminClient, what: str, lines: list[str]) -> None:
    """
    Asks the operator whether to go on. Without a terminal it needs --yes.
    """
    if client.console.as_json or not sys.stdin.isatty():
        client.console.stop(f"{what}; confirm it with --yes", USAGE)
    click.echo("\n".join([f"{what}{':' if lines else ''}", *lines]))
    click.confirm("Go on?", abort=True)


@click.command(short_help="Close the connections of clients.")
@click.argument("runtime", required=False)
@click.option("--user", default="", help="All sessions of this user.")
@click.option("--peer", default="", help="All sessions from this IP address or network.")
@click.option("--connector", default="", help="All sessions of this connector.")
@click.option("--filter", "q", default="", help="All whose runtimeURL, user or peer has this in it.")
@click.option("--end", is_flag=True, help="End the sessions, too, with their addresses and messages.")
@click.option("--for", "seconds", type=Duration(), help="Ban them for so long.")
@click.option("--for-good", is_flag=True, help="The clients must not come back by themselves.")
@click.option("--wait", "wait", type=click.FloatRange(0, 10), default=0, help="Wait so long for its return.")
@click.option("--yes", is_flag=True, help="Do not ask when there are several.")
@acts
def kick(
    client: AdminClient,
    runtime: str | None,
    end: bool,
    seconds: float | None,
    for_good: bool,
    wait: float,
    yes: bool,
    reason: str,
    dry_run: bool,
    **filter: str,
) -> None:
    """
    Close the connection of the session RUNTIME, or of all that match; they come back after some seconds.

    \b
    Examples:
      msgnode admin kick runtime://example.org/cam7 --reason "does not read" --wait 10
      msgnode admin kick --user ann@example.org --for 10m --reason "asked for it"
      msgnode admin kick --peer 203.0.113.0/24 --dry-run --reason flood
    """
    wanted = {key: value for key, value in filter.items() if value}
    if bool(runtime) == bool(wanted):
        raise click.UsageError("Give RUNTIME, or --user, --peer, --connector or --filter.")
    body: dict[str, Any] = {"reason": reason, "end": end, "wait_seconds": wait}
    if seconds:
        body["ban_seconds"] = seconds
    if for_good:
        body["retry_after"] = -1
    if runtime:
        tell(client, "kick", do(client, "sessions", runtime, "kick", dry_run=dry_run, **body))
        return
    body["filter"] = wanted
    number = None if dry_run else confirmed(client, "kick", yes, ("sessions", "kick"), body)
    tell(client, "kick", do(client, "sessions", "kick", dry_run=dry_run, confirm=number, **body))


@click.command(short_help="Drop the messages that wait for a session.")
@click.argument("runtime")
@click.option("--older-than", type=Duration(), default="0", help="Only those that wait for longer.")
@acts
def purge(client: AdminClient, runtime: str, older_than: float, reason: str, dry_run: bool) -> None:
    """
    Drop the messages that wait for the session RUNTIME; senders that asked for receipts get 503.

    \b
    Example:
      msgnode admin purge runtime://example.org/ann --older-than 1h --reason "they are of no use any more"
    """
    body: dict[str, Any] = {"older_than_s": older_than, "reason": reason}
    tell(client, "purge", do(client, "sessions", runtime, "purge", dry_run=dry_run, **body))


@click.command(short_help="Make the token of a session void.")
@click.argument("runtime")
@acts
def expire_token(client: AdminClient, runtime: str, reason: str, dry_run: bool) -> None:
    """
    Make the token of the session RUNTIME void: who comes back must show an identity.
    """
    tell(client, "void", do(client, "sessions", runtime, "expire-token", dry_run=dry_run, reason=reason))


@click.command(short_help="Free an address.")
@click.argument("address")
@click.option("--session", default="", help="The session that loses it, if several are bound to it.")
@acts
def unbind(client: AdminClient, address: str, session: str, reason: str, dry_run: bool) -> None:
    """
    Free ADDRESS from its session; an address of a pool is free for others then.
    """
    body: dict[str, Any] = {"reason": reason, "session": session}
    tell(client, "unbind", do(client, "addresses", address, "unbind", dry_run=dry_run, **body))


@click.command("take-back", short_help="Take an address of a pool, or a reservation, back.")
@click.argument("what", metavar="ADDRESS|ID")
@acts
def take_back(client: AdminClient, what: str, reason: str, dry_run: bool) -> None:
    """
    Take the lease of ADDRESS, which is one of a pool, or the reservation ID back from its session, which gets
    a notice.

    \b
    Examples:
      msgnode admin take-back sip:guest1@example.org --reason "needed elsewhere"
      msgnode admin take-back msgnode-6b1f0c2a9d3e4f58 --reason "the call is over"
    """
    of = "pools" if ":" in what else "reservations"
    tell(client, "take back", do(client, of, what, "take-back", dry_run=dry_run, reason=reason))


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
    policy = found["policy"]
    if isinstance(policy, dict):
        rule = f" by {printable(str(policy['rule']))}" if policy.get("rule") else ""
        lines.append(f"policies: {printable(str(policy.get('effect', '')))}{rule}")
    client.console.result("\n".join(lines), found)
    raise SystemExit(REFUSED if found["outcome"] in ("refused", "no-route") else 0)


@click.command(short_help="Change the level of the log for a while.")
@click.argument("namespace")
@click.argument("level", type=click.Choice(LEVELS))
@click.option("--for", "seconds", type=Duration(), default="10m", show_default=True, help="So long.")
@acts
def log_level(
    client: AdminClient, namespace: str, level: str, seconds: float, reason: str, dry_run: bool
) -> None:
    """
    Give the log lines of NAMESPACE, and those below it, another LEVEL for a while, at most a day. It needs a
    node that was started with --log-level or --log-format: without them its log has every level.

    \b
    Example:
      msgnode admin log-level msgnode.links warn --for 1h --reason "a link is down, and known to be"
    """
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
