"""
Hard days: a client that floods, ten thousand that come back at once, ten thousand that are away.
"""

import asyncio
import json
import subprocess
import sys
import time
from typing import Any

from benchmark.load.clients import Client, NodeClient, connect, connect_all
from benchmark.load.frames import MARK
from benchmark.peers.processes import cpu_seconds, rss
from benchmark.report.stopwatch import drained, started
from benchmark.scenarios.pairs import address, ended
from benchmark.scenarios.steady_pair import Victim

MOST = 120.0  # seconds a storm may last
LETTERS = 100  # that wait for each session that is away
SAMPLE = 100  # sessions that come back to look


async def flood(job: dict[str, Any]) -> dict[str, Any]:
    """
    The p99 latency of a victim, in milliseconds, beside one client that sends all it can.

    `flood` says to whom: the node, or a socket whose other end only throws away.
    """
    victim = Victim(job)
    await victim.open()
    told = json.dumps({"kind": job["flood"], "port": job["port"], "run": job["run"]})
    flooder = subprocess.Popen([sys.executable, "-m", "benchmark.load.flooder", told], stdout=subprocess.PIPE)
    try:
        assert flooder.stdout is not None
        if not await asyncio.to_thread(flooder.stdout.readline):
            return {"figure": None, "errors": ["the flooder did not start"]}
        await asyncio.sleep(job["warmup"])
        stop = started(job["pids"])
        await victim.send(job["seconds"])
        cores = stop()
        lost = await victim.missing()
        over = flooder.poll() is not None
    finally:
        flooder.kill()
        flooder.wait()
    cores.pop("seconds")
    result = {"figure": victim.percentile(0.99), "lost": lost, **cores, **ended(victim.clients)}
    if over:
        result["errors"] = ["the flooder ended early", *result["errors"]]
    return result | {"besides": {"p50 in ms": victim.percentile(0.5)}}


async def storm(job: dict[str, Any]) -> dict[str, Any]:
    """
    Seconds until all are back after everybody lost the connection at once, and comes again without a pause.

    Cutting is a reset, and the first attempts leave in the same turn.
    """
    count = job["sessions"]
    clients = await connect_all(job, count)
    tokens = [client.token for client in clients if isinstance(client, NodeClient)]
    victim = Victim(job)
    await victim.open()
    attempts = 0

    async def again(index: int) -> Client:
        nonlocal attempts
        while True:
            attempts += 1
            try:
                return await connect(job | {"token": tokens[index]}, index)
            except Exception:
                await asyncio.sleep(0)  # a stub of today does not wait

    sending = asyncio.create_task(victim.send(MOST))
    before, begin = cpu_seconds(job["pids"]), time.perf_counter()
    for client in clients:
        client.wire.cut()
    try:
        coming = asyncio.gather(*(again(index) for index in range(count)))
        back = await asyncio.wait_for(coming, MOST)
        seconds = time.perf_counter() - begin
    finally:
        sending.cancel()
    used = cpu_seconds(job["pids"]) - before
    lost = await victim.missing()
    besides = {
        "attempts": attempts,
        "us of the node for each accepted attempt": used / count * 1e6,
        "p50 in ms of the victim": victim.percentile(0.5),
        "p99 in ms of the victim": victim.percentile(0.99),
    }
    errors = ended([*back, *victim.clients])
    return {"figure": seconds, "lost": lost, "besides": besides, **errors}


async def away(job: dict[str, Any]) -> dict[str, Any]:
    """
    MB of resident memory for sessions that are away, each with a hundred messages waiting.
    """
    count = job["sessions"]
    clients = await connect_all(job, count, [address(job, index) for index in range(count)])
    before = rss(job["pids"])
    names = [client.runtime for client in clients if isinstance(client, NodeClient)]
    tokens = [client.token for client in clients if isinstance(client, NodeClient)]
    for client in clients:
        client.wire.lose()
    await asyncio.sleep(1)
    (sender,) = await connect_all(job | {"run": job["run"] + "-sender"}, 1)
    for round_ in range(LETTERS):
        letters = [sender.letter(round_, sender_of(job), f"{name}/x", 100) for name in names]
        for at in range(0, count, 100):
            sender.wire.write(b"".join(letters[at : at + 100]))
            await asyncio.sleep(0.001)
    sender.wire.write(sender.wire.frame(b'{"id":9,"type":"read","from":"x","to":"mn:/nothing"}'))
    await asyncio.wait_for(sender.inbox.replies.get(), 120)
    after = rss(job["pids"])
    lost = 0
    for index in range(0, count, max(1, count // SAMPLE)):
        back = await connect(job | {"token": tokens[index]}, index)
        lost += await _missing(back)
        back.wire.lose()
    return {"figure": (after - before) / 1e6, "lost": lost, "errors": []}


async def _missing(back: Client) -> int:
    """
    How many of its letters a client that came back does not get; too many is as wrong as too few.
    """
    got = sum(data.count(MARK) for data in back.inbox.taken())

    def more(count: int) -> None:
        nonlocal got
        got += count

    back.inbox.receipt = more
    return abs(await drained(lambda: LETTERS - got))


def sender_of(job: dict[str, Any]) -> str:
    return f"runtime://localhost/{job['run']}-sender-0"
