"""
Small networks of overlays in memory, for tests.
"""

from simulating.links import MemoryLink
from simulating.world import World

from msgnode.links.overlay.routes.shortest_path import cost_of

A, B, C, D = (f"mn://{letter}.example/n" for letter in "abcd")


def network(*wires, seed=1, settled=True, **options):
    """
    A world with wires, each a pair of names, or a pair and its cost.
    """
    world = World(seed)
    for one, other, *cost in wires:
        for name in (one, other):
            if name not in world.nodes:
                world.add(name)
        world.join(one, other, cost=cost[0] if cost else 10, **options)
    world.start()
    if settled:
        world.run(10)
    return world


def overlay(world, name):
    return world.nodes[name].overlay


def wire(world, one, other):
    return world.wires[frozenset((one, other))]


def costs(world, name):
    """
    The cost of the route to each reachable node.
    """
    return {node: cost_of(label) for node, label in overlay(world, name).routes.labels().items()}


def link(world, one, other) -> MemoryLink:
    """
    The link of `one` to `other`.
    """
    return next(link for link in wire(world, one, other).links if link.node == other)


def refused(world, name):
    return overlay(world, name).refusals.by_reason
