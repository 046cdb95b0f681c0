"""
The measured interval: what was counted in it, and who used the processors.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from benchmark.peers.processes import cpu_seconds

STILL = 5.0  # seconds without an arrival after which what is missing is lost


async def timed(job: dict[str, Any], counted: Callable[[], int]) -> dict[str, float]:
    """
    What was counted per second after the warm-up, and the cores in use meanwhile.
    """
    await asyncio.sleep(job["warmup"])
    stop = started(job["pids"])
    before = counted()
    await asyncio.sleep(job["seconds"])
    after = counted()
    cores = stop()
    return {"figure": (after - before) / cores.pop("seconds"), **cores}


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
