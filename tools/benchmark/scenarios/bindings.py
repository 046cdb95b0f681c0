"""
Point to point over many bindings: each message goes to one of them, picked at random.

The picks are made and framed before the clock starts, so a table of a million
costs the generator as much as one of a thousand.
"""

import random
from typing import Any

from benchmark.load.clients import Client, connect_all
from benchmark.report.stopwatch import drained, timed
from benchmark.scenarios.pairs import address, ended

RECEIVERS = 20  # sessions that share the bindings
IN_ONE_REQUEST = 1000  # addresses
PICKS = 200_000  # frames built beforehand, all senders together


class Senders:
    """
    One window shared by all: a receipt anywhere lets the next in turn send.

    Writes are each its own, or with `burst` joined, as in `pairs.Pair`.
    """

    def __init__(self, letters: list[tuple[Client, list[bytes]]], burst: bool) -> None:
        self.sent = 0
        self.received = 0
        self.running = True
        self._burst = burst
        self._turns = [(client.wire.write, frames) for client, frames in letters]
        self._next = [0] * len(letters)
        self._turn = 0

    def receipt(self, count: int) -> None:
        self.received += count
        if self.running:
            self.send(count)

    def send(self, count: int) -> None:
        """
        Let the next sender send so many.
        """
        turn = self._turn
        self._turn = (turn + 1) % len(self._turns)
        write, frames = self._turns[turn]
        first = self._next[turn]
        if first + count > len(frames):
            first = 0
        self._next[turn] = first + count
        self.sent += count
        frames = frames[first : first + count]
        for frame in [b"".join(frames)] if self._burst else frames:
            write(frame)


async def load(job: dict[str, Any]) -> dict[str, Any]:
    """
    Messages per second from `pairs` senders to `bindings` addresses.
    """
    clients = await connect_all(job, RECEIVERS + job["pairs"])
    receivers, senders = clients[:RECEIVERS], clients[RECEIVERS:]
    await _bind(job, receivers)
    turns = Senders(
        [(sender, _letters(job, sender, number)) for number, sender in enumerate(senders)], job["burst"]
    )
    for receiver in receivers:
        receiver.inbox.receipt = turns.receipt
    for _ in senders:
        turns.send(job["window"])
    result: dict[str, Any] = await timed(job, lambda: turns.received)
    turns.running = False
    result["lost"] = await drained(lambda: turns.sent - turns.received)
    return result | ended(clients)


async def _bind(job: dict[str, Any], receivers: list[Client]) -> None:
    share = job["bindings"] // RECEIVERS
    for number, receiver in enumerate(receivers):
        start = number * share
        for first in range(start, start + share, IN_ONE_REQUEST):
            last = min(first + IN_ONE_REQUEST, start + share)
            await receiver.bind([address(job, index) for index in range(first, last)])


def _letters(job: dict[str, Any], sender: Client, number: int) -> list[bytes]:
    chance = random.Random(number)
    own = f"hyperty://localhost/{job['run']}-from-{number}"
    picks = (chance.randrange(job["bindings"]) for _ in range(PICKS // job["pairs"]))
    return [sender.letter(100 + number, own, address(job, pick), job["size"]) for pick in picks]
