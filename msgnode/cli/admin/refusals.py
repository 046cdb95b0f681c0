"""
`msgnode admin refusals`: the messages that are refused or dropped.
"""

from collections.abc import Iterator
from typing import Any

import click

from msgnode.cli import USAGE
from msgnode.cli.admin.lists import name
from msgnode.cli.admin.live import follow
from msgnode.cli.admin.reports import refusal_lines
from msgnode.cli.admin.times import clock
from msgnode.cli.admin.view import Column, View, plain, shows

# The fields of a refusal; an event has those that are not empty.
COLUMNS = {
    column.key: column
    for column in (
        Column("TIME", "time", clock, True),
        Column("CODE", "code", plain, True),
        Column("REASON", "reason", name, True),
        *(
            Column(key.upper(), key, plain, True)
            for key in ("outcome", "type", "id", "from", "to", "session", "user", "connector", "peer")
        ),
        *(Column(key.upper(), key, plain, True) for key in ("rule", "text", "remedy", "count", "number")),
    )
}


@click.command(short_help="Show messages that are refused, and why.")
@click.option("--follow", "is_followed", is_flag=True, help="Go on with those to come, until Ctrl-C.")
@click.option("--code", default="", help="Only those with this code.")
@click.option("--session", default="", help="Only those of this session.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@shows
def refusals(view: View, is_followed: bool, code: str, session: str, limit: int) -> None:
    """
    Show the messages that the node refused or dropped, each with the reason.

    \b
    Examples:
      msgnode admin refusals --code 403
      msgnode admin refusals --columns time,code,reason,session,to
      msgnode admin refusals --follow --json | jq .text
    """
    unknown = [key for key in view.columns if key not in COLUMNS]
    if unknown:
        view.client.console.stop(
            f"--columns: there is no {unknown[0]!r}; there are {', '.join(COLUMNS)}", USAGE
        )
    query = [("code", code), ("session", session)]
    if is_followed:
        _follow(view, query)
        return

    def draw(found: Any) -> Iterator[str]:
        rows = found["refusals"]
        if view.has_columns:
            yield from view.table(rows, list(COLUMNS.values()))
        else:
            for row in rows:
                yield from refusal_lines(row)
        if not rows:
            view.client.console.note("no such message was refused or dropped lately")

    view.show(draw, "refusals", query=[*query, ("limit", limit)])


def _follow(view: View, query: list[tuple[str, str]]) -> None:
    if not view.is_plain:
        raise click.UsageError("--follow goes with neither --watch nor --node.")

    def show(kind: str, event: dict[str, Any]) -> None:
        if view.has_columns:
            text = "\t".join(COLUMNS[key].text(event.get(key)) for key in view.columns)
        else:
            text = "\n".join(refusal_lines(event))
        view.client.console.result(text, event)

    follow(view.client, [("kinds", "refusal"), *((key, value) for key, value in query if value)], show)
