"""
`msgnode admin reservations`: what is granted of the relay's bandwidth.
"""

from collections.abc import Iterator
from typing import Any

import click

from msgnode.cli.admin.lists import more, name, takes_cursor, takes_limit
from msgnode.cli.admin.times import left
from msgnode.cli.admin.view import Column, View, plain, shows
from msgnode.cli.links.layout import count
from msgnode.structures.bit_rates import bits

RESERVATIONS = (
    Column("ID", "id", name, True),
    Column("SESSION", "session", name, True),
    Column("USER", "user", plain, True),
    Column("FOR", "application", plain, True),
    Column("UP", "up", bits),
    Column("DOWN", "down", bits),
    Column("PARTIES", "number_of_parties", plain),
    Column("ENDS IN", "expires", left),
)


@click.command(short_help="List reservations of relay bandwidth.")
@click.argument("filter", required=False, default="")
@click.option("--session", default="", metavar="RUNTIME", help="Only those of this session.")
@click.option("--user", default="", help="Only those of this user.")
@takes_limit
@takes_cursor
@shows
def reservations(view: View, filter: str, **given: Any) -> None:
    """
    List the reservations of relay bandwidth whose id, session, user, application session or party has FILTER
    in it; 'msgnode admin take-back ID' ends one.

    \b
    Examples:
      msgnode admin reservations
      msgnode admin reservations --user user://example.org/ann --json
    """

    def draw(found: Any) -> Iterator[str]:
        if not found["is_embedded"]:
            yield "this node has no embedded QoS broker (qos.url): it keeps no reservations"
            return
        yield from view.table(found["reservations"], RESERVATIONS)
        spare, capacity = found["left"], found["capacity"]
        yield from view.below(
            f"left: {bits(spare['up'])} of {bits(capacity['up'])} up,"
            f" {bits(spare['down'])} of {bits(capacity['down'])} down",
            "the TURN server's command line does not answer" if found["relay_failures"] else "",
            f"{len(found['reservations']):,} of {found['matched']:,} that match,"
            f" of {count(found['total'], 'reservation')}",
            more(found),
        )

    view.show(draw, "reservations", query=[("q", filter), *given.items()])
