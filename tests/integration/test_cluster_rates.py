"""
Rates that two real nodes count together.
"""

import time
from collections.abc import Iterator

import pytest

from .clustered import DOMAIN, Cluster

MORE = "[limits]\nshared = true\nip_rate_bytes = 10000\n"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = Cluster(2, MORE)
    yield found
    found.stop()


def test_bytes_that_one_node_let_pass_are_missing_at_the_other(cluster: Cluster) -> None:
    """
    A message of twenty seconds' worth passes at one node; the other refuses the next of the same address.
    """
    n1, n2 = cluster.nodes
    ann, bob = n1.client("ann"), n2.client("bob")
    node = f"domain://msg-node.{DOMAIN}/sm"
    body = {"resources": [f"comm://{DOMAIN}/x"]}
    ask = {"id": 1, "type": "subscribe", "from": f"runtime://{DOMAIN}/bob/x", "to": node, "body": body}
    time.sleep(1.0)  # refills what both sent to open their sessions
    before = bob.ask(ask)["body"]["code"]

    ann.send(
        {
            "id": 1,
            "type": "ping",
            "from": f"runtime://{DOMAIN}/ann/x",
            "to": f"runtime://{DOMAIN}/bob/y",
            "body": {"value": "x" * 200_000},
        }
    )
    assert bob.receive() is not None
    time.sleep(1.0)
    after = bob.ask({**ask, "id": 2})["body"]["code"]

    assert (200, 429) == (before, after)
    ann.close()
    bob.close()
