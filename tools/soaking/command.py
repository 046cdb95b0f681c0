"""
The command: how long, from which seed, and what came of it.
"""

import argparse
import asyncio
import json
import logging
import random
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from soaking.faults import Faults
from soaking.load import Load
from soaking.node import Node, Proxy
from soaking.verdict import Verdict, unlogged

QUEUE = 2000  # messages that may wait for a session
AT_ONCE = (5000, 2)  # recipients sent to in one turn: by an odd seed all that is published goes in slices
DRAIN = 60.0  # seconds until all must have come
MEMORY = 96 * 1024 * 1024  # bytes the node may have grown by
DESCRIPTORS = 40  # that the node may have more than connections


def main(arguments: list[str]) -> int:
    """
    Exit code 0 when every promise was kept, 1 when one was broken.
    """
    parser = argparse.ArgumentParser(
        prog="tools/soak", description="Load with faults, and a verdict from the clients' own records."
    )
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rate", type=float, default=20.0, help="messages a second of each client")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    options = parser.parse_args(arguments)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # it tells of each write to what is gone
    print(f"seed {options.seed}", flush=True)
    random.seed(options.seed)
    figures = asyncio.run(_soak(options))
    for name, value in figures.items():
        print(f"{name:36} {value}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    return 1 if figures["broken promises"] else 0


async def _soak(options: argparse.Namespace) -> dict[str, Any]:
    at_once = AT_ONCE[options.seed % len(AT_ONCE)]
    node = Node(Path(tempfile.mkdtemp(prefix="soak-")), QUEUE, at_once)
    try:
        node.start()
        web, lines = Proxy(node.ports["web"]), Proxy(node.ports["line"])
        await web.start()
        await lines.start()
        load = Load(web, lines, node.ports, options.clients, options.rate)
        await load.start()
        await asyncio.sleep(2)
        before = node.memory()
        faults = Faults(node, load, QUEUE, options.seed)
        began, peak = time.monotonic(), Peak(node)
        watching = asyncio.create_task(peak.watch())
        await faults.run(options.minutes * 60)
        lasted = time.monotonic() - began
        drained = await load.drain(DRAIN)
        watching.cancel()
        figures = _judged(load, faults, node, before, drained)
        figures = {
            "seed": options.seed,
            "seconds": round(lasted, 1),
            "recipients at once": at_once,
            **figures,
        }
        figures["memory at most, MB"] = round(peak.bytes / 1e6, 1)
        figures["memory grown too much"] = max(peak.bytes, node.memory()) > before + MEMORY
        await load.stop()
        web.stop()
        lines.stop()
        exit_code = await asyncio.to_thread(node.stop)
        figures["stopped by SIGTERM with"] = exit_code
        figures |= _read_log(load, node)
        figures["broken promises"] = _broken(figures)
        if figures["broken promises"]:
            print(node.log(), file=sys.stderr)
        return figures
    finally:
        node.leave()


def _judged(load: Load, faults: Faults, node: Node, before: int, drained: bool) -> dict[str, Any]:
    peers = sum((peer.verdict() for peer in load.peers), Verdict())
    legacy = sum((client.verdict() for client in load.legacy), Verdict())
    victim = load.victim.verdict()
    connections = len(load.web.pipes()) + len(load.lines.pipes())
    return {
        "faults": dict(faults.done),
        "clock can be changed": node.can_change_clock,
        "disk can be filled": node.small,
        "disk was said to be full": faults.degraded,
        "clients fallen over": load.fallen(),
        "faults without effect": _idle(faults, load),
        "published": sum(peer.published for peer in load.peers),
        "delivered": sum(len(numbers) for peer in load.peers for numbers in peer.got.values()),
        "requests": sum(peer.asked for peer in load.peers),
        "connections made": sum(peer.client.connected for peer in load.peers),
        "all came in time": drained,
        "lost": peers.lost,
        "doubled": peers.doubled,
        "out of order": peers.disordered,
        "sessions mixed up": sum(one.mixed_up() for one in (*load.peers, *load.legacy, load.victim)),
        "babbler: lost": sum(load.babbler.verdict()) + load.babbler.stuck,
        "damage not found out": faults.damaged - faults.found_out,
        "told that they may miss some": sum(peer.client.doubted for peer in load.peers),
        "epochs lost": sum(peer.client.restarted for peer in load.peers),
        "told as missed": sum(peer.client.missed for peer in load.peers),
        "refused": sum(len(peer.refusals) for peer in load.peers),
        "victim: sent": load.victim.sent,
        "victim: told as missed": load.victim.client.missed,
        "victim: lost untold": victim.lost + victim.doubled + victim.disordered,
        "today's clients: received": sum(len(client.got) for client in load.legacy),
        "today's clients: doubled": legacy.doubled + legacy.disordered,
        "memory before, MB": round(before / 1e6, 1),
        "memory after, MB": round(node.memory() / 1e6, 1),
        "descriptors too many": node.descriptors() > connections + DESCRIPTORS,
    }


class Peak:
    """
    The most memory the node had, in any of its lives.
    """

    def __init__(self, node: Node) -> None:
        self.bytes = 0
        self._node = node

    async def watch(self) -> None:
        while True:
            with suppress(OSError, ValueError):  # it is not alive
                self.bytes = max(self.bytes, self._node.memory())
            await asyncio.sleep(0.5)


def _idle(faults: Faults, load: Load) -> list[str]:
    """
    Faults that were done and that the node did not notice: nothing was tried then.
    """
    noticed = {
        "overflow": load.victim.client.missed,
        "full disk": faults.degraded,
        "kill on a full disk": faults.degraded_at_start,
        "garbage, then resume": len(load.babbler.got),
        "damage": sum(peer.client.doubted for peer in load.peers),
    }
    return [name for name, times in noticed.items() if faults.done[name] and not times]


def _read_log(load: Load, node: Node) -> dict[str, Any]:
    """
    Is the traffic log whole?
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
    missing = unlogged(load.acknowledged(), logged, node.kills)
    return {"log lines torn": torn, "kills": len(node.kills), "log lines missing": len(missing)}


def _broken(figures: dict[str, Any]) -> list[str]:
    wanted_zero = (
        "clients fallen over",
        "faults without effect",
        "lost",
        "doubled",
        "out of order",
        "sessions mixed up",
        "babbler: lost",
        "damage not found out",
        "epochs lost",
        "told as missed",
        "refused",
        "victim: lost untold",
        "today's clients: doubled",
        "memory grown too much",
        "descriptors too many",
        "log lines missing",
    )
    broken = [name for name in wanted_zero if figures[name]]
    if figures["log lines torn"] > figures["kills"]:
        broken.append("log lines torn")
    if not figures["all came in time"]:
        broken.append("all came in time")
    return broken
