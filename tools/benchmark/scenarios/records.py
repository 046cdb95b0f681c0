"""
Messages with a record of ten slots, checked or not, by the CPU time that the node uses for them.

CPU time is less disturbed by other programs than messages per second are, and says what a check costs.
"""

from typing import Any

from benchmark.scenarios import pairs


async def load(job: dict[str, Any]) -> dict[str, Any]:
    """
    Messages per second of the node's CPU time.
    """
    result = await pairs.load(job)
    return {**result, "figure": 1e6 / result["cpu"] if result.get("cpu") else None}
