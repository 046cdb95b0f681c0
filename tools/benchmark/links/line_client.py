"""
A client that resumes, by TCP lines, at a node of any domain; messages are counted and not parsed.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from benchmark.load.frames import MARK, compact, message

ACK_AFTER = 64  # messages
ACK_WITHIN = 0.5  # seconds
MAX_LINE = 1 << 20


class LineClient(asyncio.Protocol):
    """
    One session. `came` is called with the number of messages that a read brought.
    """

    def __init__(self, domain: str, name: str) -> None:
        self.domain = domain
        self.runtime = f"runtime://{domain}/{name}"
        self.hyperty = f"hyperty://{domain}/{name}"
        self.received = 0  # of this session
        self.came: Callable[[int], None] | None = None
        self._told = 0
        self._replies: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._rest = b""
        self._soon: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, port: int, domain: str, name: str) -> "LineClient":
        _, client = await asyncio.get_running_loop().create_connection(
            lambda: cls(domain, name), "127.0.0.1", port
        )
        opening = {"id": 1, "type": "open", "from": client.runtime, "to": "mn:/session"}
        await client.ask({**opening, "body": {"resume": True}})
        client.received = 0
        return client

    async def bind(self, addresses: Sequence[str]) -> int:
        """
        Subscribe; the code of the answer.
        """
        to = f"domain://msg-node.{self.domain}/sm"
        request = {"id": 2, "type": "subscribe", "from": self.runtime, "to": to}
        answer = await self.ask({**request, "body": {"resources": list(addresses)}})
        return int(answer["body"]["code"])

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self.write(compact(request) + b"\n")
        return await asyncio.wait_for(self._replies.get(), 20)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.write = transport.write

    def data_received(self, data: bytes) -> None:
        if self.came is not None:
            if count := data.count(MARK):
                self._count(count)
                self.came(count)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            reply = json.loads(line)
            if reply["type"] != "ack":
                self._count(1)
                self._replies.put_nowait(reply)

    def _count(self, count: int) -> None:
        self.received += count
        if self.received - self._told >= ACK_AFTER:
            self._acknowledge()
        elif self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(ACK_WITHIN, self._late)

    def _late(self) -> None:
        self._soon = None
        if self.received > self._told:
            self._acknowledge()

    def _acknowledge(self) -> None:
        self._told = self.received
        ack = {"id": 0, "type": "ack", "from": self.runtime, "to": "mn:/session"}
        self.write(compact({**ack, "body": {"received": self.received}}) + b"\n")

    def close(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
        self._transport.close()


class Pair:
    """
    A closed loop of one sender and one receiver: for each message that came, the next is sent.

    `delays` are the seconds that messages took, in the order of their arrival.
    """

    def __init__(self, sender: LineClient, receiver: LineClient, window: int, size: int) -> None:
        self.sent = self.arrived = 0
        self.delays: list[float] = []
        self._sender, self._receiver = sender, receiver
        self._window = window
        self._letter = message(7, sender.hyperty, receiver.runtime, size) + b"\n"
        self._under_way: deque[float] = deque()
        self._is_running = True
        receiver.came = self._came

    def start(self) -> None:
        self._send(self._window)

    def stop(self) -> None:
        self._is_running = False

    def close(self) -> None:
        self._sender.close()
        self._receiver.close()

    def _came(self, count: int) -> None:
        now = perf_counter()
        for _ in range(count):
            self.delays.append(now - self._under_way.popleft())
        self.arrived += count
        if self._is_running:
            self._send(count)

    def _send(self, count: int) -> None:
        now = perf_counter()
        for _ in range(count):
            self._under_way.append(now)
            self._sender.write(self._letter)
        self.sent += count
