"""
`msgnode admin kick`, `purge`, `expire-token`, `unbind` and `take-back`: what an operator does to sessions.
"""

from typing import Any

import click

from msgnode.cli.admin.actions.orders import acts, confirmed, do, tell
from msgnode.cli.admin.times import Duration
from msgnode.cli.links.admin_client import AdminClient


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
