"""
Publications that policies decide about for each recipient, while a session moves.
"""

from pathlib import Path

import pytest

from msgnode.policy.language.program import Program
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
