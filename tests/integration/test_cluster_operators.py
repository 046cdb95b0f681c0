"""
Operators of real nodes of one domain: any node tells them about all.
"""

import os
import signal
from collections.abc import Iterator

import pytest

from .clustered import DOMAIN, Cluster, live_of_all


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = Cluster(3)
    yield found
    found.stop()


def test_liveness_of_all_nodes(cluster: Cluster) -> None:
    """
    /live?node=all of any node has what each node says; one that stands still is named with the reason, and
    has its place again when it goes on.
    """
    n1, n2, n3 = cluster.nodes
    ann = n2.client("ann")
    assert n3.process is not None

    found = live_of_all(n1)
    os.kill(n3.process.process.pid, signal.SIGSTOP)
    try:
        stopped = live_of_all(n2)
    finally:
        os.kill(n3.process.process.pid, signal.SIGCONT)
    again = live_of_all(n2)

    assert {n1.name: 0, n2.name: 1, n3.name: 0} == {
        name: each["sessions"]["attached"] for name, each in found.items()
    }
    assert {"up"} == {each["status"] for each in found.values()}
    assert ["up", "up"] == [stopped[node.name]["status"] for node in (n1, n2)]
    missing = stopped[f"mn://{DOMAIN}/n3"]
    expected = (503, "no-path", f"{n3.name} did not answer in 2 s")
    assert expected == (missing["code"], missing["reason"], missing["description"])
    assert {"up"} == {each["status"] for each in again.values()}
    ann.close()
