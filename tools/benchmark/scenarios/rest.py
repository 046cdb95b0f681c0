"""
REST: requests to /resource, or the same messages to /message, that a device answers.

Each connection is kept open, and has one request under way.
"""

import asyncio
import json
from typing import Any

from benchmark.load.clients import Client, Refused, connect
from benchmark.load.delays import Delays, InFlight
from benchmark.load.frames import compact, http_get, http_post
from benchmark.report.stopwatch import timed
from benchmark.scenarios.pairs import address, ended
from benchmark.scenarios.polling import Exchange


class Asking:
    """
    A connection that reads a resource again and again.
    """

    def __init__(self, job: dict[str, Any], request: bytes, delays: Delays) -> None:
        self._in_flight = InFlight(delays)
        self._job = job
        self._request = request
        self.answered = 0
        self.running = True

    async def ask(self, index: int) -> None:
        """
        Ask until it is time to stop.
        """
        exchange = Exchange()
        await exchange.connect(self._job["port"], index)
        while self.running:
            self._in_flight.sent(1)
            status, body = await exchange.ask(self._request)
            if status != 200 or b"xxx" not in body:
                raise Refused(f"{status} {body[:200]!r}")
            self._in_flight.arrived(1)
            self.answered += 1
        exchange.lose()


async def _answer(device: Client, size: int) -> None:
    """
    Answer what comes, as a device does, with a value of so many bytes.
    """
    body = {"code": 200, "value": "x" * size}
    while True:
        asked = json.loads(await device.inbox.replies.get())
        answer = {"id": asked["id"], "type": "response", "from": asked["to"], "to": asked["from"]}
        device.wire.write(device.wire.frame(compact({**answer, "body": body})))


async def load(job: dict[str, Any]) -> dict[str, Any]:
    """
    Requests per second over `clients` connections to `path`.
    """
    to = address(job, 0)
    device = await connect(job, 0)
    await device.bind([to])
    answering = asyncio.create_task(_answer(device, job["size"]))
    request = http_get(f"/resource/{to}", "")
    if job["path"] == "/message":
        request = http_post("/message", "", compact({"id": 1, "type": "read", "to": to}))
    delays = Delays()
    clients = [Asking(job, request, delays) for _ in range(job["clients"])]
    tasks = [asyncio.create_task(client.ask(index)) for index, client in enumerate(clients, 1)]
    result: dict[str, Any] = await timed(job, lambda: sum(client.answered for client in clients), delays)
    for client in clients:
        client.running = False
    done = await asyncio.gather(*tasks, return_exceptions=True)
    answering.cancel()
    result["lost"] = 0
    closed = ended([device])
    closed["errors"] = [*(repr(each) for each in done if each is not None), *closed["errors"]]
    return result | closed
