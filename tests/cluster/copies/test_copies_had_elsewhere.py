"""
Copies of publications that wait for a node, and come to it after a client that has had them elsewhere.
"""

from pathlib import Path

import pytest

from tests.support.cluster_durable import NAMES, TOPIC, DurableWorld, RoamingClient
from tests.support.durable import SM

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


@pytest.mark.parametrize("seconds", [0.1, 0.5, 4])
def test_copies_that_came_to_a_node_before_the_session_are_not_lost(tmp_path: Path, seconds: float) -> None:
    """
    A client goes to a node that had them before, and back, while they are on their way to its first node.
    """
    world = DurableWorld(tmp_path)
    bob = world.client(S)
    bob.connect(A)
    world.client(OTHER).connect(C)
    world.run(1)
    world.slow.add((B, A))
    world.publish(B, S, 6)
    world.run(0.5)
    for name in (C, A):
        bob.connect(name)
        world.run(seconds)
        world.publish(B, S, 2)
        world.run(0.2)

    world.slow.clear()
    world.heal()

    assert sorted(world.published[S]) == sorted(bob.got)


def test_what_a_session_has_subscribed_at_another_node_meanwhile_is_not_lost(tmp_path: Path) -> None:
    """
    Its first node stands still, and hands over a session that began again elsewhere, with a topic more.
    """
    world = DurableWorld(tmp_path)
    bob, topic = world.client(S), TOPIC.format("2")
    bob.connect(A)
    for runtime in ("runtime://example.org/2", OTHER):
        world.client(runtime).connect(B)
    world.run(1)
    world.stop(A)
    world.run(7)
    bob.connect(C)
    world.run(4)
    bob.send(id=2, type="subscribe", to=SM, body={"resources": [topic]})
    world.run(1)
    world.slow.add((B, C))
    sender = world.senders[B]
    sender.connect(B)
    world.run(0.1)
    for to in (topic, TOPIC.format("1")):
        for number in range(4):
            sender.send(id=1, type="update", to=to, body={"n": f"{to} {number}"})
        world.run(0.2)
    world.resume(A)
    world.run(4)

    world.slow.clear()
    world.heal()

    assert [f"{topic} {number}" for number in range(4)] == [
        each for each in bob.got if each.startswith(topic)
    ]


def test_nothing_is_lost_that_is_published_meanwhile(world: World) -> None:
    """
    Copies with higher numbers come, in any order of nodes.
    """
    world.come(C, A, B, C, A)

    world.slow.clear()
    world.heal()

    world.assert_once()
