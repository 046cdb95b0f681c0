"""
Clients that come back to a node which has not ended letting their session go.
"""

from pathlib import Path

from tests.support.cluster_durable import NAMES, DurableWorld

A, B, _ = NAMES
S, OTHER = "runtime://example.org/1", "runtime://example.org/2"


def test_client_that_comes_back_before_its_session_has_left_keeps_it(tmp_path: Path) -> None:
    """
    A client that goes to another node, and comes back while the first one still waits until its own messages
    have arrived, has its session again.
    """
    world = DurableWorld(tmp_path)
    client = world.client(S)
    client.connect(A)
    world.client(OTHER).connect(B)
    world.run(1)
    world.slow.add((A, B))
    world.publish(A, OTHER, 1)
    client.connect(B)
    world.run(0.1)

    client.connect(A)
    world.run(1.5)

    assert client.is_open
    assert [True, True] == client.recovered
