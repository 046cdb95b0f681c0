"""
Orders to the node: the options that every action has, and what is printed about its result.
"""

import sys
from typing import Any

import click

from msgnode.cli import REFUSED, USAGE
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
