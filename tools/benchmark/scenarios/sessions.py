"""
Sessions without traffic: how fast they open, what each one weighs, what stays when they end.
"""

import asyncio
import gc
import time
from typing import Any

from benchmark.load.clients import AT_ONCE, NodeClient, connect_all
from benchmark.peers.processes import rss
from benchmark.report.stopwatch import started
from benchmark.scenarios.pairs import address, ended
from benchmark.scenarios.polling import polled_again

SETTLE = 2.0  # seconds between the last session and weighing
LIVES = 200  # sessions a second in the churn
MINUTE = 60.0  # seconds


async def connect_rate(job: dict[str, Any]) -> dict[str, Any]:
    """
    Sessions opened per second, connection and handshake included.
    """
    await connect_all(job | {"run": job["run"] + "-warm"}, AT_ONCE)
    stop = started(job["pids"])
    clients = await connect_all(job, job["sessions"])
    cores = stop()
    return {"figure": len(clients) / cores.pop("seconds"), "lost": 0, **cores, **ended(clients)}


async def memory(job: dict[str, Any]) -> dict[str, Any]:
    """
    KiB of resident memory per idle session with one binding.
    """
    count = job["sessions"]
    before = rss(job["pids"])
    clients = await connect_all(job, count, [address(job, index) for index in range(count)])
    await asyncio.sleep(SETTLE)
    after = rss(job["pids"])
    return {"figure": (after - before) / count / 1024, "lost": 0, **ended(clients)}


async def churn(job: dict[str, Any]) -> dict[str, Any]:
    """
    RSS in the last minute over RSS in the third, while sessions connect, bind and end.

    A third of them lose the connection without a word and expire; of the others
    every fourth loses it too, comes back by polling, and closes there.
    """
    gc.enable()
    start = time.monotonic()
    weights: list[int] = []
    lives = 0
    errors: list[str] = []
    while len(weights) < job["minutes"]:
        tick = time.monotonic()
        batch = [address(job, lives + index) for index in range(LIVES)]
        clients = await connect_all(job | {"run": f"{job['run']}-{lives}"}, LIVES, batch)
        quiet, polite = clients[::3], [client for at, client in enumerate(clients) if at % 3]
        movers, stayers = polite[::4], [client for at, client in enumerate(polite) if at % 4]
        for client in [*quiet, *movers]:
            client.wire.cut()
        errors += ended(stayers)["errors"]
        for at, client in enumerate(movers):
            assert isinstance(client, NodeClient)
            errors += await polled_again(job, at, client.runtime, client.token)
        lives += LIVES
        await asyncio.sleep(max(0.0, 1.0 - (time.monotonic() - tick)))
        if time.monotonic() - start > (len(weights) + 1) * MINUTE:
            weights.append(rss(job["pids"]))
    third = weights[min(2, len(weights) - 1)]
    return {"figure": weights[-1] / third, "lost": 0, "errors": errors[:5], "rss": weights, "lives": lives}
