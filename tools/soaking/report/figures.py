"""
The figures of a run: what was done to the node, what the clients saw, and which promises were broken.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from soaking.load.generator import Load
from soaking.peers.node_process import Node
from soaking.scenarios.faults import Faults
from soaking.verdict import Verdict, unlogged

MAX_GROWTH = 96 * 1024 * 1024  # bytes the node may have grown by
MAX_DESCRIPTORS = 40  # that the node may have more than connections

Figures = dict[str, Any]

# Broken, if one of these is neither 0, False nor empty.
PROMISES = (
    "not all came",
    "clients crashed",
    "faults without effect",
    "lost",
    "doubled",
    "out of order",
    "misdelivered",
    "garbling client: lost",
    "damage not found out",
    "epochs lost",
    "told as missed",
    "refused",
    "flooded client: lost untold",
    "clients without resume: doubled",
    "memory grown too much",
    "too many descriptors",
    "disk full for ever",
    "did not stop by SIGTERM",
    "log lines missing",
    "errors of the node",
)


class Memory(NamedTuple):
    """
    Resident bytes of the node: before the first fault, in the end, and at most.
    """

    before: int
    after: int
    most: int


def of_load(load: Load) -> Figures:
    """
    What the clients did, and what they saw of it.
    """
    publishers, flooded = load.publishers, load.flooded
    judged = sum((one.verdict() for one in publishers), Verdict())
    legacy = sum((client.verdict() for client in load.legacy), Verdict())
    return {
        "published": sum(one.published for one in publishers),
        "delivered": sum(len(numbers) for one in publishers for numbers in one.heard.values()),
        "requests": sum(one.asked for one in publishers),
        "connections made": sum(one.client.connected for one in publishers),
        "lost": judged.lost,
        "doubled": judged.doubled,
        "out of order": judged.disordered,
        "misdelivered": load.misdelivered(),
        "refused": sum(len(one.refusals) for one in publishers),
        "epochs lost": sum(one.client.restarted for one in publishers),
        "told as missed": sum(one.client.missed for one in publishers),
        "told that some may be missed": sum(one.client.doubted for one in publishers),
        "flooded client: sent": flooded.sent,
        "flooded client: told as missed": flooded.client.missed,
        "flooded client: lost untold": sum(flooded.verdict()),
        "garbling client: lost": sum(load.garbling.verdict()) + load.garbling.stuck,
        "clients without resume: received": sum(len(client.received) for client in load.legacy),
        "clients without resume: doubled": legacy.doubled + legacy.disordered,
        "clients crashed": load.crashed(),
    }


def of_faults(faults: Faults, load: Load) -> Figures:
    """
    What was done to the node, and did it notice?
    """
    noticed = {
        # After damage it is told only that some may be missed, of the flood, too.
        "flood": load.flooded.client.missed + load.flooded.client.doubted,
        "full disk": faults.degraded,
        "kill on a full disk": faults.degraded_at_start,
        "garbage, then resume": len(load.garbling.got),
        "damage": sum(one.client.doubted for one in load.publishers),
    }
    return {
        "faults": dict(faults.done),
        "faults without effect": [name for name, times in noticed.items() if faults.done[name] and not times],
        "damage not found out": faults.damaged - faults.found_out,
        "disk full for ever": faults.stayed_degraded,
    }


def of_node(node: Node, load: Load, memory: Memory) -> Figures:
    """
    What the node took, while it runs.
    """
    connections = len(load.web.pipes()) + len(load.lines.pipes())
    return {
        "clock can be changed": node.can_change_clock,
        "disk can be filled": node.small,
        "kills": len(node.kills),
        "memory before, MB": round(memory.before / 1e6, 1),
        "memory after, MB": round(memory.after / 1e6, 1),
        "memory at most, MB": round(memory.most / 1e6, 1),
        "memory grown too much": max(memory.most, memory.after) > memory.before + MAX_GROWTH,
        "too many descriptors": node.descriptors() > connections + MAX_DESCRIPTORS,
    }


def of_log(node: Node, load: Load) -> Figures:
    """
    Is the traffic log whole, once the node has stopped?
    """
    torn, missing = log_lines(node, load)
    return {
        "log lines torn": torn,
        "log lines missing": len(missing),
        "errors of the node": len(node.errors()),
    }


def log_lines(node: Node, load: Load) -> tuple[int, list[str]]:
    """
    How many lines of the traffic log are torn; the sender and number of each message that lacks its line.
    """
    torn, logged = 0, set()
    for path in node.traffic():
        for line in path.read_bytes().split(b"\n"):
            try:
                entry = json.loads(line) if line else {}
            except ValueError:
                torn += 1
                continue
            if entry.get("type") == "update":
                logged.add(f"{entry['from']} {entry['id']}")
    of_each = load.acknowledged().values()
    return torn, [name for messages in of_each for name in unlogged(messages, logged, node.kills)]


def broken(figures: Figures) -> list[str]:
    """
    The promises that were broken, by the names of their figures.
    """
    found = [name for name in PROMISES if figures[name]]
    if figures["log lines torn"] > figures["kills"]:
        found.append("log lines torn")
    return found


def lines(figures: Figures) -> Iterator[str]:
    """
    The figures in a table, and the verdict below it.
    """
    for name, value in figures.items():
        if name != "broken promises":
            yield f"{name:34} {_said(value)}"
    kept = "All promises were kept."
    yield ""
    yield f"Broken: {', '.join(figures['broken promises'])}." if figures["broken promises"] else kept


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name}: {times}" for name, times in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
