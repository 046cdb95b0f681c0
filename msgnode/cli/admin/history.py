"""
`msgnode admin history`: figures of the node in the last hours and days.
"""

import time
from typing import Any

import click

from msgnode.cli.admin.times import Duration, date
from msgnode.cli.admin.view import View, shows
from msgnode.cli.links.layout import size, table, terminal_columns

FINE_SECONDS, COARSE_SECONDS = 5.0, 300.0
FINE_FROM = 2 * 3600.0  # so long each five seconds are kept
BYTES = ("bytes", "rss", "disk_free")  # the ends of the names of figures in bytes
FIGURES = "sessions_attached,in_messages,out_messages,refused,waiting_bytes,lag,rss"


@click.command(short_help="Show figures of the last hours and days.")
@click.argument("figures", default=FIGURES, required=False)
@click.option("--since", type=Duration(), default="10m", show_default=True, help="From so long ago.")
@click.option("--rows", type=click.IntRange(2, 1000), default=20, show_default=True, help="Lines at most.")
@shows
def history(view: View, figures: str, since: float, rows: int) -> None:
    """
    Show figures of the node, separated by commas: each five seconds of the last two hours, each five minutes
    of the last seven days. Totals are shown per second; a line has the highest value of its time. An unknown
    figure is answered with all that there are.

    \b
    Examples:
      msgnode admin history
      msgnode admin history sessions_attached,sessions_slow --since 24h
    """
    step = FINE_SECONDS if since <= FINE_FROM else COARSE_SECONDS

    def draw(found: dict[str, Any]) -> list[str]:
        return view.without_heads(lines(found, rows))

    query = [("names", figures), ("from", f"{time.time() - since:.0f}"), ("step", step)]
    view.show(draw, "series", query=query)


def shown(name: str, values: list[float]) -> str:
    """
    Returns the highest of these values of a figure, with its unit.
    """
    if not values:
        return "-"
    return size(int(max(values))) if name.endswith(BYTES) else f"{max(values):,.6g}"


def lines(found: dict[str, Any], most: int) -> list[str]:
    """
    Returns a table of at most so many rows; each shows the highest value of its time.
    """
    names, series = list(found["series"]), list(found["series"].values())
    number = max(map(len, series), default=0)
    each = max(1, -(-number // most))
    cells: list[list[str]] = []
    for first in range(0, number, each):
        values = [[value for value in of[first : first + each] if value is not None] for of in series]
        if cells or any(values):  # nothing from before the node started
            at = found["start"] + first * found["step"]
            cells.append([date(at), *map(shown, names, values)])
    return table(["TIME", *names], cells, terminal_columns())
