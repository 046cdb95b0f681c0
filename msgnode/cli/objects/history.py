"""
`msgnode object`: an object as it was, its changes, and its changes played again.
"""

import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import click
from twisted.internet.task import deferLater

from msgnode.cli import LATE
from msgnode.cli.connection import ADDRESS, SECONDS, NodeConnection, talks
from msgnode.cli.messaging.text import escaped
from msgnode.client import TimedOut

PAGE = 100
MAX_PAUSE_SECONDS = 3600.0


class PointType(click.ParamType):  # type: ignore[type-arg]
    """
    A version, or a time.
    """

    name = "point"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if isinstance(value, int):
            return value
        text = str(value)
        if text.isascii() and text.isdigit():
            return int(text)
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            self.fail(
                f"expected a version such as 12, or a time such as 2026-01-31T12:00:00Z, found {text!r}"
            )
        return (found if found.tzinfo is not None else found.astimezone()).astimezone(UTC).isoformat()


POINT = PointType()
_timeout = click.option(
    "--timeout", type=SECONDS, default=10.0, show_default=True, help="Time to wait for each answer."
)


Option = Callable[[Callable[..., None]], Callable[..., None]]
_CHOICE: tuple[Option, ...] = (
    click.option("--from", "from_", type=POINT, metavar="POINT", help="From this version or time on."),
    click.option("--limit", type=click.IntRange(1), help="So many at most."),
)


def _command(short_help: str, *options: Option) -> Callable[[Callable[..., None]], click.Command]:
    """
    Makes a command about the object at ADDRESS, with these options.
    """

    def made(function: Callable[..., None]) -> click.Command:
        function = _timeout(talks(function))
        for option in reversed(options):
            function = option(function)
        return object_group.command(short_help=short_help)(click.argument("address", type=ADDRESS)(function))

    return made


@click.group("object", short_help="Read the history of an object.")
def object_group() -> None:
    """
    Read the history of an object that its node keeps: as it was, its changes, or played again.
    """


async def _ask(talk: NodeConnection, address: str, timeout: float, **body: Any) -> Any:
    asked = {name.rstrip("_"): value for name, value in body.items() if value is not None}
    try:
        reply = await talk.client.request(f"{address}/history", asked, type="read", timeout=timeout)
    except TimedOut:
        talk.console.stop(f"no answer: no node keeps the history of {escaped(address)}, or it is away", LATE)
    return reply.body.get("value")


@_command(
    "Print an object as it was.",
    click.option(
        "--time", "time_", type=POINT, metavar="TIME", help="At this time, or version; default: now."
    ),
    click.option("--version", type=click.IntRange(0), help="At this version."),
)
def at(address: str, time_: int | str | None, version: int | None, timeout: float, **options: Any) -> None:
    """
    Print the object at ADDRESS as it was at a time or a version.

    A time without a zone is that of this machine.

    \b
    Examples:
      msgnode object at comm://localhost/rooms/1
      msgnode object at comm://localhost/rooms/1 --time 2026-01-31T12:00:00
      msgnode object at comm://localhost/rooms/1 --version 17 --json | jq .value

    \b
    Exit code 0: printed.  1: not kept, not kept any more, or refused.
    3: cannot connect.  4: no answer in time.
    """
    if time_ is not None and version is not None:
        raise click.UsageError("give --time or --version, not both")
    point = version if time_ is None else time_

    async def action(talk: NodeConnection) -> None:
        wanted = point if point is not None else datetime.now(UTC).isoformat()
        found = await _ask(talk, address, timeout, at=wanted)
        head = f"version {found['version']}  {escaped(str(found['time']))}"
        lines = [head if found["exists"] else f"{head}  (there is no object)"]
        lines.append(escaped(json.dumps(found["value"], ensure_ascii=False, indent=2), keep="\n"))
        for name, child in found["children"].items():
            lines.append(f"{escaped(name)}: {escaped(json.dumps(child['value'], ensure_ascii=False))}")
        talk.console.result("\n".join(lines), found)
        _tell_missing(talk, found)

    NodeConnection(**options).run(action)


def _tell_missing(talk: NodeConnection, found: dict[str, Any]) -> None:
    for gap in found.get("missing", ()):
        which = (
            f"versions {gap['from']} to {gap['to']}" if gap["to"] != gap["from"] else f"version {gap['to']}"
        )
        talk.console.note(f"note: {which} cannot be given ({escaped(str(gap['why']))})")
    if found.get("hidden"):
        talk.console.note(f"note: {found['hidden']} messages are not shown to you")


async def _changes(
    talk: NodeConnection, address: str, timeout: float, from_: int | str | None, limit: int | None
) -> AsyncIterator[dict[str, Any]]:
    """
    The changes, page by page.
    """
    left = limit
    while True:
        page = await _ask(talk, address, timeout, from_=from_, limit=min(PAGE, left or PAGE))
        _tell_missing(talk, page)
        for change in page.get("changes", ()):
            yield change
            if left is not None:
                left -= 1
                if not left:
                    return
        from_ = page.get("next")
        if not from_:
            return


def _line(change: dict[str, Any]) -> str:
    message = change["message"]
    body = json.dumps(message.get("body", {}), ensure_ascii=False)
    words = (
        f"{change['version']:>6}  {change['time']}  {message.get('type', ''):<6}  {message.get('from', '')}"
    )
    return f"{escaped(words)}  {escaped(body)}"


@_command("Print the changes of an object.", *_CHOICE)
def log(address: str, from_: int | str | None, limit: int | None, timeout: float, **options: Any) -> None:
    """
    Print the changes of the object at ADDRESS: version, time, type, sender and body; with --json one object
    for each line.

    \b
    Examples:
      msgnode object log comm://localhost/rooms/1
      msgnode object log comm://localhost/rooms/1 --from 2026-01-31T12:00:00 --limit 20
      msgnode object log comm://localhost/rooms/1 --json | jq -r .message.body.value

    \b
    Exit code 0: printed.  1: not kept, not kept any more, or refused.
    3: cannot connect.  4: no answer in time.
    """

    async def action(talk: NodeConnection) -> None:
        async for change in _changes(talk, address, timeout, from_, limit):
            talk.console.result(_line(change), change)

    NodeConnection(**options).run(action)


@_command(
    "Send the changes of an object again, to another address.",
    click.option("--to", required=True, type=ADDRESS, help="The object that gets the changes."),
    *_CHOICE,
    click.option(
        "--speed",
        type=click.FloatRange(0.001, 1e6),
        help="With the pauses of then, divided by this; without pauses otherwise.",
    ),
)
def replay(
    address: str,
    to: str,
    from_: int | str | None,
    limit: int | None,
    speed: float | None,
    timeout: float,
    **options: Any,
) -> None:
    """
    Send the changes of the object at ADDRESS again, at the /changes and /children/ of another object, from
    that object.

    \b
    Examples:
      msgnode object replay comm://localhost/rooms/1 --to comm://localhost/copies/1
      msgnode object replay comm://localhost/rooms/1 --to comm://localhost/copies/1 --speed 10

    \b
    Exit code 0: sent.  1: not kept, not kept any more, or refused.
    3: cannot connect.  4: no answer in time.
    """
    if to.rstrip("/") == address.rstrip("/"):
        raise click.BadParameter("expected another object than ADDRESS", param_hint="--to")

    async def action(talk: NodeConnection) -> None:
        sent, before = 0, None
        async for change in _changes(talk, address, timeout, from_, limit):
            message, when = change["message"], datetime.fromisoformat(change["time"])
            if speed is not None and before is not None:
                pause = min((when - before).total_seconds() / speed, MAX_PAUSE_SECONDS)
                await deferLater(talk.reactor, max(0.0, pause))
            before = when
            there = str(message.get("to", ""))
            channel = there[len(address) :] if there.startswith(f"{address}/") else "/changes"
            talk.client.publish(to + channel, message.get("body", {}), type=message["type"], from_=to)
            sent += 1
        await talk.client.flushed()
        talk.console.report(f"{sent} messages sent to {to}", {"ok": True, "sent": sent, "to": to})

    NodeConnection(**options).run(action)
