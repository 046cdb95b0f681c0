"""
Publications that policies decide about for each recipient, while a session moves.
"""

import json
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from msgnode.bus.fanout import Batch
from msgnode.policy.language.program import Program
from msgnode.protocol.message import decode
from tests.support.cluster_durable import NAMES, DurableWorld
from tests.support.policy_case import only, program

A, B, C = NAMES
S = "runtime://example.org/1"
OTHERS = [f"runtime://example.org/{number}1" for number in range(1, 4)]  # their topic is the same


def decided() -> Program:
    return program(only({"direction": {"equals": "out"}}, "permit"))


@pytest.mark.parametrize("at_once", [1000, 10])
def test_copy_that_comes_by_both_nodes_is_delivered_once(tmp_path: Path, at_once: int) -> None:
    """
    A publication that is delivered at the new holder at once, or in slices, and that comes from the earlier
    one later, too, is one to the client.
    """
    world = DurableWorld(tmp_path)
    bob = world.client(S)
    bob.connect(B)
    for other in OTHERS:
        world.client(other).connect(A)
    world.run(1)
    node = world.members[A].node
    node.enforcement.use(decided(), 1)
    node.config.limits.recipients_at_once = at_once
    node.fanout.apply()
    world.slow.add((A, B))
    world.publish(A, S, 1)
    world.run(0.5)
    bob.connect(A)
    world.run(1)
    world.publish(A, S, 6)
    world.run(0.5)
    world.slow.clear()

    world.heal()

    assert dict.fromkeys(world.published[S], 1) == {each: bob.got.count(each) for each in world.published[S]}


@pytest.mark.parametrize("seconds", [1, 4])
def test_publication_that_is_decided_about_follows_the_session(tmp_path: Path, seconds: float) -> None:
    """
    What policies still decide about when the session leaves reaches its client at the new node.
    """
    world = DurableWorld(tmp_path)
    bob = world.client(S)
    bob.connect(B)
    world.run(1)
    node = world.members[B].node
    session = node.sessions.get(S)
    assert session is not None
    message = decode(json.dumps({"id": 1, "type": "update", "from": S, "to": S, "body": {"n": "x"}}).encode())
    decided: Deferred[None] = Deferred()
    batch = Batch(None)
    node.fanout.decide(batch, iter([decided]), lambda: batch.add(message, None, session.as_tuple))
    node.fanout.finish(batch)

    bob.connect(A)
    world.run(seconds)
    decided.callback(None)
    world.heal()

    assert bob.got == ["x"]


def test_message_to_very_many_that_waits_for_a_session_moves_with_it(tmp_path: Path) -> None:
    """
    A message that is sent in slices is in the queue of a client that is away, and follows it.
    """
    world = DurableWorld(tmp_path)
    bob = world.client(S)
    for client in (bob, world.client(OTHERS[0])):
        client.connect(B)
    world.run(1)
    node = world.members[B].node
    node.config.limits.recipients_at_once = 1
    node.fanout.apply()
    bob.drop()
    world.publish(B, S, 2)
    world.run(0.5)

    bob.connect(A)
    world.heal()

    assert world.published[S] == bob.got
