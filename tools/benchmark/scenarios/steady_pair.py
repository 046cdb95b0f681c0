"""
A pair that sends at a steady rate, whatever else happens, and remembers how long each message took.
"""

import asyncio
import time
from collections import deque
from typing import Any

from benchmark.load.clients import Client, connect_all
from benchmark.load.frames import message
from benchmark.scenarios.pairs import address

RATE = 100  # messages a second
PATIENCE = 5.0  # seconds for the last ones to arrive


class Victim:
    """
    Open loop: the next message leaves when it is due, not when the last has come.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job | {"run": job["run"] + "-victim"}
        self._due: deque[float] = deque()
        self._latencies: list[float] = []
        self.clients: list[Client] = []

    async def open(self) -> None:
        to = address(self._job, 0)
        self.clients = await connect_all(self._job, 2, [to])
        receiver, sender = self.clients
        receiver.inbox.receipt = self._arrived
        self._letter = sender.wire.frame(message(100, address(self._job, 1), to, 100))

    async def send(self, seconds: float) -> None:
        """
        Send for so long; cancelling ends it earlier.
        """
        write = self.clients[1].wire.write
        begin = time.perf_counter()
        for number in range(int(seconds * RATE)):
            due = begin + number / RATE
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            self._due.append(due)
            write(self._letter)

    async def missing(self) -> int:
        """
        How many never arrived.
        """
        end = time.perf_counter() + PATIENCE
        while self._due and time.perf_counter() < end:
            await asyncio.sleep(0.05)
        return len(self._due)

    def percentile(self, part: float) -> float | None:
        """
        The latency, in milliseconds, that this part of the messages does not exceed.
        """
        ordered = sorted(self._latencies)
        return ordered[min(int(len(ordered) * part), len(ordered) - 1)] * 1000 if ordered else None

    def _arrived(self, count: int) -> None:
        now = time.perf_counter()
        for _ in range(count):
            self._latencies.append(now - self._due.popleft())
