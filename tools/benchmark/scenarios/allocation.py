"""
Allocation: one client asks for addresses, one request after another or several under way.
"""

from typing import Any

from benchmark.load.clients import NodeClient, connect
from benchmark.report.stopwatch import drained, timed
from benchmark.scenarios.pairs import Pair, ended


async def load(job: dict[str, Any]) -> dict[str, Any]:
    """
    Requests answered per second, each for `number` addresses.
    """
    client = await connect(job, 0)
    assert isinstance(client, NodeClient)
    client.inbox.mark = b'"code":200'
    loop = Pair(client, client, client.creation(job["number"]), job["window"], job["burst"])
    loop.start()
    result: dict[str, Any] = await timed(job, lambda: loop.received)
    loop.stop()
    result["lost"] = await drained(loop.missing)
    return result | ended([client])
