"""
Point to point by long polling: the sender posts what is released, the receiver holds a GET.

Two connections for each pair, kept open; no POST leaves before the last was answered.
"""

import asyncio
import json
from typing import Any

from benchmark.load.clients import Refused
from benchmark.load.delays import Delays, InFlight
from benchmark.load.frames import MARK, compact, http_get, http_post, message
from benchmark.load.transports import source
from benchmark.report.stopwatch import drained, timed
from benchmark.scenarios.pairs import address

END_OF_HEAD = b"\r\n\r\n"


class Exchange:
    """
    One HTTP connection: a request, then its answer.
    """

    async def connect(self, port: int, index: int) -> None:
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", port, local_addr=source(index)
        )

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """
        The status and the body.
        """
        self._writer.write(request)
        head = await self._reader.readuntil(END_OF_HEAD)
        status = int(head[9:12])
        fields = head.lower()
        if status == 204:
            return status, b""
        if b"transfer-encoding: chunked" in fields:
            return status, await self._chunks()
        _, _, rest = fields.partition(b"content-length:")
        return status, await self._reader.readexactly(int(rest.partition(b"\r")[0]))

    def lose(self) -> None:
        self._writer.close()

    async def _chunks(self) -> bytes:
        body = b""
        while size := int(await self._reader.readline(), 16):
            body += await self._reader.readexactly(size)
            await self._reader.readline()
        await self._reader.readline()
        return body


class PollingPair:
    """
    A closed loop over two sessions, as `pairs.Pair` is.
    """

    def __init__(self, job: dict[str, Any], index: int, delays: Delays) -> None:
        self._in_flight = InFlight(delays)
        self.sent = 0
        self.received = 0
        self.running = True
        self.released = job["window"]
        self._job = job
        self._index = index
        self._more = asyncio.Event()

    async def open(self) -> None:
        number, job = 2 * self._index, self._job
        to = address(job, number)
        self._inward, self._in_token = await self._session(number)
        self._outward, self._out_token = await self._session(number + 1)
        own = f"runtime://localhost/{job['run']}-{number}/sm"
        to_node = "domain://msg-node.localhost/sm"
        request = {"id": 2, "type": "subscribe", "from": own, "to": to_node, "body": {"resources": [to]}}
        await self._inward.ask(http_post("/poll", self._in_token, compact(request)))
        cursor, replies = await self._poll(0)
        if replies.count(b'"code":200') != 1:
            raise Refused(f"subscribe: {replies!r}")
        self._cursor = cursor
        self._letter = message(100 + self._index, address(job, number + 1), to, job["size"])

    async def send(self) -> None:
        """
        Post what is released, until it is time to stop.
        """
        while self.running:
            count, self.released = self.released, 0
            if not count:
                self._more.clear()
                await self._more.wait()
                continue
            self._in_flight.sent(count)
            self.sent += count
            batch = b"[" + b",".join([self._letter] * count) + b"]"
            status, body = await self._outward.ask(http_post("/poll", self._out_token, batch))
            if status != 202:
                raise Refused(f"POST: {status} {body[:200]!r}")

    async def receive(self) -> None:
        """
        Poll, and release what came.
        """
        while True:
            self._cursor, body = await self._poll(self._cursor)
            count = body.count(MARK)
            self._in_flight.arrived(count)
            self.received += count
            self.released += count
            self._more.set()

    def lose(self) -> None:
        self._inward.lose()
        self._outward.lose()

    async def _session(self, number: int) -> tuple[Exchange, str]:
        exchange = Exchange()
        await exchange.connect(self._job["port"], number)
        request = {
            "id": 1,
            "type": "open",
            "from": f"runtime://localhost/{self._job['run']}-{number}",
            "to": "mn:/session",
        }
        status, body = await exchange.ask(http_post("/poll", "", compact(request)))
        if status != 200:
            raise Refused(f"open: {status} {body[:200]!r}")
        return exchange, json.loads(body)["messages"][0]["body"]["runtimeToken"]

    async def _poll(self, cursor: int) -> tuple[int, bytes]:
        status, body = await self._inward.ask(http_get(f"/poll?wait=25&after={cursor}", self._in_token))
        if status == 204:
            return cursor, b""
        if status != 200:
            raise Refused(f"GET: {status} {body[:200]!r}")
        return json.loads(body)["cursor"], body


async def polled_again(job: dict[str, Any], index: int, runtime: str, token: str) -> list[str]:
    """
    Come back to a session by polling and close it there; what the node refused.
    """
    exchange = Exchange()
    await exchange.connect(job["port"], index)
    request = {"id": 1, "type": "re-open", "from": f"{runtime}/{token}", "to": "mn:/session"}
    status, body = await exchange.ask(http_post("/poll", "", compact(request)))
    good = status == 200 and json.loads(body)["messages"][0]["body"]["code"] == 200
    errors = [] if good else [f"re-open: {status} {body[:200]!r}"]
    request = {"id": 2, "type": "close", "from": runtime, "to": "mn:/session"}
    status, body = await exchange.ask(http_post("/poll", token, compact(request)))
    exchange.lose()
    return errors if status == 202 else [*errors, f"close: {status} {body[:200]!r}"]


async def load(job: dict[str, Any]) -> dict[str, Any]:
    """
    Messages per second over `pairs` polling pairs.
    """
    delays = Delays()
    pairs = [PollingPair(job, index, delays) for index in range(job["pairs"])]
    await asyncio.gather(*(pair.open() for pair in pairs))
    tasks = [asyncio.create_task(work) for pair in pairs for work in (pair.send(), pair.receive())]
    result: dict[str, Any] = await timed(job, lambda: sum(pair.received for pair in pairs), delays)
    for pair in pairs:
        pair.running = False
    result["lost"] = await drained(lambda: sum(pair.sent - pair.received for pair in pairs))
    result["errors"] = [repr(task.exception()) for task in tasks if task.done() and task.exception()]
    for task in tasks:
        task.cancel()
    for pair in pairs:
        pair.lose()
    return result
