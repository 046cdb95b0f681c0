"""
Subscriptions in other domains of a session that moves.
"""

from pathlib import Path

from tests.support.cluster_durable import NAMES, DurableWorld
from tests.support.durable import SM

A, B, C = NAMES
FAR = "far.example"
RUNTIME = "runtime://example.org/1"
TOPIC = "comm://far.example/room/changes"


def test_subscriptions_in_other_domains_move_with_the_session(tmp_path: Path) -> None:
    """
    A session's subscription in another domain, which a member reaches, is asked for by the member that the
    session has moved to, and no longer by the one where it was.
    """
    world = DurableWorld(tmp_path)
    world.reached[C] = {FAR}
    world.members[C].held.start(True, lambda: {FAR})
    world.run(1)
    client = world.client(RUNTIME)
    client.connect(A)
    world.run(1)
    client.send(id=9, type="subscribe", to=SM, body={"resources": [TOPIC]})
    world.run(0.5)
    before = [world.members[name].exchange.upstream.count(FAR) for name in NAMES]

    client.connect(B)
    world.run(10)

    after = [world.members[name].exchange.upstream.count(FAR) for name in NAMES]
    assert ([1, 0, 1], [0, 1, 1]) == (before, after)
