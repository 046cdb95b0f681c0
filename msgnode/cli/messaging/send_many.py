"""
`msgnode send` of many messages: a line each, or one body many times, at a given rate.
"""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import click
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from msgnode.cli import REFUSED
from msgnode.cli.connection import NodeConnection
from msgnode.cli.messaging.bodies import body_in
from msgnode.cli.messaging.stdin_lines import LineTooLong, StdinLines
from msgnode.cli.messaging.text import escaped
from msgnode.client import Delivery, TimedOut

WINDOW = 500  # messages without a receipt
MAX_KINDS = 10  # of refusals that are printed


class Sending(NamedTuple):
    """
    How the messages are sent: `rate` in messages a second, None as fast as receipts come; `wait` in seconds.
    """

    to: str
    type: str
    from_: str
    rate: float | None
    wait: float
    header: dict[str, Any]


async def repeated(body: Any, count: int) -> AsyncIterator[Any]:
    for _ in range(count):
        yield body


async def lines(talk: NodeConnection, count: int | None) -> AsyncIterator[Any]:
    """
    The bodies on stdin, one a line, without blank lines.  A line that is none gives a click.BadParameter.
    """
    stdin, number, given = StdinLines(talk.reactor), 0, 0
    while count is None or given < count:
        line = await stdin.next()
        if line is None:
            return
        number += 1
        if not line.strip():
            continue
        given += 1
        try:
            yield body_in(line.decode())
        except UnicodeDecodeError as why:
            yield click.BadParameter(f"line {number} is not UTF-8 at byte {why.start}")
        except click.BadParameter as why:
            yield click.BadParameter(f"line {number} {why.message}")


class SendMany:
    """
    A sender of many messages, which counts their receipts.
    """

    def __init__(self, talk: NodeConnection, how: Sending) -> None:
        self._talk = talk
        self._how = how
        self._sent = self._delivered = self._late = 0
        self._wrong: Counter[str] = Counter()
        self._in_flight: set[Deferred[Any]] = set()
        self._room: Deferred[None] | None = None

    async def run(self, bodies: AsyncIterator[Any]) -> None:
        """
        Send all bodies, wait for the receipts, and print the result; exit if one was refused.
        """
        reactor = self._talk.reactor
        begun = reactor.seconds()
        try:
            async for body in bodies:
                if self._how.rate is not None:
                    early = begun + self._sent / self._how.rate - reactor.seconds()
                    if early > 0:
                        await deferLater(reactor, early)
                if isinstance(body, click.BadParameter):
                    self._refuse(body.message)
                else:
                    self._send(body)
                if len(self._in_flight) >= WINDOW:
                    self._room = Deferred()
                    await self._room
        except LineTooLong as why:
            self._refuse(str(why))
        await DeferredList(list(self._in_flight))
        self._report(reactor.seconds() - begun)

    def _send(self, body: Any) -> None:
        how = self._how
        self._sent += 1
        sent: Deferred[Any] = self._talk.client.deliver(
            how.to, body, type=how.type, from_=how.from_, timeout=how.wait, **how.header
        )
        self._in_flight.add(sent)
        sent.addCallbacks(self._received, self._failed)
        sent.addBoth(lambda _: self._done(sent))

    def _received(self, receipt: Delivery) -> None:
        if receipt.code < 300:
            self._delivered += 1
        else:
            word = f" ({receipt.reason})" if receipt.reason else ""
            self._refuse(escaped(f"{receipt.text}{word}"))

    def _failed(self, why: Failure) -> None:
        if why.check(TimedOut):
            self._late += 1
        else:
            self._refuse(escaped(why.getErrorMessage()))

    def _refuse(self, text: str) -> None:
        self._wrong[text if text in self._wrong or len(self._wrong) < MAX_KINDS else "other reasons"] += 1

    def _done(self, sent: Deferred[Any]) -> None:
        self._in_flight.discard(sent)
        room, self._room = self._room, None
        if room is not None:
            room.callback(None)

    def _report(self, seconds: float) -> None:
        refused = sum(self._wrong.values())
        number = self._sent
        noun = "message" if number == 1 else "messages"
        text = f"{number:,} {noun} in {seconds:.1f} s: {self._delivered:,} delivered"
        text += f", {self._late:,} without a receipt yet" if self._late else ""
        text += f", {refused:,} refused" if refused else ""
        told = {
            "ok": not refused,
            "sent": number,
            "delivered": self._delivered,
            "unconfirmed": self._late,
            "refused": dict(self._wrong),
            "seconds": round(seconds, 3),
        }
        if not refused:
            self._talk.console.report(click.style(text, fg="green"), told)
            return
        if self._talk.console.as_json:
            self._talk.console.result("", told)
            raise SystemExit(REFUSED)
        self._talk.console.stop(
            "\n".join([text, *(f"  {times:,} times: {why}" for why, times in self._wrong.most_common())]),
            REFUSED,
        )
