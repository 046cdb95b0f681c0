"""
`msgnode admin top`: who sends and gets most, on a full screen where Textual is installed.
"""

import sys
from typing import Any

import click

from msgnode.cli import USAGE
from msgnode.cli.admin.lists import TOP
from msgnode.cli.admin.view import View, shows

BY = ("in_messages", "in_bytes", "out_messages", "out_bytes", "refused", "waiting_bytes", "unacked_bytes")


@click.command(short_help="Show who sends and gets most, on a full screen.")
@click.option("--by", type=click.Choice(BY), default="in_messages", show_default=True)
@click.option("--group", type=click.Choice(["session", "user", "peer"]), default="session", show_default=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@click.option("--over", type=click.FloatRange(1, 60), default=60.0, show_default=True, help="Seconds.")
@click.option("--once", is_flag=True, help="Print a table, and exit.")
@shows
def top(view: View, by: str, group: str, limit: int, over: float, once: bool) -> None:
    """
    Show the sessions, users or IP addresses with the highest rates; they are measured from the first question
    on. The full screen needs the extra: pip install 'msgnode[admin]'.

    \b
    Keys: s sorts by the next column, / filters, Enter shows a session, k kicks it, t traces its messages, q
    ends.

    \b
    Examples:
      msgnode admin top
      msgnode admin top --once --by waiting_bytes
      msgnode admin top --group peer --by refused --watch 2
    """
    query = [("by", by), ("group", group), ("limit", limit), ("over", over)]
    if once or view.client.console.as_json or view.is_watching or not sys.stdout.isatty():
        view.show(lambda found: _table(view, found), "top", query=query)
        return
    try:
        from msgnode.cli.admin.top_screen import TopScreen
    except ImportError:
        text = "the full screen needs Textual: pip install 'msgnode[admin]'; or use --once or --watch"
        view.client.console.stop(text, USAGE)
    TopScreen(view.client, by, group, limit, over).run()


def _table(view: View, found: dict[str, Any]) -> list[str]:
    lines = view.table(found["rows"], TOP)
    return [*lines, *view.below(f"by {found['by']}, rates of the last {found['over']:.0f} s")]
