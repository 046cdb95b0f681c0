"""
`msgnode mine sql`: a query over a mined directory.
"""

import sys
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from msgnode.cli.mining.directory import (
    as_json_option,
    conf_option,
    mined_argument,
    opened,
    show,
    verbose_option,
)

if TYPE_CHECKING:
    from msgnode.mining.mined.views import Views

LIMIT = 100  # rows of a table
WIDTH = 100  # characters of a line of the list of views


@click.command(short_help="Ask in SQL.")
@mined_argument
@click.argument("query", required=False)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, all rows unless --limit is given.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    metavar="ROWS",
    help=f"Print at most so many rows, 0 for all; {LIMIT} if not given.",
)
@conf_option
@verbose_option
@as_json_option
def sql(
    mined: str,
    query: str | None,
    as_csv: bool,
    limit: int | None,
    conf: tuple[str, ...],
    verbose: bool,
    as_json: bool,
) -> None:
    """
    Print the rows of QUERY, a SELECT over the tables of the mined directory DIR
    and its lines, exchanges and lives; with - the query is read from standard
    input.  Without QUERY, print the views and their columns.

    \b
    Example:
      msgnode mine sql mined "SELECT type, sum(messages) FROM volume GROUP BY type"
      msgnode mine sql mined "SELECT * FROM errors" --csv > errors.csv
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other")
    if query == "-":
        query = sys.stdin.read()
    with opened(mined, verbose, as_json, conf) as directory:
        views = directory.views()
        if query is None:
            _list(views, as_json)
        elif as_csv:
            _csv(views, query, limit or 0)
        else:
            _table(views, query, LIMIT if limit is None else limit, as_json)


def _list(views: "Views", as_json: bool) -> None:
    lines, found = [], {}
    for view in views.listed():
        columns = [f"{name} {_short(kind)}" for name, kind in view.columns]
        lines += [
            view.name,
            textwrap.fill(", ".join(columns), WIDTH, initial_indent="    ", subsequent_indent="    "),
        ]
        found[view.name] = dict(view.columns)
    show(lines, {"views": found}, as_json)


def _table(views: "Views", query: str, limit: int, as_json: bool) -> None:
    from msgnode.mining.mined.cells import plain, table

    answer = views.select(query, limit)
    names = [name for name, _ in answer.columns]
    lines = table(names, answer.rows)
    if answer.more:
        lines += ["", _left_out(answer.more)]
    found = {
        "columns": [{"name": name, "type": kind} for name, kind in answer.columns],
        "rows": [plain(row) for row in answer.rows],
        "more": answer.more,
    }
    show(lines, found, as_json)


def _csv(views: "Views", query: str, limit: int) -> None:
    from msgnode.mining.mined.cells import csv_line

    rows: Iterable[tuple[Any, ...]]
    if limit:
        answer = views.select(query, limit)
        columns, rows, more = answer.columns, answer.rows, answer.more
    else:
        (columns, rows), more = views.stream(query), 0
    click.echo(csv_line(name for name, _ in columns), nl=False)
    for row in rows:
        click.echo(csv_line(row), nl=False)
    if more:
        click.echo(f"msgnode: {_left_out(more)}", err=True)


def _left_out(more: int) -> str:
    rows = "1 more row is" if more == 1 else f"{more:,} more rows are"
    return f"{rows} not shown; --limit 0 shows all"


def _short(kind: str) -> str:
    """
    A type without the fields of what it contains.
    """
    return kind.partition("<")[0]
