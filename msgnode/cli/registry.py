"""
`msgnode register` and `msgnode find`: hyperties in the domain registry.
"""

from typing import Any

import click
from twisted.internet.defer import Deferred

from msgnode.cli import OK, REFUSED
from msgnode.cli.connection import ADDRESS, SECONDS, NodeConnection, talks
from msgnode.cli.messaging.text import escaped
from msgnode.client import Refused
from msgnode.client.registration import EXPIRES_SECONDS, UNAVAILABLE, Registration

_resource = click.option(
    "--resource",
    "resources",
    multiple=True,
    metavar="TYPE",
    help="A resource type, such as chat; may be repeated.",
)
_scheme = click.option(
    "--scheme",
    "schemes",
    multiple=True,
    metavar="SCHEME",
    help="A data scheme, such as comm; may be repeated.",
)
_COLORS = {"live": "green", "disconnected": "red"}


@click.command(short_help="Register a hyperty at the domain registry.")
@click.argument("url_", metavar="HYPERTY", type=ADDRESS)
@click.option("--user", required=True, help="The user of the hyperty: a user:// URL or an e-mail address.")
@click.option("--descriptor", default="", metavar="URL", help="The URL of the hyperty's descriptor.")
@_resource
@_scheme
@click.option(
    "--expires",
    type=click.IntRange(1, EXPIRES_SECONDS),
    default=EXPIRES_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="The registry keeps the entry this long unless it is renewed.",
)
@click.option("--keep", is_flag=True, help="Stay connected and renew the entry until Ctrl-C removes it.")
@click.option("--end", is_flag=True, help="Register the hyperty as disconnected instead.")
@talks
def register(
    url_: str,
    user: str,
    descriptor: str,
    resources: tuple[str, ...],
    schemes: tuple[str, ...],
    expires: int,
    keep: bool,
    end: bool,
    **options: Any,
) -> None:
    """
    Register the hyperty at the address HYPERTY at the domain registry.

    \b
    Examples:
      msgnode register hyperty://localhost/lamp --user user://localhost/ann
      msgnode register hyperty://localhost/chat --user ann@localhost --resource chat --scheme comm --keep
      msgnode register hyperty://localhost/lamp --user user://localhost/ann --end

    \b
    Exit code 0: registered.  1: refused, or the node has no registry.
    3: cannot connect.  4: no answer in time.  130: interrupted before that.
    """

    async def action(talk: NodeConnection) -> None:
        done = {"ok": True, "url": url_}
        if end:
            await Registration(talk.client, url_, {}).end()
            talk.console.report(f"{url_} is registered as disconnected", done)
            return
        how: dict[str, Any] = {
            "descriptor": descriptor,
            "resources": resources,
            "schemes": schemes,
            "expires": expires,
        }
        registration = await talk.client.register(url_, user=user, **how)
        talk.console.report(f"{url_} is registered for {expires} s", done)
        if not keep:
            talk.console.note(
                "note: the entry is removed when this command exits; use --keep to stay connected"
            )
        else:
            talk.console.note("the entry is renewed until you press Ctrl-C")
            talk.goodbye, talk.at_interrupt = registration.end, OK
            await Deferred()
        registration.stop()

    NodeConnection(**options).run(action)


@click.command(short_help="Look up hyperties at the domain registry.")
@click.argument("what")
@_resource
@_scheme
@click.option("--timeout", type=SECONDS, default=10.0, show_default=True, help="Time to wait for the answer.")
@talks
def find(
    what: str, resources: tuple[str, ...], schemes: tuple[str, ...], timeout: float, **options: Any
) -> None:
    """
    Look up WHAT at the domain registry: a hyperty, a data object, or the hyperties of a user.

    \b
    Examples:
      msgnode find user://localhost/ann
      msgnode find ann@localhost --resource chat
      msgnode find --json hyperty://localhost/lamp | jq .status

    \b
    Exit code 0: found.  1: not found, or the node has no registry.
    3: cannot connect.  4: no answer in time.
    """

    if not what.strip():
        raise click.BadParameter("expected an address, a user or an e-mail address", param_hint="WHAT")

    async def action(talk: NodeConnection) -> None:
        try:
            found = await talk.client.find(what, resources=resources, schemes=schemes, timeout=timeout)
        except Refused as why:
            if why.code == 404:
                talk.console.stop(f"the registry has no entry for {what}", REFUSED, code=404)
            if why.code != UNAVAILABLE or not why.body.get("value"):
                raise
            found = why.body["value"]  # the entries of a hyperty that is disconnected
        alone = "url" in found or "hypertyID" in found
        entries = [found] if alone else list(found.values())
        talk.console.result("\n".join(_shown(entry) for entry in entries if isinstance(entry, dict)), found)

    NodeConnection(**options).run(action)


def _shown(entry: dict[str, Any]) -> str:
    status = escaped(str(entry.get("status", "")))
    kinds = ", ".join(map(str, [*entry.get("resources", []), *entry.get("dataSchemes", [])]))
    owner = entry.get("userID") or entry.get("user") or entry.get("reporter") or ""
    name = escaped(str(entry.get("url") or entry.get("hypertyID", "")))
    head = f"{name}  {click.style(status, fg=_COLORS.get(status))}"
    rest = [("user", owner), ("kinds", kinds), ("runtime", entry.get("runtime", ""))]
    return "\n".join([head, *(f"  {name:<8} {escaped(str(value))}" for name, value in rest if value)])
