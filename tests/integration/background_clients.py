"""
Clients that acknowledge and come back by themselves, in a thread of their own.
"""

import asyncio
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any

from soaking.load.resuming_client import ResumingClient
from soaking.load.transports import LineLink

from .clustered import DOMAIN, Member
from .process import PATIENCE

EACH_SECONDS = 0.005  # between two messages


class BackgroundClients:
    """
    A client of each node by name. They run while this is a context.
    """

    def __init__(self, **nodes: Member) -> None:
        self._got: dict[str, list[int]] = {name: [] for name in nodes}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._clients = {name: self._client(name, node) for name, node in nodes.items()}
        self._running: list[Future[None]] = []

    def _client(self, name: str, node: Member) -> ResumingClient:
        got = self._got[name]
        return ResumingClient(
            f"runtime://{DOMAIN}/{name}",
            lambda: LineLink(node.lines),
            lambda message: got.append(message["body"]["n"]) if message["type"] == "ping" else None,
        )

    def __enter__(self) -> "BackgroundClients":
        self._thread.start()
        self._running = [
            asyncio.run_coroutine_threadsafe(client.run(), self._loop) for client in self._clients.values()
        ]
        end = time.monotonic() + PATIENCE
        while not all(client.link for client in self._clients.values()):
            assert time.monotonic() < end, "the clients do not connect"
            time.sleep(0.05)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for client in self._clients.values():
            self._loop.call_soon_threadsafe(client.stop)
        for running in self._running:
            running.result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    def send(self, name: str, to: str, numbers: Iterable[int]) -> None:
        """
        Sends messages with these numbers from one client to another.
        """
        client, runtime = self._clients[name], f"runtime://{DOMAIN}/{name}"
        for number in numbers:
            message: dict[str, Any] = {
                "id": number,
                "type": "ping",
                "from": f"{runtime}/x",
                "to": f"runtime://{DOMAIN}/{to}/y",
                "body": {"n": number},
            }
            self._loop.call_soon_threadsafe(partial(client.send, message))
            time.sleep(EACH_SECONDS)

    def got(self, name: str) -> list[int]:
        """
        The numbers that came to a client.
        """
        return list(self._got[name])

    def missed(self, name: str) -> int:
        return self._clients[name].missed
