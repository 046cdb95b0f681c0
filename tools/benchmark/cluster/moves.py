"""
Sessions that move: one with an empty queue, a storm onto two of three nodes, and a rolling restart.
"""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from statistics import median
from typing import Any

from benchmark.cluster.nodes import DOMAIN, BenchCluster, BenchNode
from benchmark.load.frames import compact

BAR_MILLIS = 50.0
ANSWER_SECONDS = 60.0
BACK_SECONDS = 1.0  # within which a client comes back, at a random time
AT_ONCE = 200  # sessions that are opened at a time

Figures = dict[str, Any]


class Mover(asyncio.Protocol):
    """
    A client with one session, by lines, which may come back at any node.

    `renewed` counts the epochs that ended, `took` has the seconds of each answer to `re-open`. With `nodes`
    it comes back by itself, at one of those, whenever it loses its connection.
    """

    def __init__(self, name: str, nodes: Sequence[BenchNode] = ()) -> None:
        self.runtime = f"runtime://{DOMAIN}/{name}"
        self.renewed = self.tries = 0
        self.took: list[float] = []
        self.nodes = list(nodes)
        self._token = self._epoch = ""
        self._rest = b""
        self._answer: asyncio.Future[dict[str, Any]] | None = None
        self._transport: asyncio.Transport | None = None
        self._coming: asyncio.Task[None] | None = None
        self.is_back = False

    async def open(self, node: BenchNode) -> None:
        """
        Open the session, or come back to it, at that node.
        """
        loop = asyncio.get_running_loop()
        self._rest, self.is_back = b"", False
        began = time.perf_counter()
        await loop.create_connection(lambda: self, "127.0.0.1", node.line_port)
        self._answer = loop.create_future()
        resume: Any = {"epoch": self._epoch, "received": 0} if self._token else True
        from_ = f"{self.runtime}/{self._token}" if self._token else self.runtime
        kind = "re-open" if self._token else "open"
        request = {"id": 1, "type": kind, "from": from_, "to": "mn:/session", "body": {"resume": resume}}
        assert self._transport is not None
        self._transport.write(compact(request) + b"\n")
        body = (await asyncio.wait_for(self._answer, ANSWER_SECONDS))["body"]
        if body["code"] != 200:
            raise OSError(str(body))
        if self._token:
            self.took.append(time.perf_counter() - began)
            self.renewed += body["resume"]["epoch"] != self._epoch
        self._token = body.get("runtimeToken", self._token)
        self._epoch = body["resume"]["epoch"]
        self.is_back = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if message["type"] == "response" and self._answer is not None and not self._answer.done():
                self._answer.set_result(message)

    def connection_lost(self, why: Exception | None) -> None:
        self.is_back = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError())
        if self.nodes and (self._coming is None or self._coming.done()):
            self._coming = asyncio.get_running_loop().create_task(self._come_back())

    async def _come_back(self) -> None:
        while self.nodes and not self.is_back:
            await asyncio.sleep(random.uniform(0, BACK_SECONDS))
            self.tries += 1
            with suppress(OSError, TimeoutError):
                await self.open(random.choice(self.nodes))

    def lose(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        self.nodes = []
        self.lose()


async def move(cluster: BenchCluster, times: int) -> Figures:
    """
    Milliseconds of `re-open` with an empty queue, at the node that has the session and at another one.
    """
    found: dict[str, list[float]] = {"here": [], "elsewhere": []}
    renewed = 0
    one, two, _ = cluster.nodes
    for number in range(times):
        mover = Mover(f"mover{number}")
        await mover.open(one)
        mover.lose()
        await mover.open(one)
        mover.lose()
        await mover.open(two)
        mover.close()
        found["here"].append(mover.took[0] * 1000)
        found["elsewhere"].append(mover.took[1] * 1000)
        renewed += mover.renewed
    return {
        **{name: median(values) for name, values in found.items()},
        "most": max(found["elsewhere"]),
        "renewed": renewed,
    }


async def _crowd(cluster: BenchCluster, name: str, number: int) -> list[Mover]:
    """
    So many sessions, spread over all nodes.
    """
    movers = [Mover(f"{name}{each}") for each in range(number)]
    for at in range(0, number, AT_ONCE):
        some = movers[at : at + AT_ONCE]
        await asyncio.gather(*(mover.open(cluster.nodes[each % 3]) for each, mover in enumerate(some, at)))
    return movers


async def _all_back(movers: Sequence[Mover], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if all(mover.is_back for mover in movers):
            return True
        await asyncio.sleep(0.1)
    return False


def _figures(movers: Sequence[Mover], seconds: float, is_whole: bool) -> Figures:
    took = sorted(each for mover in movers for each in mover.took)
    return {
        "sessions": len(movers),
        "seconds": seconds,
        "is_whole": is_whole,
        "renewed": sum(mover.renewed for mover in movers),
        "tries": sum(mover.tries for mover in movers),
        "median": median(took) if took else 0.0,
        "p99": took[len(took) * 99 // 100] if took else 0.0,
    }


async def storm(cluster: BenchCluster, number: int) -> Figures:
    """
    One of three nodes is killed, and all clients lose their connections at once and come back at the others.
    """
    movers = await _crowd(cluster, "storm", number)
    one, two, three = cluster.nodes
    began = time.monotonic()
    for mover in movers:
        mover.nodes = [one, two]
    for number, mover in enumerate(movers):
        if cluster.nodes[number % 3] is not three:
            mover.lose()
    await asyncio.to_thread(three.kill)
    is_whole = await _all_back(movers, 300.0)
    found = _figures(movers, time.monotonic() - began, is_whole)
    for mover in movers:
        mover.close()
    await asyncio.to_thread(three.start)
    while not await asyncio.to_thread(cluster.is_whole):
        await asyncio.sleep(0.5)
    return found


async def rolling_restart(cluster: BenchCluster, number: int) -> Figures:
    """
    SIGTERM to each node, and its next start, in turn; its clients come back at any node.
    """
    movers = await _crowd(cluster, "rolling", number)
    for mover in movers:
        mover.nodes = list(cluster.nodes)
    began = time.monotonic()
    is_whole = True
    for node in cluster.nodes:
        await asyncio.to_thread(node.stop)
        await asyncio.to_thread(node.start)
        while not await asyncio.to_thread(cluster.is_whole):
            await asyncio.sleep(0.5)
        is_whole &= await _all_back(movers, 120.0)
    found = _figures(movers, time.monotonic() - began, is_whole)
    for mover in movers:
        mover.close()
    return found


def rows(found: Figures) -> list[tuple[str, str, str, str]]:
    """
    The figures of moves as rows of the table.
    """
    one = found["move"]
    text = f"{one['here']:.1f} and {one['elsewhere']:.1f} ms, at most {one['most']:.1f}"
    is_met = "met" if one["elsewhere"] < BAR_MILLIS and not one["renewed"] else "missed"
    made = [("`re-open` where the session is, and a move with an empty queue", text, "50 ms", is_met)]
    for name, told in (("storm", "a storm onto two of three nodes"), ("rolling", "a rolling restart")):
        if name in found:
            each = found[name]
            text = (
                f"{each['seconds']:.1f} s, {'all' if each['is_whole'] else 'not all'} back; an answer took "
                f"{each['median'] * 1000:.0f} ms, p99 {each['p99'] * 1000:.0f} ms; "
                f"{each['renewed']:,} epochs began anew"
            )
            made.append((f"{each['sessions']:,} sessions, {told}", text, "", ""))
    return made
