"""
A member that is killed just after it has handed over the state of a session.
"""

from pathlib import Path

import pytest

from tests.support.cluster_durable import NAMES, STEP_SECONDS, DurableWorld
from tests.support.durable import SM

A, B, C = NAMES
S = "runtime://example.org/1"


def _killed(world: DurableWorld, steps: int) -> None:
    """
    The session has messages at the first node, which is killed so many steps after its client has come to the
    third.
    """
    client = world.client(S)
    client.connect(A)
    world.run(1)
    client.drop()
    world.publish(B, S, 3)
    world.run(0.2)
    client.connect(C)
    for _ in range(steps):
        world.run(STEP_SECONDS)
    world.kill(A)
    world.run(1)
    if not client.is_open:
        client.connect(C)
        world.run(4)


@pytest.mark.parametrize("steps", range(4, 12))
@pytest.mark.parametrize("is_started_again", [False, True])
def test_client_is_heard_and_hears_while_the_member_is_away(
    tmp_path: Path, steps: int, is_started_again: bool
) -> None:
    """
    It gets answers of its new node, also after a restart of that, and what is published; when the member is
    back, nothing is missing or doubled.
    """
    world = DurableWorld(tmp_path)
    _killed(world, steps)
    client = world.clients[S]
    if is_started_again:
        world.kill(C)
        world.start(C)
        world.run(1)
        client.connect(C)
        world.run(4)
    before = client.received
    client.send(id=77, type="subscribe", to=SM, body={"resources": ["comm://example.org/z/changes"]})
    world.publish(B, S, 4)
    world.run(5)

    assert client.received >= before + 5

    world.heal()

    assert sorted(world.published[S]) == sorted(client.got)
