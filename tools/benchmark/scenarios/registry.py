"""
The domain registry: round trips through the node and past it, and routing beside one that hangs.
"""

import asyncio
import json
import os
import sys
from typing import Any

from benchmark.load.clients import NodeClient, connect
from benchmark.load.frames import compact
from benchmark.report.stopwatch import drained, timed
from benchmark.scenarios import pairs
from benchmark.scenarios.pairs import Pair, ended

ADDRESS = "domain://registry.localhost"
RATE = 100  # requests a second beside the pairs


def _request(client: NodeClient, type: str, body: dict[str, Any]) -> bytes:
    own = f"{client.runtime}/registry/"
    return client.wire.frame(compact({"id": 5, "type": type, "from": own, "to": ADDRESS, "body": body}))


async def _registered(job: dict[str, Any]) -> tuple[NodeClient, str]:
    """
    A client, and the hyperty it has registered.
    """
    client = await connect(job, 0)
    assert isinstance(client, NodeClient)
    url = f"hyperty://localhost/{job['run']}"
    value = {"url": url, "user": "ann@example.org", "descriptor": "d", "resources": ["chat"]}
    client.wire.write(_request(client, "create", {"value": value}))
    reply = json.loads(await client.inbox.reply())
    if reply["body"]["code"] != 200:
        raise RuntimeError(f"the registry said {reply['body']}")
    return client, url


async def through(job: dict[str, Any]) -> dict[str, Any]:
    """
    Records read per second through the node, `window` requests under way; with `straight`, past it.
    """
    client, url = await _registered(job)
    if job.get("straight"):
        result = await _straight(job, url)
        return result | ended([client])
    client.inbox.mark = b'"code":200'
    loop = Pair(client, client, _request(client, "read", {"resource": url}), job["window"])
    loop.start()
    measured: dict[str, Any] = await timed(job, lambda: loop.received)
    loop.stop()
    measured["lost"] = await drained(loop.missing)
    return measured | ended([client])


async def _straight(job: dict[str, Any], url: str) -> dict[str, Any]:
    call = json.dumps({key: job[key] for key in ("registry", "window", "warmup", "seconds")} | {"url": url})
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmark.load.raw_http",
        call,
        env=dict(os.environ),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return dict(json.loads(output))


async def beside(job: dict[str, Any]) -> dict[str, Any]:
    """
    Messages per second of the pairs, while `asking` requests a second go to the registry.
    """
    client = await connect(job | {"run": job["run"] + "-asking"}, 0)
    assert isinstance(client, NodeClient)
    client.inbox.receipt = lambda count: None
    client.inbox.mark = b'"type":"response"'
    letter = _request(client, "read", {"resource": "hyperty://localhost/nobody"})

    async def ask() -> None:
        while True:
            await asyncio.sleep(0.01)
            for _ in range(job["asking"] // RATE):
                client.wire.write(letter)

    asking = asyncio.create_task(ask())
    try:
        return await pairs.load(job)
    finally:
        asking.cancel()
        client.close()
