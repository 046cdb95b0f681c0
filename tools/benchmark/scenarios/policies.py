"""
What policies cost: messages through a node that has some, one decision, and compiling them.
"""

import asyncio
import threading
import time
from statistics import median
from typing import Any, cast

from benchmark.load.clients import NodeClient, connect_all
from benchmark.load.policy_corpus import corpus
from benchmark.report.stopwatch import drained, timed
from benchmark.scenarios.pairs import Pair, ended

COLD = 20_000  # addresses in turn; more than a node remembers outcomes of


class Cold(Pair):
    """
    A pair whose every message goes to another address.
    """

    def __init__(self, sender: Any, receiver: Any, letters: list[bytes], window: int) -> None:
        super().__init__(sender, receiver, letters[0], window)
        self._letters_in_turn = letters
        self._turn = 0

    def _send(self, count: int) -> None:
        self._in_flight.sent(count)
        self.sent += count
        letters, write = self._letters_in_turn, self._write
        for _ in range(count):
            self._turn = (self._turn + 1) % len(letters)
            write(letters[self._turn])


async def load(job: dict[str, Any]) -> dict[str, Any]:
    """
    Messages per second over pairs whose addresses the node has not just seen.
    """
    count = job["pairs"]
    clients = cast(list[NodeClient], await connect_all(job, 2 * count, []))
    receivers, senders = clients[:count], clients[count:]
    pairs = []
    for index, (sender, receiver) in enumerate(zip(senders, receivers, strict=True)):
        letters = [
            sender.letter(100 + index, f"{sender.runtime}/x", f"{receiver.runtime}/{number:05}", job["size"])
            for number in range(COLD // count)
        ]
        pairs.append(Cold(sender, receiver, letters, job["window"]))
    for pair in pairs:
        pair.start()
    result: dict[str, Any] = await timed(job, lambda: sum(pair.received for pair in pairs))
    for pair in pairs:
        pair.stop()
    result["lost"] = await drained(lambda: sum(pair.missing() for pair in pairs))
    return result | ended(clients)


async def decide(job: dict[str, Any]) -> dict[str, Any]:
    """
    Microseconds of one decision, the median, with a fresh message and all attributes it asks for.
    """
    from msgnode.policy.decision.context import Context
    from msgnode.policy.language.program import read
    from msgnode.protocol.message import decode

    program = read(corpus(job["policies"], body=True).encode())
    took = []
    for number in range(20_000):
        message = decode(
            b'{"id":%d,"type":"create","from":"hyperty://localhost/%d","to":"hyperty://localhost/x%d",'
            b'"body":{"value":1}}' % (number, number, number)
        )
        began = time.perf_counter_ns()
        decision = program.decide(Context(message, "in", domain="localhost"))
        took.append(time.perf_counter_ns() - began)
        assert decision.effect == "permit", decision
    return {"figure": median(took) / 1000, "errors": []}


async def lag(job: dict[str, Any]) -> dict[str, Any]:
    """
    Milliseconds an event loop runs late, at the worst, while policies are compiled beside it.
    """
    from msgnode.policy.administration.document_edit import load, run_beside_reactor

    files = (("bench.json", corpus(job["policies"], body=True)),)
    compiling = threading.Thread(target=run_beside_reactor, args=(load, files))
    worst = 0.0
    compiling.start() if job["compiles"] else None
    until = time.monotonic() + 0.5
    while compiling.is_alive() or time.monotonic() < until:
        due = time.monotonic() + 0.001
        await asyncio.sleep(0.001)
        worst = max(worst, time.monotonic() - due)
    return {"figure": worst * 1000, "errors": []}
