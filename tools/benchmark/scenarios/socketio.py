"""
Socket.IO 1: clients that write to themselves, by WebSocket or by polling.

The node routes what they send to the address they are bound to; npm's server
sends every message back.  Both read the same bytes.
"""

import asyncio
import json
from typing import Any

from benchmark.load.clients import Refused
from benchmark.load.delays import Delays, InFlight
from benchmark.load.frames import MARK, compact, http_get, http_post, message
from benchmark.load.transports import Inbox, websocket
from benchmark.report.stopwatch import drained, timed
from benchmark.scenarios.pairs import Pair, address
from benchmark.scenarios.polling import Exchange

PATH = "/socket.io/?EIO=3&b64=1&transport="


def emitted(data: bytes) -> bytes:
    """
    The event with a message as a string, as the NodejsProtoStub sends it.
    """
    return b"42" + compact(["message", data.decode()])


def requests(job: dict[str, Any], index: int) -> list[bytes]:
    """
    What a client says to the node before it is measured.
    """
    if job["server"] != "msgnode":
        return []
    own = f"runtime://localhost/{job['run']}-{index}"
    opening = {"id": 1, "type": "open", "from": own, "to": "mn:/session"}
    binding = {"id": 2, "type": "subscribe", "from": own, "to": "domain://msg-node.localhost/sm"}
    return [
        emitted(compact(opening)),
        emitted(compact({**binding, "body": {"resources": [address(job, index)]}})),
    ]


def letter(job: dict[str, Any], index: int) -> bytes:
    own = address(job, index)
    return emitted(message(100 + index, own, own, job["size"]))


class SocketClient:
    """
    One WebSocket; both ends of a `Pair`.
    """

    async def open(self, job: dict[str, Any], index: int) -> None:
        self.inbox = Inbox(whole=True)
        self.wire = await websocket(job["port"], index, self.inbox, path=PATH + "websocket")
        for expected in (b"0", b"40"):
            reply = await self.inbox.reply()
            if not reply.startswith(expected):
                raise Refused(f"handshake: {reply!r}")
        for request in requests(job, index):
            self.wire.write(self.wire.frame(request))
            reply = await self.inbox.reply()
            if b'"code":200' not in reply:
                raise Refused(f"open: {reply!r}")

    def received(self, count: int) -> None:
        """
        Nothing is acknowledged.
        """


class PollingClient:
    """
    Two connections, for POST and for GET; no POST leaves before the last was answered.
    """

    def __init__(self, job: dict[str, Any], index: int, delays: Delays) -> None:
        self.sent = self.received = 0
        self._in_flight = InFlight(delays)
        self.running = True
        self._released = job["window"]
        self._job, self._index = job, index
        self._more = asyncio.Event()
        self._in, self._out = Exchange(), Exchange()
        self._packet = letter(job, index)
        self._path = PATH + "polling"

    async def open(self) -> None:
        for exchange in (self._in, self._out):
            await exchange.connect(self._job["port"], self._index)
        opened = await self._poll()
        told = opened[opened.index(b"{") : opened.index(b"}") + 1]
        self._path += f"&sid={json.loads(told)['sid']}"
        body = opened if b"2:40" in opened else await self._poll()
        if b"2:40" not in body:
            raise Refused(f"handshake: {body!r}")
        for request in requests(self._job, self._index):
            await self._post([request])
            body = await self._poll()
            if b'"code":200' not in body:
                raise Refused(f"open: {body!r}")

    async def send(self) -> None:
        """
        Post what is released, until it is time to stop.
        """
        while self.running:
            count, self._released = self._released, 0
            if not count:
                self._more.clear()
                await self._more.wait()
                continue
            self._in_flight.sent(count)
            self.sent += count
            await self._post([self._packet] * count)

    async def receive(self) -> None:
        """
        Poll, and release what came.
        """
        while True:
            count = (await self._poll()).count(MARK)
            self._in_flight.arrived(count)
            self.received += count
            self._released += count
            self._more.set()

    def lose(self) -> None:
        self._in.lose()
        self._out.lose()

    async def _post(self, packets: list[bytes]) -> None:
        body = b"".join(b"%d:%s" % (len(packet), packet) for packet in packets)
        status, answer = await self._out.ask(http_post(self._path, "", body))
        if (status, answer) != (200, b"ok"):
            raise Refused(f"POST: {status} {answer[:200]!r}")

    async def _poll(self) -> bytes:
        status, body = await self._in.ask(http_get(self._path, ""))
        if status != 200:
            raise Refused(f"GET: {status} {body[:200]!r}")
        return body


async def load(job: dict[str, Any]) -> dict[str, Any]:
    """
    Messages per second over `clients` clients, each with a window of its own.
    """
    return await (by_websocket if job["wire"] == "websocket" else by_polling)(job)


async def by_websocket(job: dict[str, Any]) -> dict[str, Any]:
    clients = [SocketClient() for _ in range(job["clients"])]
    pairs, delays = [], Delays()
    for index, client in enumerate(clients):
        await client.open(job, index)
        frame = client.wire.frame(letter(job, index))
        pairs.append(Pair(client, client, frame, job["window"], job["burst"], delays))  # type: ignore[arg-type]
    for pair in pairs:
        pair.start()
    result: dict[str, Any] = await timed(job, lambda: sum(pair.received for pair in pairs), delays)
    for pair in pairs:
        pair.stop()
    result["lost"] = await drained(lambda: sum(pair.missing() for pair in pairs))
    errors = [text for client in clients for text in client.inbox.complaints()]
    for client in clients:
        client.wire.lose()
    return result | {"errors": errors[:5]}


async def by_polling(job: dict[str, Any]) -> dict[str, Any]:
    delays = Delays()
    clients = [PollingClient(job, index, delays) for index in range(job["clients"])]
    await asyncio.gather(*(client.open() for client in clients))
    tasks = [asyncio.create_task(work) for client in clients for work in (client.send(), client.receive())]
    result: dict[str, Any] = await timed(job, lambda: sum(client.received for client in clients), delays)
    for client in clients:
        client.running = False
    result["lost"] = await drained(lambda: sum(client.sent - client.received for client in clients))
    result["errors"] = [repr(task.exception()) for task in tasks if task.done() and task.exception()]
    for task in tasks:
        task.cancel()
    for client in clients:
        client.lose()
    return result
