"""
The command line: how long, from which seed, and what came of it.
"""

import argparse
import asyncio
import json
import logging
import random
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from soaking.cluster import command as cluster
from soaking.federation import command as federation
from soaking.load.generator import Load
from soaking.peers.node_process import Node
from soaking.peers.proxy import Proxy
from soaking.report.evidence import evidence, printed
from soaking.report.figures import Figures, Memory, broken, lines, of_faults, of_load, of_log, of_node
from soaking.scenarios.faults import Faults

QUEUE = 2000  # messages that may wait for a session
AT_ONCE = (5000, 2)  # recipients sent to in one turn: by an odd seed all that is published goes in slices
WARM_UP = 2  # seconds of load before the memory is measured, and the first fault


def main(arguments: list[str]) -> int:
    """
    Exit code 0 when every promise was kept, 1 when one was broken.
    """
    options = _parser().parse_args(arguments)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # it tells of each write to what is gone
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # also then, the node's files are removed
    print(f"seed {options.seed}", flush=True)
    random.seed(options.seed)
    run = cluster.run if options.cluster else federation.run if options.federation else _run
    figures = asyncio.run(run(options))
    for line in lines(figures):
        print(line)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    return 1 if figures["broken promises"] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/soak",
        description="Run a node under load while faults are injected: kills, broken connections, full disks, "
        "damaged files. Then compare what each client sent and received with what docs/protocol.md promises.",
        epilog="Each fault comes once, then by chance until the time is over. The same seed gives the same "
        "faults. Exit code 0: all promises were kept, 1: one was broken.",
    )
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1 << 31), help="of all that is by chance"
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="how long, at least (default: 1)")
    parser.add_argument("--clients", type=int, default=16, help="how many publish (default: 16)")
    parser.add_argument(
        "--rate", type=float, default=20.0, help="messages a second that each publishes (default: 20)"
    )
    parser.add_argument(
        "--federation",
        type=int,
        default=0,
        metavar="DOMAINS",
        choices=range(2, 27),
        help="instead of one node, the nodes of so many domains in a chain; each is killed in turn",
    )
    parser.add_argument(
        "--cluster",
        type=int,
        default=0,
        metavar="NODES",
        choices=range(2, 10),
        help="instead of one node, so many nodes of one domain on two nats-servers; clients come back at any",
    )
    parser.add_argument("--sticky", action="store_true", help="of a cluster: each client stays at one node")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="FAULT", help="of a cluster: these faults, as kill_node"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file, too")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIRECTORY",
        help="if a promise was broken, copy the node's files and the clients' records into this directory",
    )
    return parser


async def _run(options: argparse.Namespace) -> Figures:
    at_once = AT_ONCE[options.seed % len(AT_ONCE)]
    node = Node(Path(tempfile.mkdtemp(prefix="soak-")), QUEUE, at_once)
    keep = None
    try:
        await asyncio.to_thread(node.start)
        web, lines = Proxy(node.ports["web"]), Proxy(node.ports["line"])
        await web.start()
        await lines.start()
        load = Load(web, lines, node.ports, options.clients, options.rate)
        await load.start()
        faults = Faults(node, load, QUEUE, options.seed)
        figures = {"seed": options.seed, "recipients at once": at_once}
        figures |= await _measured(node, load, faults, options.minutes * 60)
        figures["broken promises"] = broken(figures)
        if figures["broken promises"]:
            keep = options.keep
            _tell(node, load, faults)
        return figures
    finally:
        node.leave(keep)


def _tell(node: Node, load: Load, faults: Faults) -> None:
    """
    Print which message or answer broke a promise, and write down all that is known.
    """
    print(node.log(), file=sys.stderr)
    found = evidence(node, load, faults.history)
    for line in printed(found):
        print(line, file=sys.stderr)
    records = {"faults": faults.history, "evidence": found, **load.records()}
    (node.directory / "records.json").write_text(json.dumps(records, indent=1))


async def _measured(node: Node, load: Load, faults: Faults, seconds: float) -> Figures:
    await asyncio.sleep(WARM_UP)
    before = node.memory()
    began, peak = time.monotonic(), Peak(node)
    watching = asyncio.create_task(peak.watch())
    await faults.run(seconds)
    lasted = time.monotonic() - began
    all_came = await load.drain()
    watching.cancel()
    figures = {"seconds": round(lasted, 1), **of_faults(faults, load), **of_load(load)}
    figures["not all came"] = not all_came
    figures |= of_node(node, load, Memory(before, node.memory(), peak.bytes))
    await load.stop()
    load.web.stop()
    load.lines.stop()
    await asyncio.to_thread(node.stop)
    figures["did not stop by SIGTERM"] = node.hung
    return figures | of_log(node, load)


class Peak:
    """
    The most memory that the node had, in any of its lives.
    """

    def __init__(self, node: Node) -> None:
        self.bytes = 0
        self._node = node

    async def watch(self) -> None:
        while True:
            with suppress(OSError, ValueError):  # it is not alive
                self.bytes = max(self.bytes, self._node.memory())
            await asyncio.sleep(0.5)
