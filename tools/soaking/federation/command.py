"""
A run with nodes of several domains, and its figures.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from soaking.federation.faults import Faults
from soaking.federation.load import Load
from soaking.peers.domain_node import Network, chain

MEMBERS = 2  # in each domain
WARM_UP_SECONDS = 2.0
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
    "told as missed",
    "errors of the nodes",
    "did not stop by SIGTERM",
)

Figures = dict[str, Any]


async def run(options: argparse.Namespace) -> Figures:
    """
    The figures of a run; `broken promises` names those that must be 0.
    """
    letters = ascii_lowercase[: options.federation]
    network = Network(Path(tempfile.mkdtemp(prefix="soak-")), chain(letters))
    load = Load(network.nodes, MEMBERS, options.rate, options.seed)
    keep = None
    try:
        await network.start()
        await load.start()
        await asyncio.sleep(WARM_UP_SECONDS)
        faults = Faults(network, load, options.seed)
        began = time.monotonic()
        await faults.run(options.minutes * 60)
        lasted = time.monotonic() - began
        all_came = await load.drain()
        figures = {"seed": options.seed, "domains": len(letters), "seconds": round(lasted, 1)}
        figures |= _of_run(network, load, faults)
        figures["not all came"] = not all_came
        await load.stop()
        await network.stop()
        figures |= _of_nodes(network)
        figures["broken promises"] = [name for name in PROMISES if figures[name]]
        if figures["broken promises"]:
            keep = options.keep
            _tell(network, load, faults)
        return figures
    finally:
        await load.stop()
        network.leave(keep)


def _of_run(network: Network, load: Load, faults: Faults) -> Figures:
    members, verdict = load.members, load.verdict()
    return {
        "faults": dict(faults.done),
        "kills": sum(len(node.kills) for node in network.nodes.values()),
        "messages sent": sum(sum(member.sent.values()) for member in members),
        "messages delivered": sum(len(numbers) for member in members for numbers in member.heard.values()),
        "requests": sum(n for member in members for (_, kind), n in member.sent.items() if kind == "request"),
        "receipts asked for": sum(len(member.asked_for) for member in members),
        "told": {f"{kind} {code}": number for (kind, code), number in sorted(load.codes.items())},
        "connections made": sum(member.client.connected for member in members),
        "lost": verdict.lost,
        "doubled": verdict.doubled,
        "out of order": verdict.disordered,
        "silent": sum(member.silent() for member in members),
        "told twice": sum(member.told_twice() for member in members),
        "strange messages": sum(len(member.strange) for member in members),
        "epochs lost": sum(member.client.restarted for member in members),
        "told as missed": sum(member.client.missed for member in members),
        "memory, MB": {each.letter: round(each.memory() / 1e6) for each in network.nodes.values()},
    }


def _of_nodes(network: Network) -> Figures:
    return {
        "errors of the nodes": sum(len(node.errors()) for node in network.nodes.values()),
        "did not stop by SIGTERM": sum(node.hung for node in network.nodes.values()),
    }


def _tell(network: Network, load: Load, faults: Faults) -> None:
    """
    Print what is known about what broke, and write down the rest beside the nodes' files.
    """
    records: dict[str, Any] = {"faults": faults.history}
    for member in load.members:
        silent = sorted(member.asked_for - member.receipts.keys())
        asked = ((to, n) for (to, kind), n in member.sent.items() if kind == "request")
        unanswered = [
            (to, n) for to, all_of in asked for n in range(1, all_of + 1) if (to, n) not in member.answers
        ]
        pairs = {other.runtime: member.verdict_from(other) for other in member.far}
        wrong = {runtime: tuple(verdict) for runtime, verdict in pairs.items() if sum(verdict)}
        twice = {
            str(key): codes
            for told in (member.answers, member.receipts)
            for key, codes in told.items()
            if len(codes) > 1
        }
        found = {"no receipt": silent, "no answer": unanswered, "told twice": twice, "wrong from": wrong}
        for what, these in found.items():
            if these:
                some = list(these.items() if isinstance(these, dict) else these)[:MAX_SHOWN]
                print(f"{member.runtime}: {what}: {len(these)}: {some}", file=sys.stderr)
        records[member.runtime] = {
            **found,
            "heard": {f"{by} {kind}": numbers for (by, kind), numbers in member.heard.items()},
            "history": member.client.history,
            "strange": member.strange,
        }
    for node in network.nodes.values():
        for line in node.errors()[:MAX_SHOWN]:
            print(f"{node.node}: {line}", file=sys.stderr)
        (node.directory / "records.json").write_text(json.dumps(records, indent=1, default=str))
