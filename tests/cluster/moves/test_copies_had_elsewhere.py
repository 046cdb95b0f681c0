"""
Copies of publications that wait for a node, and come to it after a client that has had them elsewhere.
"""

from pathlib import Path

import pytest

from tests.support.cluster_durable import NAMES, DurableWorld, RoamingClient

A, B, C = NAMES
S, OTHER = "runtime://example.org/1", "runtime://example.org/11"  # both subscribe to one topic


class World(DurableWorld):
    """
    A session at the first node, and another one at the third, where what the second node publishes is late.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.bob: RoamingClient = self.client(S)
        self.bob.connect(A)
        self.client(OTHER).connect(C)
        self.run(1)
        self.slow.add((B, C))
        self.publish(B, S, 6)
        self.run(1)

    def come(self, *names: str) -> None:
        for name in names:
            self.bob.connect(name)
            self.run(4)
            self.publish(B, S, 2)
            self.run(1)

    def assert_once(self) -> None:
        assert sorted(self.published[S]) == sorted(self.bob.got)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("names", [(C,), (B, C), (C, A, C)])
def test_what_a_client_had_at_another_node_does_not_come_again(world: World, names: tuple[str, ...]) -> None:
    """
    The copies come to the node after its client had them at one before, or at the one before that.
    """
    world.come(*names)

    world.slow.clear()
    world.heal()

    world.assert_once()


def test_what_a_client_had_does_not_come_again_after_a_restart(world: World) -> None:
    """
    The node to which the client came is killed before the copies are there.
    """
    world.come(C)
    world.kill(C)
    world.start(C)
    world.run(1)
    world.bob.connect(C)
    world.run(1)

    world.slow.clear()
    world.heal()

    world.assert_once()


def test_nothing_is_lost_that_is_published_meanwhile(world: World) -> None:
    """
    Copies with higher numbers come, in any order of nodes.
    """
    world.come(C, A, B, C, A)

    world.slow.clear()
    world.heal()

    world.assert_once()
