"""
The printer of `msgnode listen`: prints messages until enough have come.
"""

import os
import sys
from dataclasses import dataclass
from datetime import datetime

import click
from twisted.internet.defer import Deferred

from msgnode.cli import LATE, OK
from msgnode.cli.connection import NodeConnection
from msgnode.cli.messaging.text import Template, as_json, escaped
from msgnode.client import Message, Refused
from msgnode.client.subscriptions import PENDING

_COLORS = {"response": "green", "create": "cyan", "delete": "red", "update": "yellow"}


@dataclass(frozen=True)
class Selection:
    """
    The messages to print: at most `count`, in at most `seconds`; None: no limit.  Without a format they are
    printed as lines for human readers, or as JSON.
    """

    addresses: tuple[str, ...]
    types: tuple[str, ...]
    from_: str
    count: int | None
    seconds: float | None
    format: Template | None


class Listening:
    """
    A printer of the selected messages.
    """

    def __init__(self, talk: NodeConnection, selection: Selection) -> None:
        self._talk = talk
        self._selection = selection
        self._types = {name.lower() for name in selection.types}
        self._seen = 0
        self._connections = 0
        self._enough: Deferred[None] = Deferred()

    async def begin(self, talk: NodeConnection) -> None:
        """
        Called once connected; ends when enough messages have come.
        """
        addresses, count, seconds = self._selection.addresses, self._selection.count, self._selection.seconds
        if addresses:
            await self._subscribe(addresses)
        talk.at_interrupt = OK
        where = ", ".join(addresses) or f"{talk.client.runtime} and below"
        talk.console.note(f"listening to {where}; press Ctrl-C to stop")
        enough = self._enough
        if seconds is not None:
            timer = talk.reactor.callLater(seconds, enough.callback, None)
            enough.addBoth(lambda _: timer.cancel() if timer.active() else None)
        await enough
        if count is not None and self._seen < count and seconds is not None:
            came = f"only {self._seen} of {count} messages came within {seconds:g} s"
            talk.console.stop(came, LATE)

    async def _subscribe(self, addresses: tuple[str, ...]) -> None:
        try:
            await self._talk.client.subscribe(addresses)
        except Refused as why:
            if why.code != PENDING:
                raise
            self._talk.console.note(why.text)

    def heard(self, message: Message) -> None:
        if self._types and message.type.lower() not in self._types:
            return
        if self._enough.called or not message.from_.startswith(self._selection.from_):
            return
        self._seen += 1
        try:
            self._print(message)
        except BrokenPipeError:
            # The reader of the pipe is gone; output left in the buffer would fail at the exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self._enough.callback(None)
            return
        if self._seen == self._selection.count:
            self._enough.callback(None)

    def _print(self, message: Message) -> None:
        console, template = self._talk.console, self._selection.format
        if template is None:
            console.result(line_of(message), message.fields)
        else:
            console.line(template.fill(message.fields, datetime.now().isoformat(timespec="milliseconds")))

    def changed(self, is_open: bool) -> None:
        self._connections += is_open
        if self._connections > 1 or not is_open:
            self._talk.console.note(
                "connected again" if is_open else "lost the connection to the node; connecting again"
            )


def line_of(message: Message) -> str:
    """
    Returns a message on one line, for human readers.
    """
    kind = escaped(message.type)
    when = click.style(datetime.now().strftime("%H:%M:%S"), dim=True)
    name = click.style(f"{kind:<8}", fg=_COLORS.get(kind.lower()), bold=True)
    arrow = click.style("->", dim=True)
    body = message.fields.get("body")
    text = "" if body is None else f"  {as_json(body)}"
    return f"{when} {name} {escaped(message.from_)} {arrow} {escaped(message.to)}{text}"
