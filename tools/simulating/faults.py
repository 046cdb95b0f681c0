"""
Faults of a simulated network: partitions, flaps, costs, loss, doubling, reordering, kills.
"""

from collections.abc import Callable

from simulating.links import Faults, Wire
from simulating.world import Node, World

FLAP_SECONDS = 1.0
MAX_FAULTY = 10  # wires or nodes at once


class FaultInjector:
    """
    Injects one fault at a time by chance, and repairs it.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.injected: dict[str, int] = {}
        self._kinds: list[tuple[str, Callable[[float], None]]] = [
            ("partition", self._partition),
            ("silent neighbours", self._avoid),
            ("flaps", self._flaps),
            ("cost changes", self._costs),
            ("loss", lambda seconds: self._disturb(Faults(loss=0.3), seconds)),
            ("doubling", lambda seconds: self._disturb(Faults(doubling=0.5), seconds)),
            ("reordering", lambda seconds: self._disturb(Faults(reordering=0.5), seconds)),
            ("kills with memory", lambda seconds: self._kill(True, seconds)),
            ("kills without memory", lambda seconds: self._kill(False, seconds)),
        ]

    def inject(self, number: int, seconds: float) -> None:
        """
        Inject the fault with this number for so long, and repair it. Each kind comes in turn.
        """
        name, act = self._kinds[number % len(self._kinds)]
        self.injected[name] = self.injected.get(name, 0) + 1
        act(seconds)

    def _wires(self) -> list[Wire]:
        wires = [wire for wire in self.world.wires.values() if wire.is_up]
        return self.world.chance.sample(wires, min(MAX_FAULTY, max(1, len(wires) // 20)))

    def _partition(self, seconds: float) -> None:
        """
        Cut the network in two.
        """
        names = sorted(self.world.nodes)
        half = set(names[: self.world.chance.randint(len(names) // 4, len(names) // 2)])
        cut = [
            wire
            for wire in self.world.wires.values()
            if wire.is_up and len({end.node in half for end in wire.ends}) == 2
        ]
        for wire in cut:
            wire.down()
        self.world.run(seconds)
        self._restore(cut)

    def _flaps(self, seconds: float) -> None:
        wires = self._wires()
        for _ in range(int(seconds / FLAP_SECONDS)):
            for wire in wires:
                wire.down()
            self.world.run(FLAP_SECONDS / 2)
            self._restore(wires)
            self.world.run(FLAP_SECONDS / 2)

    def _costs(self, seconds: float) -> None:
        for _ in range(5):
            for wire in self._wires():
                fixed = self.world.chance.random() < 0.5
                delay = self.world.chance.uniform(0.001, 0.05)
                wire.set_cost(self.world.chance.randint(1, 50) if fixed else None, delay)
            self.world.run(seconds / 5)

    def _disturb(self, faults: Faults, seconds: float) -> None:
        wires = self._wires()
        for wire in wires:
            wire.faults = faults
        # A route change, so that advertisements meet the fault.
        for wire in self._wires():
            wire.set_cost(self.world.chance.randint(1, 50), wire.delay)
        self.world.run(seconds)
        for wire in wires:
            wire.faults = Faults()

    def _kill(self, remembers: bool, seconds: float) -> None:
        alive = list(self.world.alive())
        killed: list[Node] = self.world.chance.sample(alive, min(MAX_FAULTY, max(1, len(alive) // 20)))
        with_streams = [node for node in alive if node.end is not None and node not in killed]
        killed += self.world.chance.sample(with_streams, min(2, len(with_streams)))
        for node in killed:
            node.kill(remembers)
            self.world.run(seconds / len(killed))
        for node in killed:
            node.restart(remembers)

    def _avoid(self, seconds: float) -> None:
        """
        Streams find that a first hop brings no acknowledgement.
        """
        for node in self.world.chance.sample(list(self.world.alive()), min(20, len(self.world.nodes))):
            reachable = list(node.overlay.routes.labels())
            for target in self.world.chance.sample(reachable, min(5, len(reachable))):
                node.overlay.avoid_first_hop(target)
        self.world.run(seconds)

    def _restore(self, wires: list[Wire]) -> None:
        for wire in wires:
            if all(self.world.nodes[end.node].is_alive for end in wire.ends):
                wire.up()
