"""
What was handed over to a member that never comes back.
"""

from pathlib import Path

import pytest

from tests.support.cluster_durable import NAMES, DurableWorld, RoamingClient

A, B, C = NAMES
S, OTHER = "runtime://example.org/1", "runtime://example.org/11"


class World(DurableWorld):
    """
    What waits for a client at the first node is for the second, where it began again, and which is gone.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.bob: RoamingClient = self.client(S)
        self.bob.connect(A)
        self.run(1)
        self.bob.drop()
        self.publish(C, S, 4)
        self.run(1)
        self.kill(A)
        self.bob.connect(B)
        self.run(5)
        self.kill(B)
        self.run(2)
        self.start(A)
        self.run(5)

    def end_lease(self, node: str) -> None:
        for member in self.members.values():
            member.sessions.moves.is_gone = node.__eq__
        self.run(5)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("name", [A, C])
def test_what_was_for_a_member_that_is_gone_comes_to_the_newest_holder(world: World, name: str) -> None:
    """
    Also if that is this node itself; nothing comes before the lease of the member has ended.
    """
    world.bob.connect(name)
    world.run(20)
    before = list(world.bob.got)

    world.end_lease(B)

    assert before == []
    assert world.bob.got == world.published[S]
    assert not world.is_leaving(S, A) or name == C


@pytest.mark.parametrize("name", [A, C])
def test_nothing_is_lost_while_the_disk_of_the_node_is_full(world: World, name: str) -> None:
    """
    What cannot be written is tried again later, also if the node is killed meanwhile.
    """
    world.bob.connect(name)
    world.run(20)
    world.members[A].node.disk.full = True
    world.end_lease(B)
    while_full = list(world.bob.got)
    if name == C:
        world.kill(A)
        world.start(A)
    world.members[A].node.disk.full = False
    world.run(30)
    world.end_lease(B)
    world.run(70)
    world.bob.connect(name)
    world.run(5)

    assert while_full == []
    assert sorted(world.bob.got) == sorted(world.published[S])


def test_it_comes_once_although_the_node_is_killed_meanwhile(world: World) -> None:
    """
    What is on disk here already is not given again after the start.
    """
    world.bob.connect(A)
    world.run(20)
    world.members[A].sessions.moves.is_gone = B.__eq__
    for _ in range(3):
        world.run(0.4)
        world.kill(A)
        world.start(A)
        world.members[A].sessions.moves.is_gone = B.__eq__
    world.bob.connect(A)
    world.run(20)

    assert sorted(world.bob.got) == sorted(world.published[S])


def test_what_an_earlier_stay_gets_late_comes_when_its_new_holder_is_gone(tmp_path: Path) -> None:
    """
    A third node was parted from both when the session moved, and when it began again at the first.
    """
    world = DurableWorld(tmp_path)
    bob = world.client(S)
    bob.connect(B)
    world.client(OTHER).connect(A)
    world.run(1)
    for node in (A, B):
        world.cluster.cut(node, C)
    world.run(0.5)
    world.publish(C, S, 6)
    bob.connect(A)
    world.run(3)
    world.kill(A)
    world.run(3)
    bob.connect(B)
    world.run(4)
    world.cluster.restore(B, C)
    world.run(30)

    world.members[B].sessions.moves.is_gone = A.__eq__
    world.run(5)

    assert sorted(bob.got) == sorted(world.published[S])
