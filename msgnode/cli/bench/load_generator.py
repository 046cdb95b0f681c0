"""
The load of `msgnode bench`: senders, receivers, and how many messages are in flight.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import click
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.task import LoopingCall, deferLater
from twisted.python.failure import Failure

from msgnode.cli.connection import NodeConnection
from msgnode.client import Client, Message, Refused

WIDTH = 30  # characters of the progress bar
WARM_SECONDS = 0.5  # seconds before the measurement
TOO_MANY = "429 "  # the code of such a refusal
RETRY_SECONDS = 1.0  # seconds until the next message after all in flight were refused, or no answer came
CHECKS = 5  # in that time, whether an answer came
UNREPORTED = "answers, which it does not report"  # responses that the node refused


class Measured(NamedTuple):
    """
    The result of one measurement.

    `cores` is the part of one core that this process used, `delays` are in seconds and sorted.
    """

    arrived: int
    seconds: float
    cores: float
    delays: list[float]
    lost: int
    refused: Counter[str]  # by code and words of the node


class Flight:
    """
    A message in flight: when it was sent, and how many receivers have yet to get it.
    """

    __slots__ = ("left", "sent")

    def __init__(self, left: int) -> None:
        self.sent = time.perf_counter()
        self.left = left


class Loop:
    """
    A sender and its receivers; at most `window` messages are in flight.

    `ask` sends the message of a number.  A message that arrives without its number
    counts as the oldest.  `later` calls a function after so many seconds.
    """

    def __init__(
        self,
        ask: Callable[[int], object],
        window: int,
        receivers: int,
        later: Callable[[float, Callable[[], None]], object] = lambda seconds, call: None,
    ) -> None:
        self.arrived = 0
        self.refusals: Counter[str] = Counter()
        self._later = later
        self.delays: list[float] = []
        self._ask = ask
        self._window = window
        self._receivers = receivers
        self._flights: dict[int, Flight] = {}
        self._numbers = count()
        self._seen, self._quiet = -1, 0
        self._running = True

    def start(self) -> None:
        for _ in range(self._window):
            self._send()

    def stop(self) -> None:
        self._running = False

    @property
    def under_way(self) -> int:
        return sum(flight.left for flight in self._flights.values())

    @property
    def limited(self) -> bool:
        """
        Did the node refuse messages because there were too many?
        """
        return any(words.startswith(TOO_MANY) for words in self.refusals)

    def came(self, number: int | None = None) -> None:
        """
        A message arrived; when all receivers have it, the next is sent.
        """
        self.arrived += 1
        if number is None:
            number = next(iter(self._flights), -1)
        flight = self._flights.get(number)
        if flight is None:
            return  # it is counted as refused
        flight.left -= 1
        if flight.left:
            return
        del self._flights[number]
        self.delays.append(time.perf_counter() - flight.sent)
        self._again()

    def refused(self, code: int, text: str, number: int | None = None) -> None:
        """
        The node refused this message: fewer are in flight from now on.

        It closes the connection of a client that ignores many refusals.
        """
        self.refusals[f"{code} {text}"[:200]] += 1
        if self._flights:
            self._flights.pop(next(reversed(self._flights)) if number is None else number, None)
            if not self._flights:
                self._later(RETRY_SECONDS, self._again)

    def failed(self, why: Failure, number: int) -> None:
        """
        A request failed: it was refused, or got no answer.
        """
        if isinstance(why.value, Refused):
            self.refused(why.value.code, why.value.text, number)

    def watch(self) -> None:
        """
        If no answer came in RETRY_SECONDS, messages in flight may be lost, and one more is sent.
        """
        if not self._running:
            return
        self._quiet = self._quiet + 1 if self.arrived == self._seen else 0
        self._seen = self.arrived
        if self._quiet >= CHECKS and self._flights:
            self._quiet = 0
            self._send()
        self._later(RETRY_SECONDS / CHECKS, self.watch)

    def _again(self) -> None:
        if self._running:
            self._send()

    def _send(self) -> None:
        number = next(self._numbers)
        self._flights[number] = Flight(self._receivers)
        self._ask(number)


class Load:
    """
    The clients of a measurement, and what they did.
    """

    def __init__(
        self, talk: NodeConnection, pattern: str, pairs: int, subscribers: int, size: int, window: int
    ) -> None:
        self._talk = talk
        self._pattern = pattern
        self._receivers = subscribers if pattern == "fanout" else 1
        self._pairs = 1 if pattern == "fanout" else pairs
        self._window = window
        self._body = {"value": "x" * size}
        self._loops: list[Loop] = []
        self._clients: list[Client] = []
        self._by_sender: dict[str, Loop] = {}

    @property
    def clients(self) -> int:
        return self._pairs * (1 + self._receivers)

    async def connect(self, resume: bool) -> None:
        """
        Senders and receivers, each with a connection of its own.
        """
        talk = self._talk
        talk.console.note(f"connecting {self.clients} clients to {talk.url} ...")
        talk.goodbye = self.close
        for _ in range(self._pairs):
            sender, *receivers = [
                talk.make(resume=resume, runtime="", token="", heard=self._heard)
                for _ in range(1 + self._receivers)
            ]
            self._clients += [sender, *receivers]
            for client in (sender, *receivers):
                await client.connect()
            await self._pair(sender, receivers)

    async def _pair(self, sender: Client, receivers: list[Client]) -> None:
        later = self._talk.reactor.callLater
        address = f"comm://{sender.domain}/bench-{sender.runtime.rpartition('-')[2]}"
        if self._pattern == "request":
            await receivers[0].subscribe(address, lambda request: None)

            def ask(number: int) -> None:
                asked = sender.request(address, self._body)
                asked.addCallbacks(lambda _: loop.came(number), loop.failed, errbackArgs=(number,))

            loop = Loop(ask, self._window, 1, later)
        else:
            # A refused update would not be answered.
            loop = Loop(
                lambda number: sender.publish(address, self._body, type="event"),
                self._window,
                len(receivers),
                later,
            )
            for receiver in receivers:
                await receiver.subscribe(address, lambda message: loop.came())
        self._by_sender[sender.runtime] = loop
        self._loops.append(loop)

    def _heard(self, message: Message) -> None:
        """
        The node answers a sender whose message it refused.
        """
        loop = self._by_sender.get(message.to)
        if loop is not None and message.type == "response":
            loop.refused(message.body.get("code", 0), message.body.get("desc", ""))

    async def run(self, seconds: float) -> Measured:
        """
        Measure for so many seconds.
        """
        talk = self._talk
        for loop in self._loops:
            loop.start()
            if self._pattern == "request":
                loop.watch()
        await deferLater(talk.reactor, WARM_SECONDS, lambda: None)
        before, cpu, began = self._arrived(), time.process_time(), time.perf_counter()
        for loop in self._loops:
            loop.delays.clear()
        await self._count_down(seconds)
        arrived, took = self._arrived() - before, time.perf_counter() - began
        busy = (time.process_time() - cpu) / took
        delays = sorted(delay for loop in self._loops for delay in loop.delays)
        await self._drain()
        lost = sum(loop.under_way for loop in self._loops)
        refused = sum((loop.refusals for loop in self._loops), Counter[str]())
        if lost and self._pattern == "request" and any(loop.limited for loop in self._loops):
            refused[UNREPORTED] += lost
            lost = 0
        await self.close()
        return Measured(arrived, took, busy, delays, lost, refused)

    def _arrived(self) -> int:
        return sum(loop.arrived for loop in self._loops)

    async def _count_down(self, seconds: float) -> None:
        """
        Wait, with a progress bar on a terminal.
        """
        if self._talk.console.as_json or not sys.stderr.isatty():
            await deferLater(self._talk.reactor, seconds, lambda: None)
            return
        began = time.perf_counter()

        def draw() -> None:
            part = min((time.perf_counter() - began) / seconds, 1)
            bar = ("#" * int(part * WIDTH)).ljust(WIDTH, "-")
            click.echo(f"\r[{bar}] {self._arrived():,} messages", err=True, nl=False)

        drawing = LoopingCall(draw)
        drawing.clock = self._talk.reactor
        drawing.start(0.1)
        try:
            await deferLater(self._talk.reactor, seconds, lambda: None)
        finally:
            drawing.stop()
            click.echo("\r" + " " * (WIDTH + 30) + "\r", err=True, nl=False)

    async def _drain(self) -> None:
        for loop in self._loops:
            loop.stop()
        for _ in range(50):
            if not any(loop.under_way for loop in self._loops):
                return
            await deferLater(self._talk.reactor, 0.1, lambda: None)

    def close(self) -> Deferred[Any]:
        for loop in self._loops:
            loop.stop()
        clients, self._clients = self._clients, []
        return DeferredList([client.close() for client in clients], consumeErrors=True)
