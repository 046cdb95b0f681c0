"""
`msgnode admin sessions`, `connections`, `addresses`, `top`, `pools`, `memory`, `config` and `nodes`: lists.
"""

from collections.abc import Iterator
from typing import Any

import click

from msgnode.cli.admin.times import Duration, ago
from msgnode.cli.admin.view import Column, View, plain, shows
from msgnode.cli.links.layout import colored, count, size
from msgnode.structures.log_limits import printable

STATES = {"attached": "ok", "away": "away", "slow": "slow"}


def name(value: Any) -> str:
    return printable(str(value)) or "-"


def state(value: str) -> str:
    return colored(STATES.get(value, value), {"attached": "ok", "slow": "failed"}.get(value, value))


SESSIONS = (
    Column("RUNTIME", "runtime", name, True),
    Column("USER", "user", plain, True),
    Column("CONNECTOR", "connector", plain, True),
    Column("PEER", "peer", plain, True),
    Column("STATE", "state", state, True),
    Column("SINCE", "since", ago),
    Column("IDLE", "last_in", ago),
    Column("WAITING", "waiting", plain),
    Column("BYTES", "waiting_bytes", size),
    Column("UNACKED", "unacked", plain),
    Column("IN", "in_messages", plain),
    Column("OUT", "out_messages", plain),
    Column("REFUSED", "refused", plain),
    Column("ADDR", "addresses", plain),
    Column("LABELS", "labels", plain),
)
CONNECTIONS = (
    Column("SESSION", "session", name, True),
    Column("CONNECTOR", "connector", plain, True),
    Column("PEER", "peer", plain, True),
    Column("USER", "user", plain, True),
    Column("OPENED", "opened", ago),
    Column("IN", "in_messages", plain),
    Column("OUT", "out_messages", plain),
)
CLOSED = (
    *CONNECTIONS[:3],
    Column("BY", "by", plain, True),
    Column("REASON", "reason", plain, True),
    Column("CODE", "code", plain),
    Column("CLOSED", "closed", ago),
    *CONNECTIONS[4:],
)
TOP = (
    Column("NAME", "name", name, True),
    Column("SESSIONS", "sessions", plain),
    Column("IN/s", "in_messages", plain),
    Column("IN B/s", "in_bytes", lambda value: size(int(value))),
    Column("OUT/s", "out_messages", plain),
    Column("OUT B/s", "out_bytes", lambda value: size(int(value))),
    Column("REFUSED/s", "refused", plain),
    Column("WAITING", "waiting_bytes", size),
    Column("UNACKED", "unacked_bytes", size),
)

takes_limit = click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
takes_cursor = click.option(
    "--cursor", default="", metavar="NEXT", help="The next page, as the one before names it."
)


def more(found: dict[str, Any]) -> str:
    return f"more: --cursor {found['next']}" if found["next"] else ""


@click.command(short_help="List sessions.")
@click.argument("filter", required=False, default="")
@click.option("--slow", "which", flag_value="slow", help="Only those whose clients do not read.")
@click.option("--away", "which", flag_value="away", help="Only those without a connection.")
@click.option("--attached", "which", flag_value="attached", help="Only those with one.")
@click.option("--connector", default="", help="Only those of this connector.")
@click.option("--user", default="", help="Only those of this user.")
@click.option("--peer", default="", help="Only those from this IP address or network.")
@click.option("--min-waiting-bytes", type=click.IntRange(0), default=0)
@click.option("--idle-over", type=Duration(), help="Only those that sent nothing for so long.")
@click.option("--user-agent", default="", help="Only those of a program whose name has this in it.")
@click.option("--min-reconnects", type=click.IntRange(0), default=0, help="Came back so often in an hour.")
@click.option("--anonymous", is_flag=True, help="Only those that showed no identity.")
@click.option("--token-ends-in", type=Duration(), help="Only those whose token ends within this time.")
@click.option("--label", default="", help="Only those that operators gave this label.")
@click.option("--sort", default="runtime", show_default=True, metavar="FIELD", help="-FIELD: largest first.")
@takes_limit
@takes_cursor
@shows
def sessions(
    view: View,
    filter: str,
    which: str | None,
    idle_over: float | None,
    token_ends_in: float | None,
    anonymous: bool,
    **given: Any,
) -> None:
    """
    List the sessions whose runtimeURL, user or peer has FILTER in it.

    \b
    Examples:
      msgnode admin sessions ann
      msgnode admin sessions --slow
      msgnode admin sessions --sort -waiting_bytes --limit 3 --watch 2
      msgnode admin sessions --peer 10.0.0.0/8 --columns runtime,peer,in_bytes
      msgnode admin sessions --min-reconnects 10 --columns runtime,reconnects_1h,user_agent
    """

    def draw(found: Any) -> Iterator[str]:
        yield from view.table(found["sessions"], SESSIONS)
        shown = f"{len(found['sessions']):,} of {found['matched']:,} that match"
        yield from view.below(f"{shown}, of {count(found['total'], 'session')}", more(found))

    query = [
        ("q", filter),
        ("state", which),
        ("idle_over", idle_over),
        ("token_ends_in", token_ends_in),
        ("anonymous", "true" if anonymous else ""),
        *given.items(),
    ]
    view.show(draw, "sessions", query=query)


@click.command(short_help="List connections, or those that closed.")
@click.argument("filter", required=False, default="")
@click.option("--closed", is_flag=True, help="Those that closed lately, and why.")
@click.option("--connector", default="", help="Only those of this connector.")
@click.option("--peer", default="", help="Only those from this IP address or network.")
@click.option("--code", type=int, help="Only those that closed with this code.")
@click.option("--by", type=click.Choice(["client", "node", "admin"]), help="Only those that it closed.")
@takes_limit
@takes_cursor
@shows
def connections(view: View, filter: str, closed: bool, **given: Any) -> None:
    """
    List connections, the newest first; with --closed the last 1,000 that closed, and why.

    \b
    Examples:
      msgnode admin connections
      msgnode admin connections --closed --by node
      msgnode admin connections --closed --code 4413
    """

    def draw(found: Any) -> Iterator[str]:
        yield from view.table(found["connections"], CLOSED if closed else CONNECTIONS)
        shown = f"{len(found['connections']):,} of {found['matched']:,} that match"
        yield from view.below(shown, more(found))

    query = [("state", "closed" if closed else "open"), ("q", filter), *given.items()]
    view.show(draw, "connections", query=query)


@click.command(short_help="List the stubs of foreign domains.")
@shows
def stubs(view: View) -> None:
    """
    List the stubs of foreign domains that the node runs, with their states, figures, and the limits that they
    have reached.
    """
    columns = (
        Column("DOMAIN", "name", name, True),
        Column("STATE", "state", stub_state, True),
        Column("SINCE", "since", ago),
        Column("VERSION", "version", plain, True),
        Column("WAITING", "waiting", plain),
        Column("SUBSCRIBED", "subscribed", plain),
        Column("FAILURES", "failures", plain),
        Column("LIMITS", "limits", limits, True),
        Column("LAST ERROR", "last_error", plain, True),
    )

    def draw(found: Any) -> Iterator[str]:
        if not found["stubs"]:
            yield "no stubs: no message went to a foreign domain that this node accepts"
            return
        yield from view.table(found["stubs"], columns)

    view.show(draw, "stubs")


def limits(value: dict[str, int] | None) -> str:
    """
    Returns the limits that a stub has reached, with how often.
    """
    return ", ".join(f"{plain(limit)} {plain(times)}" for limit, times in (value or {}).items())


def stub_state(value: str) -> str:
    return colored(value, {"live": "ok", "failed": "failed", "disconnected": "failed"}.get(value, value))


@click.command(short_help="Show who holds the memory.")
@shows
def memory(view: View) -> None:
    """
    Show the memory of the node by owner, and the sessions that hold most.
    """
    columns = (
        Column("RUNTIME", "runtime", name, True),
        Column("ALL", "bytes", size),
        Column("WAITING", "waiting_bytes", size),
        Column("UNACKED", "unacked_bytes", size),
        Column("ADDRESSES", "state_bytes", size),
    )

    def draw(found: Any) -> Iterator[str]:
        yield f"memory of the process: {size(found['rss'])}"
        for owner, number in found["by_owner"].items():
            yield f"  {owner:12} {size(number)}"
        yield from view.table(found["sessions"], columns)

    view.show(draw, "memory")


@click.command(short_help="Show the configuration in effect.")
@click.argument("prefix", required=False, default="")
@click.option("--changed", is_flag=True, help="Only keys that do not have their default.")
@shows
def config(view: View, prefix: str, changed: bool) -> None:
    """
    Show the configuration in effect, and where each key comes from; secrets are left out.

    \b
    Examples:
      msgnode admin config limits
      msgnode admin config --changed
    """
    columns = (
        Column("KEY", "key", name, True),
        Column("VALUE", "value", plain, True),
        Column("FROM", "origin", plain, True),
        Column("RESTART", "needs_restart", lambda value: "needed" if value else "", True),
    )

    def draw(found: Any) -> Iterator[str]:
        rows = [row for row in found["keys"] if row["key"].startswith(prefix)]
        yield from view.table([r for r in rows if not changed or r["origin"] != "default"], columns)
        yield from view.below(f"{printable(found['file']) or 'no file'}, revision {found['revision']}")

    view.show(draw, "config")


@click.command(short_help="List the nodes of the domain.")
@shows
def nodes(view: View) -> None:
    """
    List the nodes of the domain, and what this one knows of their state.
    """
    columns = (Column("NODE", "name", name, True), Column("STATE", "state", plain, True))
    view.show(lambda found: view.table(found["nodes"], columns), "nodes")
