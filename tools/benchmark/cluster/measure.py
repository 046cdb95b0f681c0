"""
What a message costs at the nodes of a cluster, beside one node; the throughput of two nodes, and fan-out over
two.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from soaking.progress import Stall, wait_until

from benchmark.cluster import moves
from benchmark.cluster.nodes import DOMAIN, BenchCluster, BenchNode
from benchmark.links.line_client import LineClient, Pair
from benchmark.load.frames import message

PAIRS, WINDOW, SIZE = 8, 64, 100
SUBSCRIBERS, IN_FLIGHT = 1000, 16
WARM_UP_SECONDS = 1.0
BAR = 2.5  # times the CPU time of one node, at each end

Figures = dict[str, Any]


class Bench:
    """
    The cluster and the node alone, which stay for all rounds.
    """

    def __init__(self, native: bool = False) -> None:
        self.cluster = BenchCluster(native)
        self._count = 0

    async def pairs(self, ends: Sequence[tuple[BenchNode, BenchNode]]) -> list[Pair]:
        """
        A pair for each of these, a sender at the first node and a receiver at the second.
        """
        found = []
        for one, other in ends:
            self._count += 1
            name = f"bench{self._count}"
            sender = await LineClient.open(one.line_port, DOMAIN, f"{name}-s")
            receiver = await LineClient.open(other.line_port, DOMAIN, f"{name}-r")
            await sender.bind([sender.hyperty])
            found.append(Pair(sender, receiver, self.window, SIZE))
        return found

    window = WINDOW

    async def load(
        self, ends: Sequence[tuple[BenchNode, BenchNode]], seconds: float, window: int = WINDOW
    ) -> Figures:
        """
        Messages a second, microseconds of CPU time for each by node, and the cores that this program used.
        """
        self.window = window
        running = await self.pairs(ends)
        nodes = {node.name: node for pair in ends for node in pair}
        for pair in running:
            pair.start()
        await asyncio.sleep(WARM_UP_SECONDS)
        for pair in running:
            pair.delays.clear()
        figures = await _measured(nodes, lambda: sum(pair.arrived for pair in running), seconds)
        figures["delay_millis"] = 1000 * median(delay for pair in running for delay in pair.delays)
        for pair in running:
            pair.stop()
        still = Stall(lambda: sum(pair.arrived for pair in running), 10.0)
        await wait_until(lambda: all(pair.sent == pair.arrived for pair in running), still)
        if lost := sum(pair.sent - pair.arrived for pair in running):
            raise RuntimeError(f"{lost} messages did not come")
        for pair in running:
            pair.close()
        return figures

    async def fanout(self, nodes: Sequence[BenchNode], seconds: float) -> Figures:
        """
        Deliveries a second of one publisher at the first node to SUBSCRIBERS, spread over all of them;
        microseconds of CPU time for each by node, and how many lines of the traffic log a publication made at
        the last one.
        """
        self._count += 1
        topic = f"comm://{DOMAIN}/topic{self._count}/changes"
        publisher = await LineClient.open(nodes[0].line_port, DOMAIN, f"publisher{self._count}")
        found = []
        for number in range(SUBSCRIBERS):
            node = nodes[number % len(nodes)]
            client = await LineClient.open(node.line_port, DOMAIN, f"subscriber{self._count}-{number}")
            await client.bind([topic])
            found.append(client)
        came = published = 0
        running = True
        letter = message(1, f"comm://{DOMAIN}/topic{self._count}", topic, SIZE) + b"\n"

        def publish() -> None:
            nonlocal published
            while running and published - came // SUBSCRIBERS < IN_FLIGHT:
                published += 1
                publisher.write(letter)

        def heard(count: int) -> None:
            nonlocal came
            came += count
            publish()

        for client in found:
            client.came = heard
        publish()
        await asyncio.sleep(WARM_UP_SECONDS)
        figures = await _measured({node.name: node for node in nodes}, lambda: came, seconds)
        running = False
        await wait_until(lambda: came >= published * SUBSCRIBERS, Stall(lambda: came, 10.0))
        if came != published * SUBSCRIBERS:
            raise RuntimeError(f"{came} deliveries of {published} publications to {SUBSCRIBERS}")
        for client in (*found, publisher):
            client.close()
        await asyncio.sleep(2)  # until the traffic log is written
        figures["lines"] = _lines(nodes[-1].directory / "traffic", topic) / published
        return figures


def _lines(traffic: Path, topic: str) -> int:
    """
    The number of lines of a traffic log about messages to an address.
    """
    needle = f'"to":"{topic}"'.encode()
    return sum(file.read_bytes().count(needle) for file in traffic.rglob("*") if file.is_file())


async def _measured(nodes: dict[str, BenchNode], counted: Callable[[], int], seconds: float) -> Figures:
    before = {name: node.cpu_seconds() for name, node in nodes.items()}
    own, came, began = time.process_time(), counted(), time.perf_counter()
    await asyncio.sleep(seconds)
    lasted = time.perf_counter() - began
    count = max(1, counted() - came)
    return {
        "rate": count / lasted,
        "generator_cores": (time.process_time() - own) / lasted,
        "micros": {name: (node.cpu_seconds() - before[name]) * 1e6 / count for name, node in nodes.items()},
    }


async def measure(rounds: int, seconds: float, sessions: int) -> list[Figures]:
    """
    The figures of each round; the last has those of moves, with so many sessions in a storm (0: without).
    """
    bench = Bench()
    try:
        await bench.cluster.start()
        alone, (one, two, _) = bench.cluster.alone, bench.cluster.nodes
        found: list[Figures] = []
        for _ in range(rounds):
            found.append(
                {
                    "alone": await bench.load([(alone, alone)] * PAIRS, seconds),
                    "across": await bench.load([(one, two)] * PAIRS, seconds),
                    "halves": await bench.load([(one, one), (two, two)] * (PAIRS // 2), seconds),
                    "fan-out alone": await bench.fanout([alone], seconds),
                    "fan-out of two": await bench.fanout([one, two], seconds),
                    "single alone": await bench.load([(alone, alone)], seconds, 1),
                    "single across": await bench.load([(one, two)], seconds, 1),
                }
            )
        last: Figures = {"move": await moves.move(bench.cluster, 60)}
        if sessions:
            last["storm"] = await moves.storm(bench.cluster, sessions)
            last["rolling"] = await moves.rolling_restart(bench.cluster, sessions)
        return [*found, last]
    finally:
        bench.cluster.stop()


def rows(found: Sequence[Figures]) -> list[tuple[str, str, str, str]]:
    """
    What was measured, the figure, the bar, and whether it is met.
    """
    *rounds, last = found

    def middle(name: str, key: str) -> float:
        return float(median(each[name][key] for each in rounds))

    def micros(name: str, node: str) -> float:
        return float(median(each[name]["micros"][node] for each in rounds))

    def ratio(name: str, node: str, beside: str) -> float:
        return float(median(each[name]["micros"][node] / each[beside]["micros"]["alone"] for each in rounds))

    made = [("one node, both clients", f"{micros('alone', 'alone'):.1f} µs", "", "")]
    for told, node in (("the sender's node", "n1"), ("the recipient's node", "n2")):
        times = ratio("across", node, "alone")
        text = f"{micros('across', node):.1f} µs, {times:.2f} x"
        made.append((told, text, f"{BAR} x", "met" if times <= BAR else "missed"))
    for told, name in (
        ("one node", "alone"),
        ("two nodes, each its own pairs", "halves"),
        ("across", "across"),
    ):
        text = f"{middle(name, 'rate'):,.0f}; generator {middle(name, 'generator_cores'):.2f} of a core"
        made.append((f"messages a second, {told}", text, "", ""))
    gained = median(each["halves"]["rate"] / each["alone"]["rate"] for each in rounds)
    made.append(("two nodes to one, rate", f"{gained:.2f} x", "", ""))
    halves = micros("halves", "n1") + micros("halves", "n2")
    made.append(("CPU time of a message, two nodes, each its own pairs", f"{halves:.1f} µs", "", ""))
    for told, name in (("one node", "fan-out alone"), ("two nodes", "fan-out of two")):
        text = f"{middle(name, 'rate'):,.0f}; generator {middle(name, 'generator_cores'):.2f} of a core"
        made.append((f"fan-out to {SUBSCRIBERS:,}, deliveries a second, {told}", text, "", ""))
    both = micros("fan-out of two", "n1") + micros("fan-out of two", "n2")
    text = f"{both:.2f} µs, {micros('fan-out alone', 'alone'):.2f} µs"
    made.append(("CPU time of a delivery, both nodes, and one node", text, "", ""))
    made.append(
        ("copies of a publication to the other node", f"{middle('fan-out of two', 'lines'):.2f}", "1", "")
    )
    within, across = middle("single alone", "delay_millis"), middle("single across", "delay_millis")
    made.append(("delay within one node, and between two", f"{within:.2f} and {across:.2f} ms", "", ""))
    return [*made, *moves.rows(last)]


def text(found: Sequence[Figures]) -> str:
    """
    The rows as a table in Markdown.
    """
    head = ("what, with the compiled data plane off, 100 B", "measured", "bar", "")
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ("---",) * 4, *rows(found)))
