"""
Point to point, while the dashboard is open half of the time: what it adds to the CPU time of a message.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from benchmark.load.dashboard_reader import DashboardReader
from benchmark.load.delays import Delays
from benchmark.report.statistics import paired
from benchmark.report.stopwatch import started
from benchmark.scenarios import pairs

ALTERNATIONS = 11
SETTLE_SECONDS = 0.5  # after the dashboard was opened or closed


async def load(job: dict[str, Any]) -> dict[str, Any]:
    """
    Messages per second; and besides by how many per cent the CPU time per message grows.
    """
    return await pairs.load(job, _alternating)


async def _alternating(
    job: dict[str, Any], counted: Callable[[], int], delays: Delays | None
) -> dict[str, Any]:
    """
    With and without the dashboard in turn, each for the seconds of the job. A pair is with, without, without,
    with, or the other way round, so that a machine that becomes slower or faster favours neither.
    """
    await asyncio.sleep(job["warmup"])
    begin, before = asyncio.get_running_loop().time(), counted()
    costs: dict[bool, list[float]] = {True: [], False: []}
    for number in range(ALTERNATIONS):
        first = number % 2 == 0
        found: dict[bool, list[float]] = {True: [], False: []}
        for is_watching in (first, not first, not first, first):
            found[is_watching].append(await _cost(job | {"watching": is_watching}, counted))
        for is_watching, both in found.items():
            costs[is_watching].append(sum(both))
    rate = (counted() - before) / (asyncio.get_running_loop().time() - begin)
    growth, low, high = (100 * (ratio - 1) for ratio in paired(costs[True], costs[False]))
    besides = {"CPU time per message grows by %": growth, "at least %": low, "at most %": high}
    return {"figure": rate, "besides": besides}


async def _cost(job: dict[str, Any], counted: Callable[[], int]) -> float:
    """
    CPU seconds of the node for a message.
    """
    async with DashboardReader(job) as reader:
        await asyncio.sleep(SETTLE_SECONDS)
        stop, before = started(job["pids"]), counted()
        await asyncio.sleep(job["seconds"])
        used, passed = stop(), counted() - before
        if wrong := reader.check():
            raise RuntimeError(wrong[0])
    return used["server_cores"] * used["seconds"] / passed
