"""
A run with several nodes of one domain, and its figures.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from soaking.cluster.faults import Faults
from soaking.cluster.load import ClusterLoad
from soaking.peers.member_node import Balancer, ClusterNetwork, MemberNode
from soaking.progress import Stall, wait_until

MEMBERS_OF_A_NODE = 3
WARM_UP_SECONDS = 2.0
QUIET_SECONDS = 30.0  # in which the nodes must agree about who holds which session
LONG_STILL, SHORT_STILL = 60.0, 16.0  # seconds that a node stands still, by the length of the run
LONG_RUN_MINUTES = 5
MAX_GROWTH = 96 * 1024 * 1024  # bytes by which a node may have grown
MAX_SHOWN = 10
PROMISES = (
    "not all came",
    "lost",
    "doubled",
    "out of order",
    "silent",
    "told twice",
    "strange messages",
    "epochs lost",
    "told as missed, beyond those",
    "sessions held twice",
    "sessions held by nobody",
    "did not settle after",
    "memory grown too much",
    "errors of the nodes",
    "did not stop by SIGTERM",
)

Figures = dict[str, Any]


async def run(options: argparse.Namespace) -> Figures:
    """
    The figures of a run; `broken promises` names those that must be 0.
    """
    network = ClusterNetwork(Path(tempfile.mkdtemp(prefix="soak-")), options.cluster)
    balancer = Balancer(network.nodes, random.Random(options.seed), options.sticky)
    members = MEMBERS_OF_A_NODE * options.cluster
    load = ClusterLoad(network.nodes, balancer, members, options.rate, options.seed)
    keep = None
    try:
        await network.start()
        await load.start()
        await asyncio.sleep(WARM_UP_SECONDS)
        peak = Peak(network.nodes)
        watching = asyncio.create_task(peak.watch())
        still = LONG_STILL if options.minutes >= LONG_RUN_MINUTES else SHORT_STILL
        faults = Faults(network, balancer, load, options.seed, still)
        began = time.monotonic()
        await faults.run(options.minutes * 60, options.only)
        lasted = time.monotonic() - began
        all_came = await load.drain()
        watching.cancel()
        figures = {"seed": options.seed, "nodes": options.cluster, "clients": members}
        figures |= {"seconds": round(lasted, 1), **_of_run(load, faults), "not all came": not all_came}
        figures |= await _of_sessions(network, load)
        figures |= peak.figures()
        await load.stop()
        await network.stop()
        figures |= _of_nodes(network.nodes)
        figures["broken promises"] = [name for name in PROMISES if figures[name]]
        if figures["broken promises"]:
            keep = options.keep
            _tell(network, load, faults)
        return figures
    finally:
        await load.stop()
        network.leave(keep)


def _of_run(load: ClusterLoad, faults: Faults) -> Figures:
    members, verdict = load.clients, load.verdict()
    twice, late = load.excused()
    # A request waits for 15 seconds at most, and then its recipient is told that it has missed something.
    stale = sum(number for (kind, code), number in load.codes.items() if kind == "answer" and code >= 400)
    return {
        "faults": dict(faults.done),
        "did not settle after": faults.unsettled,
        "messages sent": sum(sum(member.sent.values()) for member in members),
        "messages delivered": sum(len(numbers) for member in members for numbers in member.heard.values()),
        "requests": sum(n for member in members for (_, kind), n in member.sent.items() if kind == "request"),
        "receipts asked for": sum(len(member.asked_for) for member in members),
        "told": {f"{kind} {code}": number for (kind, code), number in sorted(load.codes.items())},
        "connections made": sum(member.client.connected for member in members),
        "epochs begun anew after a harsh fault": sum(member.client.doubted for member in members),
        "came twice, sent again in such an epoch": twice,
        "came late, from a node that did not run": late,
        "lost": verdict.lost,
        "doubled": verdict.doubled,
        "out of order": verdict.disordered,
        "answers that ended after a minute at a node that did not run": sum(
            member.stale_answers() for member in members
        ),
        "silent": sum(member.silent() for member in members),
        "told twice": sum(member.told_twice() for member in members),
        "strange messages": sum(len(member.strange) for member in members),
        "epochs lost": sum(member.client.restarted for member in members),
        "requests that went stale": stale,
        "told as missed, beyond those": max(0, sum(member.client.missed for member in members) - stale),
    }


async def _of_sessions(network: ClusterNetwork, load: ClusterLoad) -> Figures:
    """
    The sessions that all nodes hold, once they have had time to compare.
    """
    runtimes = {member.runtime for member in load.clients}
    held: Counter[str] = Counter()

    def is_one_each() -> bool:
        held.clear()
        for node in network.nodes:
            held.update(node.sessions() & runtimes)
        return set(held.values()) == {1} and len(held) == len(runtimes)

    await wait_until(is_one_each, Stall(lambda: None, QUIET_SECONDS), every=0.5)
    return {
        "sessions held twice": sum(times - 1 for times in held.values()),
        "sessions held by nobody": len(runtimes - held.keys()),
    }


def _of_nodes(nodes: list[MemberNode]) -> Figures:
    return {
        "kills": sum(len(node.kills) for node in nodes),
        "errors of the nodes": sum(len(node.errors()) for node in nodes),
        "did not stop by SIGTERM": sum(node.hung for node in nodes),
    }


class Peak:
    """
    The memory of each node now, and the most that it had in any of its lives.
    """

    def __init__(self, nodes: list[MemberNode]) -> None:
        self._nodes = nodes
        self._before = {node.name: node.memory() for node in nodes}
        self._most = dict(self._before)

    async def watch(self) -> None:
        while True:
            for node in self._nodes:
                with suppress(OSError, ValueError):  # it is not alive
                    self._most[node.name] = max(self._most[node.name], node.memory())
            await asyncio.sleep(0.5)

    def figures(self) -> Figures:
        return {
            "memory before, MB": {name: round(size / 1e6) for name, size in self._before.items()},
            "memory at most, MB": {name: round(size / 1e6) for name, size in self._most.items()},
            "memory grown too much": any(
                self._most[name] > before + MAX_GROWTH for name, before in self._before.items()
            ),
        }


def _tell(network: ClusterNetwork, load: ClusterLoad, faults: Faults) -> None:
    """
    Print what is known about what broke, and write down the rest beside the nodes' files.
    """
    for name, began, ended in faults.history:
        print(f"{began:.1f} {name} {ended - began:.1f} s", file=sys.stderr)
    records: dict[str, Any] = {
        "faults": faults.history,
        "outages": {n.name: n.outages for n in network.nodes},
    }
    for member in load.clients:
        silent = sorted(member.asked_for - member.receipts.keys())
        asked = ((to, n) for (to, kind), n in member.sent.items() if kind == "request")
        unanswered = [
            (to, n) for to, all_of in asked for n in range(1, all_of + 1) if (to, n) not in member.answers
        ]
        wrong = {
            f"{other.runtime} {kind}": numbers._asdict()
            for other in member.far
            for kind, numbers in member.wrong_from(other).items()
            if any(numbers)
        }
        lost = [note for note in member.client.history if note.get("wrong")]
        twice = member.twice()
        found: dict[str, Any] = {"no receipt": silent, "no answer": unanswered, "told twice": twice}
        found |= {"wrong from": wrong, "connection": lost}
        for what, these in found.items():
            if these:
                some = list(these.items() if isinstance(these, dict) else these)[:MAX_SHOWN]
                print(f"{member.runtime}: {what}: {len(these)}: {some}", file=sys.stderr)
        records[member.runtime] = {
            **found,
            "heard": {f"{by} {kind}": numbers for (by, kind), numbers in member.heard.items()},
            "heard when": {f"{by} {kind}": times for (by, kind), times in member.heard_when.items()},
            "sent at": member.sent_at,
            "came when": member.came_when,
            "history": member.client.history,
            "strange": member.strange,
        }
    for node in network.nodes:
        for line in node.errors()[:MAX_SHOWN]:
            print(f"{node.name}: {line}", file=sys.stderr)
    (network.nodes[0].directory / "records.json").write_text(json.dumps(records, indent=1, default=str))
