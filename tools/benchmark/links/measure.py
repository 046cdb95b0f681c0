"""
The measurements of links: three nodes in a chain, beside one node without links, in turn.

Both run Python alone, because that is what is compared: the compiled data plane carries no message that
leaves a node.
"""

import asyncio
import os
import re
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from soaking.peers.domain_node import Network, chain
from soaking.peers.ports import free_port
from soaking.peers.twistd_process import TwistdProcess
from soaking.progress import Stall, wait_until

from benchmark.links.line_client import LineClient, Pair

PATIENCE_SECONDS = 90.0
PAIRS, WINDOW, SIZE = 8, 64, 100
SUBSCRIBERS, ADDRESSES = 200, 5  # sessions, and what each is subscribed to
LOOK_SECONDS = 0.02

Figures = dict[str, Any]


class Bench:
    """
    One node and a chain of three, which stay for all rounds.
    """

    def __init__(self) -> None:
        os.environ["MSGNODE_NATIVE"] = "0"
        self._directory = Path(tempfile.mkdtemp(prefix="bench-links-"))
        self.ports = {kind: free_port() for kind in ("line", "admin")}
        listen = [f"tcp:{self.ports[kind]}:interface=127.0.0.1" for kind in ("line", "admin")]
        options = ["--state", "state", "--traffic", "traffic", "--lines", listen[0], "--admin", listen[1]]
        (self._directory / "alone").mkdir()
        self.alone = TwistdProcess(self._directory / "alone", options, self.ports["admin"])
        self.network = Network(self._directory, chain("abc", cost=10))
        self._count = 0

    async def start(self) -> None:
        await asyncio.gather(asyncio.to_thread(self.alone.start), self.network.start())

        def is_linked() -> bool:
            return all(
                peer["reachable"]
                for node in self.network.nodes.values()
                for peer in node.live()["peers"].values()  # type: ignore[attr-defined]
            )

        if not await wait_until(is_linked, Stall(lambda: None, PATIENCE_SECONDS), 1.0):
            raise RuntimeError("the nodes are not linked")

    def stop(self) -> None:
        self.alone.stop()
        self.network.leave()
        shutil.rmtree(self._directory, ignore_errors=True)

    async def pairs(self, ends: str, pairs: int, window: int, size: int) -> list[Pair]:
        """
        Pairs between the domains of these two letters; of an empty one, both are at the node without links.
        """
        self._count += 1
        found = []
        for number in range(pairs):
            name = f"bench{self._count}-{number}"
            sender, receiver = [await self._open(end, f"{name}-{n}") for n, end in enumerate(ends or "..")]
            await sender.bind([sender.hyperty])
            found.append(Pair(sender, receiver, window, size))
        return found

    async def _open(self, letter: str, name: str) -> LineClient:
        if letter == ".":
            return await LineClient.open(self.ports["line"], "localhost", name)
        node = self.network.nodes[letter]
        return await LineClient.open(node.line_port, node.domain, name)

    async def load(self, ends: str, seconds: float, pairs: int = PAIRS, window: int = WINDOW) -> Figures:
        """
        Microseconds of CPU time for each message, by node, and messages a second.
        """
        running = await self.pairs(ends, pairs, window, SIZE)
        processes = {letter: node for letter, node in self.network.nodes.items() if ends}
        if not ends:
            processes = {"alone": self.alone}  # type: ignore[dict-item]
        for pair in running:
            pair.start()
        await asyncio.sleep(1)  # warm
        before = {name: process.cpu_seconds() for name, process in processes.items()}
        arrived, began = sum(pair.arrived for pair in running), time.perf_counter()
        for pair in running:
            pair.delays.clear()
        await asyncio.sleep(seconds)
        count = sum(pair.arrived for pair in running) - arrived
        lasted = time.perf_counter() - began
        used = {name: process.cpu_seconds() - before[name] for name, process in processes.items()}
        delays = [delay for pair in running for delay in pair.delays]
        for pair in running:
            pair.stop()
        still = Stall(lambda: sum(pair.arrived for pair in running), 10.0)
        await wait_until(lambda: all(pair.sent == pair.arrived for pair in running), still)
        if lost := sum(pair.sent - pair.arrived for pair in running):
            raise RuntimeError(f"{lost} messages between {ends or 'clients of one node'} did not come")
        return {
            "rate": count / lasted,
            "micros": {name: seconds * 1e6 / count for name, seconds in used.items()},
            "delay_millis": median(delays) * 1000,
        }

    async def subscriptions(self) -> tuple[float, float]:
        """
        Seconds in which subscriptions in another domain are made again, after its node lost all memory: from
        when it is reached again until it has all of them, and nothing is under way. And the CPU time that
        both nodes have used for it, with the /metrics that are read meanwhile.
        """
        a, b = self.network.nodes["a"], self.network.nodes["b"]
        clients = [await self._open("a", f"observer{number}") for number in range(SUBSCRIBERS)]
        for number, client in enumerate(clients):
            topics = [f"comm://b.example/{number}-{each}/changes" for each in range(ADDRESSES)]
            if (code := await client.bind(topics)) != 200:
                raise RuntimeError(f"a subscription was answered {code}")
        await asyncio.to_thread(b.kill)
        shutil.rmtree(b.directory / "state")
        await asyncio.to_thread(b.start)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not reachable(await asyncio.to_thread(a.live), "b.example"):
            await asyncio.sleep(LOOK_SECONDS)
            if time.monotonic() > deadline:
                raise RuntimeError("the node that was started again is not reached")
        began, before = time.monotonic(), a.cpu_seconds() + b.cpu_seconds()
        while not await asyncio.to_thread(self._are_made):
            await asyncio.sleep(LOOK_SECONDS)
            if time.monotonic() > deadline:
                raise RuntimeError("the subscriptions were not made again")
        ended, used = time.monotonic(), a.cpu_seconds() + b.cpu_seconds() - before
        for client in clients:
            client.close()
        return ended - began, used

    def _are_made(self) -> bool:
        """
        Does the second node have all subscriptions of the first one, and are they acknowledged and answered?
        """
        a, b = (self.network.nodes[letter].ports["admin"] for letter in "ab")
        if figure(b, "msgnode_grants", "a.example") < SUBSCRIBERS * ADDRESSES:
            return False
        name = "msgnode_stream_undelivered_messages"
        return not figure(a, name, "b.example") and not figure(b, name, "a.example")


def reachable(live: Figures, peer: str) -> bool:
    return bool(live["peers"][peer]["reachable"])


def figure(port: int, name: str, peer: str) -> int:
    """
    A figure about a domain, from the node's metrics.
    """
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS) as answer:
        text = answer.read().decode()
    line = re.escape(f'{name}{{peer="{peer}"}}')
    found = re.search(rf"^{line} (\S+)$", text, re.MULTILINE)
    return 0 if found is None else int(float(found[1]))


async def measure(rounds: int, seconds: float) -> list[Figures]:
    """
    The figures of each round.
    """
    bench = Bench()
    try:
        await bench.start()
        found: list[Figures] = []
        for _ in range(rounds):
            loads = {ends: await bench.load(ends, seconds) for ends in ("", "ab", "ac")}
            single = {ends: await bench.load(ends, seconds, 1, 1) for ends in ("", "ab", "ac")}
            found.append({"loads": loads, "single": single})
        return [*found, {"subscriptions": await bench.subscriptions()}]
    finally:
        bench.stop()


def rows(found: Sequence[Figures]) -> list[tuple[str, str, str, str]]:
    """
    What was measured, the figure, the bar, and whether it is met.
    """
    *rounds, last = found

    def middle(ends: str, node: str) -> float:
        return float(median(each["loads"][ends]["micros"][node] for each in rounds))

    def ratio(ends: str, node: str) -> float:
        alone = [each["loads"][""]["micros"]["alone"] for each in rounds]
        used = [each["loads"][ends]["micros"][node] for each in rounds]
        return float(median(one / other for one, other in zip(used, alone, strict=True)))

    def delay(ends: str) -> float:
        return float(median(each["single"][ends]["delay_millis"] for each in rounds))

    made = [("one node, both clients", f"{middle('', 'alone'):.0f} µs", "", "")]
    for name, ends, node, bar in (
        ("source node", "ab", "a", 2.5),
        ("home node", "ab", "b", 2.5),
        ("source node, over a third", "ac", "a", 2.5),
        ("transit node", "ac", "b", 1.0),
        ("home node, over a third", "ac", "c", 2.5),
    ):
        found_ratio = ratio(ends, node)
        told = f"{middle(ends, node):.0f} µs, {found_ratio:.2f} x"
        made.append((name, told, f"{bar} x", "met" if found_ratio <= bar else "missed"))
    for name, ends in (("one node", ""), ("two nodes", "ab"), ("three nodes", "ac")):
        rate = median(each["loads"][ends]["rate"] for each in rounds)
        made.append((f"messages a second, {name}", f"{rate:,.0f}", "", ""))
    direct, first, second = delay(""), delay("ab"), delay("ac")
    made.append(("delay within one node, window 1", f"{direct:.2f} ms", "", ""))
    made.append(("delay added by the first hop", f"{first - direct:.2f} ms", "", ""))
    made.append(("delay added by a transit hop", f"{second - first:.2f} ms", "", ""))
    again, used = last["subscriptions"]
    name = f"{SUBSCRIBERS * ADDRESSES:,} subscriptions made again"
    made.append((name, f"{again:.2f} s", "1 s", "met" if again < 1 else "missed"))
    made.append(("CPU time of both nodes for that", f"{used:.2f} s", "", ""))
    return made


def text(found: Sequence[Figures]) -> str:
    """
    The rows as a table in Markdown.
    """
    head = ("CPU time for each message, 100 B, 8 pairs, window 64", "measured", "bar", "")
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ("---",) * 4, *rows(found)))
