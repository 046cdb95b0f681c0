"""
`msgnode admin label` and `labels`: words on sessions for other operators.
"""

from collections.abc import Iterator
from typing import Any

import click

from msgnode.cli.admin.actions.orders import acts, do, tell
from msgnode.cli.admin.lists import name
from msgnode.cli.admin.times import ago
from msgnode.cli.admin.view import Column, View, plain, shows
from msgnode.cli.links.admin_client import AdminClient
from msgnode.cli.links.layout import count


@click.command(short_help="Put words on a session.")
@click.argument("runtime")
@click.argument("labels", nargs=-1)
@acts
def label(client: AdminClient, runtime: str, labels: tuple[str, ...], reason: str, dry_run: bool) -> None:
    """
    Set the LABELS of the session RUNTIME, which other operators see; without any, those that it has are
    removed. They have no effect.

    \b
    Examples:
      msgnode admin label runtime://example.org/cam7 known-fault ticket:123 --reason "see the ticket"
      msgnode admin label runtime://example.org/cam7 --reason "it was replaced"
    """
    found = do(client, "sessions", runtime, "labels", dry_run=dry_run, labels=labels, reason=reason)
    tell(client, "label", found)


@click.command(short_help="List the sessions that have labels.")
@shows
def labels(view: View) -> None:
    """
    List the runtimeURLs that have labels, also those without a session now.
    """
    columns = (
        Column("RUNTIME", "runtime", name, True),
        Column("LABELS", "labels", plain, True),
        Column("BY", "by", plain, True),
        Column("REASON", "reason", plain, True),
        Column("SET", "time", lambda value: f"{ago(value)} ago"),
    )

    def draw(found: Any) -> Iterator[str]:
        yield from view.table(found["labels"], columns)
        yield from view.below(f"{count(len(found['labels']), 'session')} with labels")

    view.show(draw, "labels")
