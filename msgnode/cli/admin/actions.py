"""
`msgnode admin kick`, `purge`, `unbind` and others: what an operator does to sessions and addresses.
"""

import sys
from typing import Any

import click

from msgnode.cli import REFUSED, USAGE
from msgnode.cli.admin.times import Duration
from msgnode.cli.admin.view import F, operates, plain
from msgnode.cli.links.admin_client import AdminClient
from msgnode.cli.links.layout import count
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
        found = do(client, "sessions", runtime, "kick", dry_run=dry_run, **body)
        if wait and not dry_run and found["details"].get("back_after") is None:
            client.console.note(f"it was not back within {wait:g} s")
        tell(client, "kick", found)
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
