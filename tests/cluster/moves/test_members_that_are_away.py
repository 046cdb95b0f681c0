"""
Sessions that move while a member is away, which had sent to their earlier holder.
"""

from pathlib import Path

import pytest

from tests.support.cluster_durable import NAMES, DurableWorld, RoamingClient

A, B, C = NAMES
S = "runtime://example.org/1"
SUSPECT_SECONDS = 15


class World(DurableWorld):
    """
    The second node is killed before what it has published reaches the third, where the session is. When it is
    suspected, the session moves to the first.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.bob: RoamingClient = self.client(S)
        self.bob.connect(C)
        self.client("runtime://example.org/11").connect(A)  # its topic is the same
        self.run(1)
        self.slow.add((B, C))
        self.publish(B, S, 6)
        self.run(0.5)
        self.kill(B)
        self.run(SUSPECT_SECONDS + 2)
        self.bob.connect(A)
        self.run(0.5)

    def got(self) -> dict[str, int]:
        return {each: self.bob.got.count(each) for each in self.published[S]}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def once(world: World) -> dict[str, int]:
    return dict.fromkeys(world.published[S], 1)


def test_what_an_absent_member_had_sent_follows_the_session_once(world: World) -> None:
    """
    When the member is back, what it has in its spool for the earlier holder comes to the new one.
    """
    world.slow.clear()
    world.start(B)
    world.run(1)
    world.publish(B, S, 4)

    world.heal()

    assert once(world) == world.got()


def test_what_an_absent_member_had_sent_follows_a_session_that_was_there_twice(world: World) -> None:
    """
    The session has gone back to the holder to which the member had sent, and has left that again.
    """
    for node in (C, A):
        world.bob.connect(node)
        world.run(5)
    world.slow.clear()
    world.start(B)
    world.run(1)

    world.heal()

    assert once(world) == world.got()


def test_client_does_not_wait_for_an_absent_member(world: World) -> None:
    """
    What is sent to the session at its new node comes at once.
    """
    world.publish(A, S, 4)
    world.run(0.1)

    assert world.published[S][-4:] == world.bob.got[-4:]


def test_node_that_stops_does_not_wait_for_an_absent_member(world: World) -> None:
    """
    A drain is over when the other members have the sessions, although one of them is away.
    """
    stopped: list[None] = []
    world.members[A].sessions.drain().addCallback(stopped.append)

    world.run(5)

    assert [None] == stopped
    assert [C] == world.holders(S)


def test_session_that_began_without_a_member_does_not_wait_for_it(tmp_path: Path) -> None:
    """
    A member that was away all the time has nothing for it: its moves end, although that had published before.
    """
    world, bob = DurableWorld(tmp_path), None
    for name in (A, C):
        world.client(f"runtime://example.org/{name[-1]}1").connect(name)
    world.run(1)
    for sender in (B, C):
        world.publish(sender, "runtime://example.org/a1", 4)
    world.run(0.5)
    world.kill(B)
    world.run(SUSPECT_SECONDS + 2)
    bob = world.client(S)
    for name in (C, A, C):
        bob.connect(name)
        world.run(5)
        world.publish(C, S, 4)
        world.run(1)

        session = world.members[name].node.sessions.get(S)
        assert session is not None and session.ready is not None
        assert all(member.sessions.moves.under_way == (0, 0, 0) for member in world.members.values())
    assert dict.fromkeys(world.published[S], 1) == {each: bob.got.count(each) for each in world.published[S]}


def test_session_that_begins_without_its_holder_is_newer_than_that(tmp_path: Path) -> None:
    """
    Its holder is killed, and a node that was started since, and knows nothing of it, gets its client. The
    session stays there when the holder is back.
    """
    world = DurableWorld(tmp_path)
    bob = world.client(S)
    for name in (A, B):
        bob.connect(name)
        world.run(1)
    world.kill(A)
    world.kill(B)
    world.start(A)
    world.run(20)
    bob.connect(A)
    world.run(4)
    wire = bob.wire

    world.start(B)
    world.run(8)

    assert world.holders(S) == [A]
    assert bob.wire is wire and bob.is_up
