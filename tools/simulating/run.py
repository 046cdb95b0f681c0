"""
One run of the simulation: start, faults under load, quiet, verdict.
"""

import gc
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

from msgnode.links.carrier.link import SERVER
from simulating.faults import FaultInjector
from simulating.invariants import Judge
from simulating.links import Wire
from simulating.streams import Ledger
from simulating.world import random_world

START_SECONDS = 20.0
FAULT_SECONDS = 20.0
# Damping holds a link for a minute, and digests find in another two what was lost.
QUIET_SECONDS = 240.0
LOAD_INTERVAL_SECONDS = 0.5
LINKS_PER_NODE = 2.5
STREAMS = 6  # nodes that have streams with each other
MEMORY = Path("/dev/shm")

Figures = dict[str, float | int | str]


class Run:
    """
    A run with so many nodes, links and faults, from one seed. `report` is called with figures as they come.
    """

    def __init__(
        self,
        nodes: int,
        links: int,
        faults: int,
        seed: int,
        streams: int,
        report: Callable[[Figures], None],
    ) -> None:
        self.world = random_world(nodes, links, seed)
        self.ledger = Ledger()
        self._directory = Path(mkdtemp(prefix="simulate-", dir=MEMORY if MEMORY.is_dir() else None))
        # A domain tells others its gateways only.
        servers = [node for node in self.world.nodes.values() if node.kind == SERVER]
        gateways = [node for node in servers if node.name.endswith("/gateway")]
        self.talkers = self.world.chance.sample(gateways, min(streams, len(gateways)))
        for node in self.talkers:
            node.begin_streams(self.ledger, self._directory)
        self.judge = Judge(self.world)
        self.injector = FaultInjector(self.world)
        self.figures: Figures = {"nodes": nodes, "links": len(self.world.wires), "seed": seed}
        self.reachable: dict[str, list[str]] = {}  # nodes with streams by one of them, without faults
        self._faults = faults
        self._is_loaded = False
        self._tell = report
        self._told: set[str] = set()

    def run(self) -> None:
        """
        Run all of it. A million objects without cycles need no collector.
        """
        gc.disable()
        try:
            began = time.process_time()
            self._start()
            self._report()
            self._single_faults()
            self._report()
            self._load()
            for number in range(self._faults):
                self.injector.inject(number, FAULT_SECONDS)
            self._is_loaded = False
            self._quiet()
            self._count(time.process_time() - began)
            self._report()
        finally:
            gc.enable()
            for node in self.talkers:
                if node.is_alive and node.end is not None:
                    node.end.kill(remembers=True)
            shutil.rmtree(self._directory)

    def _report(self) -> None:
        """
        Report the figures that are new.
        """
        self._tell({name: figure for name, figure in self.figures.items() if name not in self._told})
        self._told.update(self.figures)

    def _start(self) -> None:
        world = self.world
        begin, cpu = world.clock.rightNow, time.process_time()
        world.start()
        world.run(START_SECONDS)
        self.figures["start: converged after, s"] = round(world.last_change - begin, 2)
        self.figures["start: advertisements signed a node"] = self._mean("own.number")
        self.figures["start: advertisements received a node"] = self._mean("flooding.received")
        self.figures["start: route computations a node"] = self._mean("routes.computed")
        self.figures["start: CPU, s"] = round(time.process_time() - cpu, 1)
        self.judge.compare_routes()
        self.judge.probe(100)

    def _single_faults(self) -> None:
        """
        How long the network takes to agree after one cut, and after one node is gone.
        """
        world = self.world
        wire = self._busiest()
        received, cpu = self._sum("flooding.received"), time.process_time()
        begin = world.clock.rightNow
        wire.down()
        world.run(5)
        self.figures["one cut: converged after, s"] = round(max(0.0, world.last_change - begin), 2)
        self.figures["one cut: advertisements received a node"] = round(
            (self._sum("flooding.received") - received) / len(world.nodes), 2
        )
        self.figures["one cut: CPU, s"] = round(time.process_time() - cpu, 1)
        begin = world.clock.rightNow
        wire.up()
        world.run(30)
        self.figures["it is back: converged after, s"] = round(max(0.0, world.last_change - begin), 2)
        self.judge.compare_routes()

    def _busiest(self) -> Wire:
        """
        The wire that most routes begin with, of those between nodes with three or more.
        """
        uses: Counter[frozenset[str]] = Counter()
        for node in self.world.alive():
            routes = node.overlay.routes
            if len(node.wires) >= 3:
                uses.update(
                    frozenset((node.name, routes.first_hop(target) or "")) for target in routes.labels()
                )
        for ends in [ends for ends in uses if any(len(self.world.nodes[end].wires) < 3 for end in ends)]:
            del uses[ends]
        return self.world.wires[max(sorted(uses, key=sorted), key=uses.__getitem__)]

    def _quiet(self) -> None:
        world = self.world
        begin = world.clock.rightNow
        world.run(QUIET_SECONDS)
        self.figures["after faults: converged after, s"] = round(max(0.0, world.last_change - begin), 2)
        self.judge.compare_routes()
        self.judge.probe(len(world.nodes))
        self.judge.check_bounds()
        self.judge.check_streams(self.talkers, is_quiet=True)
        for what in self.ledger.judge():
            self.judge.broke(what)

    def _load(self) -> None:
        """
        Datagrams between random nodes, while there are faults.
        """
        self._is_loaded = True
        known = {node.name: node.overlay.routes.labels() for node in self.talkers}
        for node in self.talkers:
            self.reachable[node.name] = [
                name for name, back in known.items() if name in known[node.name] and node.name in back
            ]
        self._send_some()

    def _send_some(self) -> None:
        if not self._is_loaded:
            return
        world = self.world
        nodes = list(world.alive())
        for _ in range(10):
            node = world.chance.choice(nodes)
            world.send(node.name, world.chance.choice(nodes).name, world.chance.randrange(10))
        talkers = [node for node in self.talkers if node.is_alive]
        for node in talkers:
            if node.end is not None and (others := self.reachable[node.name]):
                node.end.send(world.chance.choice(others))
        self.judge.check_streams(talkers)
        world.clock.callLater(LOAD_INTERVAL_SECONDS, self._send_some)

    def _count(self, cpu: float) -> None:
        world, figures = self.world, self.figures
        figures["faults"] = ", ".join(f"{number} {name}" for name, number in self.injector.injected.items())
        figures["simulated, s"] = round(world.clock.rightNow - 1_000_000)
        figures["CPU, s"] = round(cpu, 1)
        figures["datagrams sent"] = world.sent
        figures["datagrams arrived"] = len(world.arrived)
        figures["hops"] = self.judge.counts["hops"]
        figures["routes compared"] = self.judge.counts["routes compared"]
        figures["advertisements signed a node"] = self._mean("own.number")
        figures["advertisements received a node"] = self._mean("flooding.received")
        figures["duplicates a node"] = self._mean("flooding.duplicates")
        figures["route computations a node"] = self._mean("routes.computed")
        figures["summaries a node"] = self._mean("synchronising.summaries")
        figures["largest map, bytes"] = max(node.overlay.states.bytes for node in world.alive())
        figures["nodes with streams"] = len(self.talkers)
        figures["streams: messages sent"] = len(self.ledger.sent)
        figures["streams: messages received"] = sum(map(len, self.ledger.received.values()))
        outcomes = sorted(self.ledger.reasons().items())
        figures["streams: outcomes"] = ", ".join(f"{number} {reason}" for reason, number in outcomes)
        figures["streams: most memory of a node, bytes"] = self.judge.most_stream_bytes
        reasons: dict[str, int] = {}
        for node in world.alive():
            for reason, number in node.overlay.refusals.by_reason.items():
                reasons[reason] = reasons.get(reason, 0) + number
        figures["refused"] = ", ".join(f"{number} {reason}" for reason, number in sorted(reasons.items()))
        figures["invariants broken"] = self.judge.counts["broken"]

    def _sum(self, path: str) -> int:
        part, _, name = path.partition(".")
        return sum(int(getattr(getattr(node.overlay, part), name)) for node in self.world.alive())

    def _mean(self, path: str) -> float:
        return round(self._sum(path) / len(self.world.nodes), 2)


def simulate(
    nodes: int,
    faults: int,
    seed: int,
    links: int = 0,
    streams: int = STREAMS,
    report: Callable[[Figures], None] = lambda figures: None,
) -> Run:
    """
    A finished run. `report` is called with figures as they come.
    """
    run = Run(nodes, links or int(nodes * LINKS_PER_NODE), faults, seed, streams, report)
    run.run()
    return run
