"""
`msgnode admin address`, `pools` and `registry`: addresses, and what is granted.
"""

import json
from collections.abc import Iterator
from typing import Any

import click

from msgnode.cli.admin.lists import more, name, state, takes_cursor, takes_limit
from msgnode.cli.admin.times import ago
from msgnode.cli.admin.view import Column, View, plain, shows
from msgnode.cli.links.layout import count
from msgnode.structures.log_limits import printable


@click.command(short_help="Show who hears an address, or list addresses.")
@click.argument("address", required=False, default="")
@click.option("--prefix", default="", help="List the addresses that begin with this.")
@takes_limit
@takes_cursor
@shows
def address(view: View, address: str, prefix: str, **given: Any) -> None:
    """
    Show the sessions that hear ADDRESS, and why; or list addresses by their beginning.

    \b
    Examples:
      msgnode admin address comm://example.org/chat/changes
      msgnode admin address --prefix comm://example.org/
    """
    if bool(address) == bool(prefix):
        raise click.UsageError("Give ADDRESS or --prefix.")
    if address:
        view.show(lambda found: _address(view, found), "addresses", address)
        return
    columns = (Column("ADDRESS", "address", name, True), Column("SESSIONS", "sessions", plain))

    def draw(found: Any) -> Iterator[str]:
        yield from view.table(found["addresses"], columns)
        looked = f"{found['looked_at']:,} of {found['total']:,} addresses looked at"
        yield from view.below(looked, more(found))

    view.show(draw, "addresses", query=[("prefix", prefix), *given.items()])


def _address(view: View, found: dict[str, Any]) -> Iterator[str]:
    columns = (
        Column("RUNTIME", "runtime", name, True),
        Column("STATE", "state", state, True),
        Column("WHY", "why", plain, True),
        Column("SINCE", "since", ago),
        Column("POLICY", "subscribe", plain, True),
        Column("CONNECTOR", "connector", plain, True),
        Column("PEER", "peer", plain, True),
        Column("USER", "user", plain, True),
    )
    yield f"{printable(found['address'])}: heard by {count(found['number'], 'session')}"
    if found["hearers"]:
        yield from view.table(found["hearers"], columns)
    for key, text in (("owner", "owned by"), ("below", "lies below the session")):
        if found[key]:
            yield f"{text} {printable(found[key])}"
    if found["is_of_node"]:
        yield "an address of the node itself"
    if found["pool"]:
        yield f"of the pool {printable(found['pool'])}, {'leased' if found['is_leased'] else 'free'}"
    if found["held_by"]:
        yield f"held by sessions at {plain(found['held_by'])}"
    if found["registry"]:
        yield f"in the registry: {printable(json.dumps(found['registry'], ensure_ascii=False))}"
    if found["registry_error"]:
        yield f"the registry was not read: {printable(found['registry_error'])}"


@click.command(short_help="Show entries of the domain registry.")
@click.option("--user", default="", metavar="URL", help="The entries of this user.")
@click.option("--url", default="", metavar="URL", help="The entry of this address.")
@shows
def registry(view: View, user: str, url: str) -> None:
    """
    Show the entries of the domain registry for a user, or the entry of an address.

    \b
    Examples:
      msgnode admin registry --user user://example.org/ann
      msgnode admin registry --url comm://example.org/chat
    """
    if bool(user) == bool(url):
        raise click.UsageError("Give --user or --url.")

    def draw(found: Any) -> Iterator[str]:
        for address, entry in found["entries"].items():
            yield f"{printable(address)}  {printable(json.dumps(entry, ensure_ascii=False))}"
        yield from view.below(f"{len(found['entries']):,} of {found['number']:,}")

    view.show(draw, "registry", query=[("user", user), ("url", url)])


@click.command(short_help="List pools of addresses, and who has which.")
@click.argument("scheme", required=False, default="")
@shows
def pools(view: View, scheme: str) -> None:
    """
    List the pools of addresses and their leases.
    """
    columns = (Column("ADDRESS", "address", name, True), Column("SESSION", "session", name, True))

    def draw(found: Any) -> Iterator[str]:
        for each, number in found["sizes"].items():
            clients = found.get("clients", {}).get(each, "anybody")
            yield f"{printable(each)}: {found['leased'][each]:,} of {number:,} leased, for {clients}"
        if found["leases"]:
            yield from view.table(found["leases"], columns)

    view.show(draw, "pools", query=[("scheme", scheme)])
