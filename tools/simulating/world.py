"""
A network of overlays in memory: domains with gateways and inner nodes, CLIENT nodes, peers without transit.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

from msgnode.links.carrier.link import CLIENT, SERVER
from msgnode.links.overlay.network import NodeKeys
from msgnode.links.overlay.overlay import Overlay
from msgnode.links.stream.node_streams import NodeStreams
from msgnode.links.wire.datagram import HOP_LIMIT, Datagram
from msgnode.links.wire.node_name import domain_of
from simulating.clock import HeapClock
from simulating.links import End, Wire
from simulating.seal import OpenSeal
from simulating.streams import Ledger, StreamEnd

CLIENTS, GUARDED, LARGE_DOMAINS = 0.05, 0.05, 0.05  # parts of all nodes; GUARDED grant no transit
INNER_NODES = 3  # of a large domain, behind its gateway
PROBE_KEY = "k"  # of datagrams that belong to no stream


class Node:
    """
    A node: an overlay, the ends of its wires, and what its streams would hear.
    """

    def __init__(self, world: "World", name: str, kind: str = SERVER) -> None:
        self.world = world
        self.name = name
        self.domain = domain_of(name)
        self.kind = kind
        self.start = 1
        self.is_alive = True
        self.wires: list[Wire] = []
        self.received_datagrams: list[Datagram] = []
        self.end: StreamEnd | None = None
        self.overlay = self.new_overlay()

    def kill(self, remembers: bool = True) -> None:
        """
        End the process, and lose its disk perhaps. Its neighbours notice at once.
        """
        self.is_alive = False
        if self.end is not None:
            self.end.kill(remembers)
        self.overlay.stop()
        for wire in self.wires:
            wire.down(self.name)

    def restart(self, remembers: bool) -> None:
        """
        Start again, with the start counter of its state directory or without.
        """
        self.start = self.start + 1 if remembers else 1
        self.overlay = self.new_overlay()
        self.is_alive = True
        if self.end is not None:
            self.end.start(self.overlay)
        for wire in self.wires:
            for end in wire.ends:
                if end.node == self.name:
                    end.listener = self.overlay
            if all(self.world.nodes[end.node].is_alive for end in wire.ends):
                wire.up()

    def new_overlay(self) -> Overlay:
        world = self.world
        start = world.chance.randbytes(16)
        keys = NodeKeys(start, world.chance.randbytes(32), b"", frozenset({"zstd"}))
        if self.end is not None:
            keys = self.end.new_keys(world.clock).current.public
        seal = self.seal = OpenSeal(self.name)
        overlay = Overlay(
            world.clock, self.name, seal, keys, start=self.start, kind=self.kind, wall=world.clock.seconds
        )
        overlay.listen(self)
        return overlay

    def begin_streams(self, ledger: Ledger, directory: Path) -> None:
        """
        Have streams from now on; before the wires are up.
        """
        name = self.name.removeprefix("mn://").replace("/", "-")
        self.end = StreamEnd(self.name, ledger, directory / name, self.world.clock, self.world.chance)
        self.replace_overlay()
        self.end.start(self.overlay)

    @property
    def streams(self) -> NodeStreams | None:
        return None if self.end is None else self.end.streams

    def replace_overlay(self) -> None:
        """
        Have a new overlay at all wires, which are down.
        """
        self.overlay.stop()
        self.overlay = self.new_overlay()
        for wire in self.wires:
            for end in wire.ends:
                if end.node == self.name:
                    end.kind, end.listener = self.kind, self.overlay

    # NetworkListener

    def received(self, datagram: Datagram) -> None:
        if datagram.key != PROBE_KEY:
            if self.streams is not None:
                self.streams.received(datagram)
            return
        self.received_datagrams.append(datagram)
        self.world.delivered(datagram)

    def route_changed(self, node: str) -> None:
        self.world.last_change = self.world.clock.rightNow
        self.world.changes += 1
        if self.streams is not None:
            self.streams.route_changed(node)

    def keys_changed(self, node: str) -> None:
        if self.streams is not None:
            self.streams.keys_changed(node)

    def has_room(self) -> None:
        if self.streams is not None:
            self.streams.has_room()


class World:
    """
    All nodes and wires, on one clock, from one seed.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = HeapClock(1_000_000.0)
        self.nodes: dict[str, Node] = {}
        self.wires: dict[frozenset[str], Wire] = {}
        self.last_change = self.clock.rightNow
        self.changes = 0
        self.number = self.sent = 0
        self.arrived: dict[int, Datagram] = {}
        self.watchers: list[Callable[[Datagram], None]] = []

    def add(self, name: str, kind: str = SERVER) -> Node:
        node = self.nodes[name] = Node(self, name, kind)
        return node

    def join(
        self,
        one: str,
        other: str,
        *,
        delay: float = 0.005,
        cost: int | None = None,
        transit: tuple[bool, bool] = (True, True),
        room: int = 1 << 30,
    ) -> Wire:
        """
        A wire between two nodes, down. `transit`: what the first grants the second, and the second the first.
        """
        ends = [
            End(name, self.nodes[name].overlay, self.nodes[name].kind, grant)
            for name, grant in zip((one, other), transit, strict=True)
        ]
        wire = Wire(self.clock, self.chance, ends[0], ends[1], delay, cost, room)
        self.wires[frozenset((one, other))] = wire
        self.nodes[one].wires.append(wire)
        self.nodes[other].wires.append(wire)
        return wire

    def start(self) -> None:
        for wire in self.wires.values():
            wire.up()

    def alive(self) -> Iterator[Node]:
        return (node for node in self.nodes.values() if node.is_alive)

    def send(self, source: str, destination: str, priority: int = 5) -> int | None:
        """
        Send a datagram; its number, or None if it was not taken.
        """
        self.number += 1
        datagram = Datagram(
            source, destination, HOP_LIMIT, [], priority, PROBE_KEY, self.number, b"t" * 16, b"", b"payload"
        )
        if not self.nodes[source].overlay.send(datagram):
            return None
        self.sent += 1
        return self.number

    def delivered(self, datagram: Datagram) -> None:
        self.arrived[datagram.nonce] = datagram
        for watch in self.watchers:
            watch(datagram)

    def run(self, seconds: float) -> None:
        self.clock.advance(seconds)


def random_world(nodes: int, links: int, seed: int) -> World:
    """
    A connected network of so many nodes, and about so many links.
    """
    world = World(seed)
    chance = world.chance
    routers: list[str] = []
    number = 0
    while len(world.nodes) < nodes:
        number += 1
        domain = f"d{number:04}.example"
        name = world.add(f"mn://{domain}/gateway").name
        kind = chance.random()
        if routers:
            _link(world, name, chance.choice(routers[-20:]), _grants(chance, kind))
        if kind < CLIENTS and routers:
            world.nodes[name].kind = CLIENT
            _as_client(world, name)
        elif kind < CLIENTS + GUARDED and routers:
            pass
        else:
            routers.append(name)
        if kind > 1 - LARGE_DOMAINS:
            inner = [world.add(f"mn://{domain}/inner-{each}").name for each in range(INNER_NODES)]
            for before, node in zip([name, *inner], inner, strict=False):
                _link(world, before, node, (True, True))
    while len(world.wires) < links:
        one, other = chance.sample(routers, 2)
        if frozenset((one, other)) not in world.wires:
            _link(world, one, other, (True, True))
    return world


def _grants(chance: random.Random, kind: float) -> tuple[bool, bool]:
    return (False, chance.random() < 0.5) if CLIENTS <= kind < CLIENTS + GUARDED else (True, True)


def _link(world: World, one: str, other: str, transit: tuple[bool, bool]) -> None:
    cost = world.chance.randint(1, 50) if world.chance.random() < 0.7 else None
    world.join(one, other, delay=world.chance.uniform(0.001, 0.02), cost=cost, transit=transit)


def _as_client(world: World, name: str) -> None:
    """
    Make a node with one wire a CLIENT.
    """
    world.nodes[name].replace_overlay()
