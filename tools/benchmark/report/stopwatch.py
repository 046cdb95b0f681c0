"""
The measured interval: what was counted in it, and who used the processors.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from benchmark.load.delays import Delays
from benchmark.load.node_counts import NodeCounts
from benchmark.peers.processes import cpu_seconds

STILL = 5.0  # seconds without an arrival after which what is missing is lost


async def timed(
    job: dict[str, Any], counted: Callable[[], int], delays: Delays | None = None
) -> dict[str, Any]:
    """
    What was counted per second after the warm-up, the cores in use meanwhile, and how long messages took.
    """
    await asyncio.sleep(job["warmup"])
    node = await asyncio.to_thread(NodeCounts, job)
    if delays is not None:
        delays.clear()
    stop = started(job["pids"])
    before = counted()
    await asyncio.sleep(job["seconds"])
    after = counted()
    cores = stop()
    took = {} if delays is None else delays.percentiles()
    rate = (after - before) / cores.pop("seconds")
    cpu = {"cpu": cores["server_cores"] / rate * 1e6} if rate else {}
    return {"figure": rate, **cores, **cpu, **took, **await asyncio.to_thread(node.so_far)}


def started(pids: list[int]) -> Callable[[], dict[str, float]]:
    """
    Start the clocks; the result stops them: wall seconds, and cores used by generator and server.
    """
    wall, own, theirs = time.perf_counter(), time.process_time(), cpu_seconds(pids)

    def stop() -> dict[str, float]:
        seconds = time.perf_counter() - wall
        return {
            "seconds": seconds,
            "generator_cores": (time.process_time() - own) / seconds,
            "server_cores": (cpu_seconds(pids) - theirs) / seconds,
        }

    return stop


async def drained(missing: Callable[[], int]) -> int:
    """
    How many are missing for good: wait while they still arrive.
    """
    left, since = missing(), time.monotonic()
    while left and time.monotonic() - since < STILL:
        await asyncio.sleep(0.02)
        if missing() != left:
            left, since = missing(), time.monotonic()
    return left
