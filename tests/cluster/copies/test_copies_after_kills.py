"""
Copies of publications that come to two nodes of a session, of which one is killed before they are compared.
"""

from pathlib import Path

import pytest

from tests.support.cluster_durable import NAMES, TOPIC, DurableWorld, RoamingClient

A, B, C = NAMES
S = "runtime://example.org/1"


class World(DurableWorld):
    """
    A session at the third node, which is killed; its client begins it again at the first. What the second
    node publishes then goes to both.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.bob: RoamingClient = self.client(S)
        self.bob.connect(C)
        self.run(1)
        self.publish(B, S, 4)
        self.run(0.5)
        self.kill(C)
        self.bob.connect(A)
        self.run(3)
        self.publish(B, S, 6)
        self.run(0.5)

    def got(self) -> dict[str, int]:
        return {each: self.bob.got.count(each) for each in self.published[S]}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def once(world: World) -> dict[str, int]:
    return dict.fromkeys(world.published[S], 1)


def test_copies_of_an_earlier_holder_that_is_killed_again_come_once(world: World) -> None:
    """
    The earlier holder has the copies, and is killed before it has reached the new one.
    """
    world.cluster.cut(A, C)
    world.start(C)
    world.run(1)
    world.kill(C)

    world.heal()

    assert once(world) == world.got()


@pytest.mark.parametrize("is_back", [False, True])
def test_copies_of_a_new_holder_that_is_killed_come_once(world: World, is_back: bool) -> None:
    """
    The new holder has delivered the copies, and is killed before the earlier one is back, or while it still
    waits for a slow node.
    """
    if is_back:
        world.slow.add((B, C))
        world.start(C)
        world.run(3)
    world.kill(A)
    world.start(A)
    world.run(1)
    world.bob.connect(A)
    world.run(15)
    world.slow.clear()

    world.heal()

    assert once(world) == world.got()


@pytest.mark.parametrize("names", [(A, B), (C, B), (A, C, B)])
def test_copies_that_came_by_the_earlier_holder_do_not_come_again_later(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    """
    A node is killed, and its client goes to another one to which copies are late. They come by the first
    node, which is back; then the client moves, and is at the other node again when they come there.
    """
    world = DurableWorld(tmp_path)
    bob = world.client("runtime://example.org/1")
    bob.connect(A)
    world.run(1)
    world.kill(A)
    bob.connect(B)
    world.run(4)
    world.slow.update({(C, B), (C, A)})
    world.start(A)
    while A not in world.members[C].directory.holders(TOPIC.format("1")):
        world.run(0.005)
    world.publish(C, bob.runtime, 6)
    world.run(0.2)
    world.slow.discard((C, A))
    world.run(8)
    before = list(bob.got)
    for name in names:
        bob.connect(name)
        world.run(1)

    world.slow.clear()
    world.heal()

    assert before == ["c1", "c3", "c5"]  # those by the topic
    assert sorted(bob.got) == sorted(world.published[bob.runtime])


@pytest.mark.parametrize("of, to", [(C, C), (C, A), (B, C)])
@pytest.mark.parametrize("seconds", [0.05, 3.0])
def test_copies_that_a_killed_node_had_do_not_come_again_by_an_earlier_one(
    tmp_path: Path, of: str, to: str, seconds: float
) -> None:
    """
    A node is killed, and then the one where the client was since. What was published meanwhile waits for the
    first node, which is back alone: it is for the second one, which knows what the client has had.
    """
    world = DurableWorld(tmp_path)
    bob = world.client(S)
    bob.connect(A)
    world.run(1)
    world.kill(A)
    bob.connect(B)
    world.run(4)
    world.publish(of, S, 6)
    world.run(1)
    world.kill(B)
    world.start(A)
    world.run(seconds)
    bob.connect(to)
    world.run(4)
    world.publish(C, S, 4)
    world.run(2)

    world.heal()

    assert sorted(bob.got) == sorted(world.published[S])
