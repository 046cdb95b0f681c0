"""
`msgnode link`: shows links to other domains, checks them, and gives orders about them.
"""

import sys
from pathlib import Path
from typing import Any

import click

from msgnode.cli import REFUSED, USAGE
from msgnode.cli.admin.actions.orders import acts, do, tell
from msgnode.cli.links.admin_client import AdminClient, asks_admin
from msgnode.cli.links.layout import colored, count, duration, short, table, terminal_columns
from msgnode.cli.links.link_details import details
from msgnode.structures.log_limits import printable

_HEAD = ("PEER", "STATE", "FOR", "RTT", "COST", "QUEUE", "UNACKED", "OLDEST", "CERT")
_domain = click.argument("domain")


@click.group(short_help="Show and control links to other domains.")
def link() -> None:
    """
    Show, check and control the links of a node to other domains; docs/federation.md explains them.
    """


@link.command(name="ls", short_help="List the links, or show those of one domain.")
@click.argument("domain", required=False)
@asks_admin
def ls_command(domain: str | None, admin: str, state: Path | None, as_json: bool) -> None:
    """
    List the links to other domains and what waits for them; with DOMAIN, show all about its links.

    \b
    Examples:
      msgnode link ls
      msgnode link ls b.example
      msgnode link ls --json | jq '.domains[] | select(.cost == null) | .domain'

    \b
    Exit code 0: shown.  1: refused, no such domain, or a node without
    federation.  3: cannot connect.  4: no answer in time.
    """
    client = AdminClient(admin, state, as_json)
    if domain is not None:
        found = client.get("links", domain)
        client.console.result("\n".join(details(found)), found)
        return
    found = client.get("links")
    client.console.result("\n".join(listing(found["domains"])), found)


def listing(domains: list[dict[str, Any]]) -> list[str]:
    """
    Returns a table with a row for each link, and the last errors below it.
    """
    if not domains:
        return ["no peers are configured, and no other domain is linked"]
    rows, errors = [], []
    for each in domains:
        rows += _rows(each)
        for found in each["links"]:
            if found["last_error"] and found["state"] != "up":
                ago = duration(found["last_error_seconds"])
                errors.append(f"{each['domain']}, {ago} ago: {printable(found['last_error'])}")
    return table(_HEAD, rows, terminal_columns(), 2) + ([""] if errors else []) + errors


def _rows(domain: dict[str, Any]) -> list[list[str]]:
    streams = domain["streams"]
    undelivered = sum(stream["undelivered"] for stream in streams)
    oldest = max((stream["oldest_seconds"] for stream in streams if stream["undelivered"]), default=None)
    of_domain = [f"{undelivered:,}" if streams else "", duration(oldest)]
    order = domain["admin_state"] if domain["admin_state"] != "enabled" else ""
    if not domain["links"]:
        state = colored(order or "no link")
        return [[domain["domain"], state, "", "", _number(domain["cost"]), "", *of_domain, ""]]
    rows = []
    for found in domain["links"]:
        state = order or found["state"]
        days = found["certificate_days"]
        rows.append(
            [
                short(found["node"]) or domain["domain"],
                colored(state),
                "" if state == "configured" else duration(found["state_seconds"]),
                duration(found["round_trip"]),
                _number(domain["cost"] if found["cost"] is None else found["cost"]),
                f"{sum(found['queue']):,}",
                *of_domain,
                "" if days is None else f"{days:.0f} d",
            ]
        )
        of_domain = ["", ""]
    return rows


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


@link.command(short_help="Try out the link to a domain.")
@_domain
@asks_admin
def check(domain: str, admin: str, state: Path | None, as_json: bool) -> None:
    """
    Try out a link to DOMAIN, step by step: DNS, TCP, certificate, pin, policy, clock, both directions.

    \b
    Examples:
      msgnode link check b.example
      msgnode link check b.example --json | jq .checks

    \b
    Exit code 0: no step failed.  1: a step failed, or refused.
    3: cannot connect to the node.  4: no answer in time.
    """
    client = AdminClient(admin, state, as_json)
    found = client.post("links", domain, "check")
    client.console.result("\n".join(map(_checked, found["checks"])), found)
    raise SystemExit(0 if found["ok"] else REFUSED)


def _checked(found: dict[str, str]) -> str:
    """
    Returns the line of one check; its text is wrapped behind the name.
    """
    result = found["result"]
    head = f"{result:7}  {found['name']:11}  "
    text = click.wrap_text(
        head.replace(" ", "\0") + printable(found["text"]), terminal_columns(), "", " " * len(head)
    )
    return text.replace("\0", " ").replace(result, colored(result), 1)


def _order(name: str, summary: str, text: str) -> None:
    """
    Add the verb of an order that changes the administrative state.
    """

    @_domain
    @acts
    def command(client: AdminClient, domain: str, reason: str, dry_run: bool) -> None:
        found = do(client, "links", domain, name, dry_run=dry_run, reason=reason)
        if dry_run:
            tell(client, name, found, "domain")
            return
        head = f"{domain} is {colored(found['admin_state'], found['admin_state'])}"
        client.console.result("\n".join([head, "", *listing([found])]), found)

    command.__doc__ = f"""
    {text}

    \b
    Example:
      msgnode link {name} b.example --reason "..."

    \b
    Exit code 0: done.  1: refused, or no such domain.
    3: cannot connect.  4: no answer in time.
    """
    link.command(name=name, short_help=summary)(command)


_order(
    "ban",
    "Have nothing to do with a domain.",
    "Ban DOMAIN: no links with it, no route through it, and nothing of it is accepted.  'resume' ends it.",
)
_order(
    "pause",
    "Close the links to a domain until 'resume'.",
    "Close the links to DOMAIN and make none until 'resume'.  Undelivered messages wait.",
)
_order(
    "resume",
    "End a ban, a pause or a drain.",
    "End a ban, a pause or a drain of DOMAIN.",
)
_order(
    "drain",
    "Accept nothing new for a domain.",
    "Accept no new message for DOMAIN, and deliver those that wait; then it can be paused without a loss.",
)


@link.command(short_help="Drop what is undelivered for a domain.")
@_domain
@click.option("--yes", is_flag=True, help="Do not ask.")
@acts
def forget(client: AdminClient, domain: str, yes: bool, reason: str, dry_run: bool) -> None:
    """
    Drop all messages for DOMAIN that it has not acknowledged; their senders are notified.

    \b
    Examples:
      msgnode link forget b.example --reason "the domain is gone"
      msgnode link forget b.example --reason "the domain is gone" --yes

    \b
    Exit code 0: done.  1: refused, no such domain, or not confirmed.
    3: cannot connect.  4: no answer in time.
    """
    if dry_run:
        found = do(client, "links", domain, "forget", dry_run=True, reason=reason)
        client.console.result(f"this would drop {count(found['done'], 'message')} for {domain}", found)
        return
    if not yes:
        if client.console.as_json or not sys.stdin.isatty():
            client.console.stop("forget drops messages; confirm it with --yes", USAGE)
        undelivered = sum(stream["undelivered"] for stream in client.get("links", domain)["streams"])
        if not click.confirm(f"Drop {count(undelivered, 'message')} for {domain}?", err=True):
            raise SystemExit(REFUSED)
    found = do(client, "links", domain, "forget", reason=reason)
    client.console.result(f"{count(found['dropped'], 'message')} for {domain} dropped", found)
