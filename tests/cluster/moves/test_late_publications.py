"""
Publications that come to the earlier holder of a session later than its new holder waits for them.
"""

from pathlib import Path

import pytest

from tests.support.cluster_durable import NAMES, DurableWorld, RoamingClient

A, B, C = NAMES
S = "runtime://example.org/1"
OTHER = "runtime://example.org/11"  # its topic is the same
FLUSH_SECONDS = 2


class World(DurableWorld):
    """
    A session at the third node, which is killed; its client begins it again at the first. Another client
    there is subscribed to the same topic, so that publications have copies.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.bob: RoamingClient = self.client(S)
        self.bob.connect(C)
        self.client(OTHER).connect(A)
        self.run(1)
        for name in NAMES:
            self.publish(name, S, 4)
        self.run(0.5)
        self.kill(C)
        self.publish(B, S, 6)
        self.run(1)
        self.bob.connect(A)
        self.run(3)

    def lost(self) -> list[str]:
        return [each for each in self.published[S] if each not in self.bob.got]

    def doubled(self) -> list[str]:
        return [each for each in self.published[S] if self.bob.got.count(each) > 1]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("seconds", [1, 3, 7])
def test_publications_that_are_late_reach_the_new_holder(world: World, seconds: float) -> None:
    """
    What a node sent to the earlier holder, and what that gets only after the new one has waited for it, comes
    to the session where it is, once.
    """
    world.slow.add((B, C))
    world.start(C)
    world.run(seconds)
    world.publish(A, S, 4)
    world.slow.clear()

    world.heal()

    assert ([], []) == (world.lost(), world.doubled())


def test_client_does_not_wait_for_what_is_late(world: World) -> None:
    """
    A client gets what is sent to it at its new node although the earlier holder still waits for a slow node.
    """
    world.slow.add((B, C))
    world.start(C)
    world.run(1)
    world.publish(A, S, 4)

    world.run(2 * FLUSH_SECONDS + 1)

    by_name = [each for each in world.published[S][-4:] if each in world.bob.got]
    assert world.published[S][-4:] == by_name
    assert (0, 0, 1) == world.members[C].sessions.moves.under_way


def test_session_that_moves_on_takes_late_publications_along(world: World) -> None:
    """
    Late publications follow a session that has moved on meanwhile.
    """
    world.slow.add((B, C))
    world.start(C)
    world.run(2 * FLUSH_SECONDS + 1)
    world.bob.connect(B)
    world.run(2 * FLUSH_SECONDS + 1)
    world.publish(A, S, 4)
    world.run(1)
    before = [each for each in world.published[S][-4:] if each in world.bob.got]
    world.slow.clear()

    world.heal()

    assert world.published[S][-4:] == before
    assert ([], []) == (world.lost(), world.doubled())


def test_node_that_stood_still_gets_what_was_sent_before_it_takes_sessions(tmp_path: Path) -> None:
    """
    A client that comes to a node which stood still gets nothing again that was sent to other sessions there
    meanwhile.
    """
    world = DurableWorld(tmp_path)
    client = world.client(S)
    client.connect(A)
    world.client(OTHER).connect(B)
    world.run(1)
    world.stop(B)
    world.run(6)
    world.publish(C, S, 4)
    world.run(1)
    world.slow.add((C, B))
    world.resume(B)
    world.run(0.1)
    client.connect(B)
    world.run(1)
    world.slow.clear()
    world.heal()

    assert world.published[S] == client.got
