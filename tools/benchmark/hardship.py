"""
Hard days: a client that floods, ten thousand that come back at once, ten thousand that are away.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections import deque
from typing import Any

from benchmark.clients import NodeClient, connect, connect_all
from benchmark.pairs import address, ended
from benchmark.processes import cpu_seconds, rss

RATE = 100  # messages a second of the victim
LETTERS = 100  # that wait for each session that is away
SAMPLE = 100  # sessions that come back to look


async def flood(job: dict[str, Any]) -> dict[str, Any]:
    """
    The p99 latency of a victim at 100 messages/s, in milliseconds, beside one client that sends all it can.

    `flood` says to whom: the node, or a socket whose other end only throws away.
    """
    receiver, sender = await connect_all(job, 2, [address(job, 0)])
    letter = sender.letter(100, address(job, 1), address(job, 0), 100)
    times: deque[float] = deque()
    latencies: list[float] = []

    def arrived(count: int) -> None:
        now = time.perf_counter()
        for _ in range(count):
            latencies.append(now - times.popleft())

    receiver.inbox.receipt = arrived
    told = json.dumps({"kind": job["flood"], "port": job["port"], "run": job["run"]})
    flooder = subprocess.Popen([sys.executable, "-m", "benchmark.flooder", told], stdout=subprocess.PIPE)
    try:
        assert flooder.stdout is not None
        await asyncio.to_thread(flooder.stdout.readline)  # it floods
        await asyncio.sleep(1)
        begin, number = time.perf_counter(), 0
        while (now := time.perf_counter()) < begin + job["seconds"]:
            times.append(now)
            sender.wire.write(letter)
            number += 1
            await asyncio.sleep(max(0.0, begin + number / RATE - time.perf_counter()))
        await asyncio.sleep(1)
    finally:
        flooder.kill()
        flooder.wait()
    latencies.sort()
    figure = latencies[int(len(latencies) * 0.99)] * 1000 if latencies else None
    return {"figure": figure, "lost": len(times), **ended([receiver, sender])}


async def storm(job: dict[str, Any]) -> dict[str, Any]:
    """
    Seconds until all are back after everybody lost the connection at once, and comes again without a pause.

    `attempt_us` is the node's CPU time for each attempt, in microseconds.
    """
    count = job["sessions"]
    clients = await connect_all(job, count)
    tokens = [client.token for client in clients if isinstance(client, NodeClient)]
    for client in clients:
        client.wire.lose()
    await asyncio.sleep(1)
    attempts = 0

    async def again(index: int) -> Any:
        nonlocal attempts
        while True:
            attempts += 1
            try:
                return await connect(job | {"token": tokens[index]}, index)
            except Exception:
                await asyncio.sleep(0)  # a stub of today does not wait

    before, begin = cpu_seconds(job["pids"]), time.perf_counter()
    back = await asyncio.gather(*(again(index) for index in range(count)))
    seconds = time.perf_counter() - begin
    used = cpu_seconds(job["pids"]) - before
    extra = {"attempts": attempts, "attempt_us": round(used / attempts * 1e6)}
    return {"figure": seconds, "lost": 0, **extra, **ended(list(back))}


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
    for index in range(0, count, count // SAMPLE):
        back = await connect(job | {"token": tokens[index]}, index)
        for _ in range(LETTERS):
            try:
                await asyncio.wait_for(back.inbox.replies.get(), 5)
            except TimeoutError:
                lost += 1
        back.wire.lose()
    return {"figure": (after - before) / 1e6, "lost": lost, "errors": []}


def sender_of(job: dict[str, Any]) -> str:
    return f"runtime://localhost/{job['run']}-sender-0"
