"""
Clients that acknowledge, at two real nodes of one domain, while nodes and NATS are killed under load.
"""

import asyncio
from collections.abc import Iterator

import pytest
from soaking.load.resuming_client import ResumingClient
from soaking.load.transports import LineLink

from .clustered import DOMAIN, Cluster

ANN, BOB = f"runtime://{DOMAIN}/ann", f"runtime://{DOMAIN}/bob"
COUNT = 3000
PATIENCE = 90.0  # seconds


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = Cluster(2)
    yield found
    found.stop()


async def exchange(cluster: Cluster) -> tuple[list[int], ResumingClient, ResumingClient]:
    """
    Ann sends COUNT messages to bob, who is at the other node; meanwhile bob's node is killed, then NATS, then
    ann's node, and then both nodes.
    """
    n1, n2 = cluster.nodes
    got: list[int] = []
    ann = ResumingClient(ANN, lambda: LineLink(n1.lines), lambda message: None)
    bob = ResumingClient(BOB, lambda: LineLink(n2.lines), lambda message: got.append(message["body"]["n"]))
    running = [asyncio.ensure_future(client.run()) for client in (ann, bob)]
    while not (ann.link and bob.link):
        await asyncio.sleep(0.05)
    loop = asyncio.get_running_loop()

    def restart(*nodes: int) -> None:
        for number in nodes:
            cluster.nodes[number].kill()
        for number in nodes:
            cluster.nodes[number].start()

    def restart_nats() -> None:
        cluster.nats.kill()
        cluster.nats.start()

    faults = {
        COUNT // 6: lambda: restart(1),
        2 * COUNT // 6: restart_nats,
        3 * COUNT // 6: lambda: restart(0),
        4 * COUNT // 6: lambda: restart(0, 1),
    }
    under_way = []
    for number in range(COUNT):
        ann.send({"id": number, "type": "ping", "from": f"{ANN}/x", "to": f"{BOB}/y", "body": {"n": number}})
        if number in faults:
            await asyncio.sleep(0.2)
            under_way.append(loop.run_in_executor(None, faults[number]))
        if number % 10 == 0:
            await asyncio.sleep(0.01)
        if number % (COUNT // 6) == COUNT // 12:
            await asyncio.gather(*under_way)
    end = loop.time() + PATIENCE
    while len(got) < COUNT and loop.time() < end:
        await asyncio.sleep(0.1)
    await asyncio.sleep(1.0)  # for what would be doubled
    for client in (ann, bob):
        client.stop()
    await asyncio.gather(*running)
    return got, ann, bob


def test_nothing_is_lost_or_doubled(cluster: Cluster) -> None:
    """
    Each message arrives once and in its order, although each node is killed twice and NATS once.
    """
    got, ann, bob = asyncio.run(exchange(cluster))

    assert list(range(COUNT)) == got, (len(got), len(set(got)), ann.history[-5:], bob.history[-5:])
    assert (0, 0) == (ann.missed, bob.missed)
