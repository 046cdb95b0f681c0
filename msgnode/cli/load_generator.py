"""
The load of `msgnode bench`: senders, receivers, and how many messages are under way.
"""

import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import click
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.task import LoopingCall, deferLater
from twisted.python.failure import Failure

from msgnode.cli.connection import NodeConnection
from msgnode.client import Client, Message, Refused

WIDTH = 30  # characters of the progress bar
WARM = 0.5  # seconds before what counts
AGAIN = 1.0  # seconds after which one goes on where all that was under way was refused


class Measured(NamedTuple):
    """
    The result of one measurement.

    `cores` is what this process used of one, `delays` are in seconds and sorted.
    """

    arrived: int
    seconds: float
    cores: float
    delays: list[float]
    lost: int
    refused: Counter[str]  # by code and words of the node


class Loop:
    """
    A sender and what it sends to; at most `window` messages are under way.

    `later` calls a function after so many seconds.
    """

    def __init__(
        self,
        ask: Callable[[], object],
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
        self._sent: deque[float] = deque()
        self._left: deque[int] = deque()
        self._running = True

    def start(self) -> None:
        for _ in range(self._window):
            self._send()

    def stop(self) -> None:
        self._running = False

    @property
    def under_way(self) -> int:
        return sum(self._left)

    def came(self, _: Any = None) -> None:
        """
        One arrived; when the oldest has arrived everywhere, the next is sent.
        """
        self.arrived += 1
        if not self._left:
            return  # it was given up
        self._left[0] -= 1
        if self._left[0]:
            return
        self._left.popleft()
        self.delays.append(time.perf_counter() - self._sent.popleft())
        if self._running:
            self._send()

    def refused(self, code: int, text: str) -> None:
        """
        The node took not this one: fewer are under way from now on.

        It closes the connection of who does not heed many of these.
        """
        self.refusals[f"{code} {text}"[:200]] += 1
        if self._left:
            self._left.pop()
            self._sent.pop()
            if not self._left:
                self._later(AGAIN, self._again)

    def failed(self, why: Failure) -> None:
        """
        A request was not answered as it should be.
        """
        if isinstance(why.value, Refused):
            self.refused(why.value.code, why.value.text)

    def _again(self) -> None:
        if self._running:
            self._send()

    def _send(self) -> None:
        self._sent.append(time.perf_counter())
        self._left.append(self._receivers)
        self._ask()


class Load:
    """
    The clients, and what they did.
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
            loop = Loop(
                lambda: sender.request(address, self._body).addCallbacks(loop.came, loop.failed),
                self._window,
                1,
                later,
            )
        else:
            # An update would be refused without a word.
            loop = Loop(
                lambda: sender.publish(address, self._body, type="event"),
                self._window,
                len(receivers),
                later,
            )
            for receiver in receivers:
                await receiver.subscribe(address, loop.came)
        self._by_sender[sender.runtime] = loop
        self._loops.append(loop)

    def _heard(self, message: Message) -> None:
        """
        What the node says to a sender whose message it did not take.
        """
        loop = self._by_sender.get(message.to)
        if loop is not None and message.type == "response":
            loop.refused(message.body.get("code", 0), message.body.get("desc", ""))

    async def run(self, seconds: float) -> Measured:
        """
        What happened in so many seconds.
        """
        talk = self._talk
        for loop in self._loops:
            loop.start()
        await deferLater(talk.reactor, WARM, lambda: None)
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
        await self.close()
        return Measured(arrived, took, busy, delays, lost, refused)

    def _arrived(self) -> int:
        return sum(loop.arrived for loop in self._loops)

    async def _count_down(self, seconds: float) -> None:
        """
        Let it run, with a bar on a terminal.
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
