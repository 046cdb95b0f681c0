"""
`msgnode listen` at work: prints what comes, until it has enough.
"""

import json
import os
import sys
from datetime import datetime

import click
from twisted.internet.defer import Deferred

from msgnode.cli import LATE, OK
from msgnode.cli.connection import NodeConnection
from msgnode.client import Message

_COLORS = {"response": "green", "create": "cyan", "delete": "red", "update": "yellow"}


class Listening:
    """
    Prints messages, and stops after `count` messages or `seconds`; None means no end.
    """

    def __init__(
        self,
        talk: NodeConnection,
        addresses: tuple[str, ...],
        types: tuple[str, ...],
        from_: str,
        count: int | None,
        seconds: float | None,
    ) -> None:
        self._talk = talk
        self._addresses = addresses
        self._types = {name.lower() for name in types}
        self._from = from_
        self._count = count
        self._seconds = seconds
        self._seen = 0
        self._connections = 0
        self._enough: Deferred[None] = Deferred()

    async def begin(self, talk: NodeConnection) -> None:
        """
        Called once connected; over when it has enough.
        """
        if self._addresses:
            await talk.client.subscribe(self._addresses)
        talk.at_interrupt = OK
        where = ", ".join(self._addresses) or f"{talk.client.runtime} and below"
        talk.console.note(f"listening to {where}; Ctrl-C ends")
        enough, seconds = self._enough, self._seconds
        if seconds is not None:
            timer = talk.reactor.callLater(seconds, enough.callback, None)
            enough.addBoth(lambda _: timer.cancel() if timer.active() else None)
        await enough
        if self._count is not None and self._seen < self._count and seconds is not None:
            came = f"{self._seen} of {self._count} messages came within {seconds:g} s"
            talk.console.stop(came, LATE)

    def heard(self, message: Message) -> None:
        if self._types and message.type.lower() not in self._types:
            return
        if self._enough.called or not message.from_.startswith(self._from):
            return
        self._seen += 1
        try:
            self._talk.console.result(_shown(message), message.fields)
        except BrokenPipeError:
            # Whoever read us has enough; nothing more can be flushed at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self._enough.callback(None)
            return
        if self._seen == self._count:
            self._enough.callback(None)

    def changed(self, is_open: bool) -> None:
        self._connections += is_open
        if self._connections > 1 or not is_open:
            self._talk.console.note("connected again" if is_open else "lost the node; connecting again")


def _shown(message: Message) -> str:
    """
    A message on one line, for people.
    """
    kind = message.type
    when = click.style(datetime.now().strftime("%H:%M:%S"), dim=True)
    name = click.style(f"{kind:<8}", fg=_COLORS.get(kind.lower()), bold=True)
    arrow = click.style("->", dim=True)
    body = message.fields.get("body")
    text = "" if body is None else f"  {json.dumps(body, ensure_ascii=False)}"
    return f"{when} {name} {message.from_} {arrow} {message.to}{text}"
