"""
`msgnode route`: shows the map of nodes and links, and explains routes.
"""

from pathlib import Path
from typing import Any

import click

from msgnode.cli import REFUSED
from msgnode.cli.links.admin_client import AdminClient, asks_admin
from msgnode.cli.links.layout import duration, short, table, terminal_columns

_NO_PATH = "There would be no path."


@click.group(short_help="Show and explain routes to other domains.")
def route() -> None:
    """
    Show and explain the routes of a node to other domains; docs/federation.md explains them.
    """


@route.command(short_help="Show the map of nodes and links.")
@asks_admin
def show(admin: str, state: Path | None, as_json: bool) -> None:
    """
    Show the nodes that this node knows, the costs of the routes to them, and the links between them.

    \b
    Examples:
      msgnode route show
      msgnode route show --json | jq '.nodes[] | select(.cost == null) | .node'

    \b
    Exit code 0: shown.  1: refused, or a node without federation.
    3: cannot connect.  4: no answer in time.
    """
    client = AdminClient(admin, state, as_json)
    found = client.get("routes")
    lines = [*_nodes(found), "", *_links(found["links"])]
    client.console.result("\n".join(lines), found)


def _nodes(found: dict[str, Any]) -> list[str]:
    rows = []
    for node in found["nodes"]:
        is_own = node["node"] == found["node"]
        first = (
            "this node" if is_own else short(node["first_hop"]) if node["cost"] is not None else "no route"
        )
        kind = "" if node["kind"] == "SERVER" else node["kind"].lower()
        cost = "" if node["cost"] is None else f"{node['cost']:,}"
        hops = str(node["hops"]) if node["cost"] is not None else ""
        age = "" if is_own else duration(node["age_seconds"])
        rows.append([short(node["node"]), _cut(first), kind, cost, hops, age])
    return table(("NODE", "FIRST HOP", "TYPE", "COST", "HOPS", "AGE"), rows, terminal_columns(), 3)


def _cut(name: str) -> str:
    """
    Returns a name in at most 24 characters; it stands whole in a row of its own.
    """
    return name if len(name) <= 24 else f"{name[:23]}…"


def _links(links: list[dict[str, Any]]) -> list[str]:
    if not links:
        return ["no links are known"]
    rows = []
    for link in links:
        costs = "/".join("-" if cost is None else f"{cost:,}" for cost in link["costs"])
        cost = "not used" if link["cost"] is None else f"{link['cost']:,}"
        name = f"{short(link['one'])} - {short(link['other'])}"
        rows.append([name, cost, costs if len(set(link["costs"])) > 1 else "", duration(link["age_seconds"])])
    return table(("LINK", "COST", "BY END", "AGE"), rows, terminal_columns())


@route.command(short_help="Explain the route to an address.")
@click.argument("address")
@click.option(
    "--without",
    multiple=True,
    metavar="LINK",
    help="Suppose that a link is down: DOMAIN for a link of this node, or two ends DOMAIN,DOMAIN; an end may "
    "be a node, mn://DOMAIN/NODE.  May be repeated.",
)
@click.option(
    "--cost", "costs", multiple=True, metavar="LINK=N", help="Suppose that a link costs N.  May be repeated."
)
@asks_admin
def explain(
    address: str,
    without: tuple[str, ...],
    costs: tuple[str, ...],
    admin: str,
    state: Path | None,
    as_json: bool,
) -> None:
    """
    Explain how messages to ADDRESS go: the path with its costs, the alternatives, and what would change.

    ADDRESS may also be a domain or a node.

    \b
    Examples:
      msgnode route explain hyperty://c.example/lamp
      msgnode route explain c.example --without b.example
      msgnode route explain c.example --cost b.example,c.example=500

    \b
    Exit code 0: there is a path (with --without or --cost: there would be one),
    or this node decides about the address.  1: there is none, or refused.
    3: cannot connect.  4: no answer in time.
    """
    client = AdminClient(admin, state, as_json)
    query = [
        ("address", address),
        *(("without", each) for each in without),
        *(("cost", each) for each in costs),
    ]
    found = client.get("routes", "explain", query=query)
    client.console.result("\n".join(_explanation(found)), found)
    answer = found["supposed"] if found["is_supposed"] else found["path"]
    raise SystemExit(0 if answer is not None or found["kind"] == "here" else REFUSED)


def _explanation(found: dict[str, Any]) -> list[str]:
    lines = [found["text"]]
    path = found["path"]
    if path is not None:
        rows = [[short(found["node"]), "", "0"]]
        total = 0
        for hop in path["hops"]:
            total += hop["cost"]
            rows.append([short(hop["node"]), f"{hop['cost']:,}", f"{total:,}"])
        lines += ["", *table(("PATH", "LINK", "COST"), rows, terminal_columns())]
        lines += _alternatives(found["alternatives"])
    if found["is_supposed"]:
        lines += ["", click.style("SUPPOSED", bold=True), *_supposed(found)]
    return lines


def _alternatives(paths: list[dict[str, Any]]) -> list[str]:
    if not paths:
        return ["", "There is no other first hop."]
    rows = [[_hops(path), f"{path['cost']:,}"] for path in paths]
    return ["", *table(("ALTERNATIVES", "COST"), rows, terminal_columns())]


def _supposed(found: dict[str, Any]) -> list[str]:
    supposed, path = found["supposed"], found["path"]
    if supposed is None:
        return [_NO_PATH]
    if supposed == path:
        return ["Nothing would change."]
    if path is None:
        change = f"There would be a path of cost {supposed['cost']:,}:"
    elif [hop["node"] for hop in supposed["hops"]] == [hop["node"] for hop in path["hops"]]:
        change = f"The path would be the same, and its cost {supposed['cost']:,} instead of {path['cost']:,}:"
    else:
        change = f"The path would be another one, of cost {supposed['cost']:,} instead of {path['cost']:,}:"
    return [change, *(f"  {short(hop['node'])}" for hop in supposed["hops"])]


def _hops(path: dict[str, Any]) -> str:
    return ", ".join(short(hop["node"]) for hop in path["hops"])
