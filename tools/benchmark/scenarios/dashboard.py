"""
Point to point, while somebody looks at the dashboard.
"""

from typing import Any

from benchmark.load.dashboard_reader import DashboardReader
from benchmark.scenarios import pairs


async def load(job: dict[str, Any]) -> dict[str, Any]:
    """
    What `pairs` measures, beside a reader of the overview and its events.
    """
    async with DashboardReader(job) as reader:
        result = await pairs.load(job)
        result["errors"] += reader.check()
    return result
