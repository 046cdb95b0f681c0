"""
A Twisted program that sends to itself: by msgnode.client, or by plain Autobahn with the same JSON library.

It runs in a process of its own, because the generator's loop is not Twisted's.
"""

import asyncio
import json
import sys
import time
from typing import Any

import msgspec
from autobahn.twisted.websocket import WebSocketClientFactory, WebSocketClientProtocol
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater, react

from benchmark.peers.processes import cpu_seconds
from msgnode.client import Client

DRAIN = 2.0  # seconds for what is under way at the end


async def load(job: dict[str, Any]) -> dict[str, Any]:
    """
    Messages per second of one sender and one receiver in one program.
    """
    command = [sys.executable, "-m", "benchmark.load.client_program", json.dumps(job)]
    running = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await running.communicate()
    if running.returncode or not out:
        raise RuntimeError(err.decode()[-500:])
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result


class Plain(WebSocketClientProtocol):  # type: ignore[misc]
    """
    Autobahn's client as its examples have it: a message in, decoded; a message out, encoded.
    """

    def onOpen(self) -> None:
        self.factory.opened.callback(self)

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        self.factory.heard(msgspec.json.decode(payload))

    def tell(self, message: dict[str, Any]) -> None:
        self.sendMessage(msgspec.json.encode(message))


class PlainEnd:
    """
    One connection of plain Autobahn, with the little of a client that the load needs.
    """

    def __init__(self, reactor: Any, port: int, runtime: str) -> None:
        self.runtime = runtime
        self._factory = WebSocketClientFactory(f"ws://127.0.0.1:{port}/ws", reactor=reactor)
        self._factory.protocol = Plain
        self._factory.opened = Deferred()
        self._factory.heard = self._answered
        reactor.connectTCP("127.0.0.1", port, self._factory)

    async def connect(self) -> None:
        self._link = await self._factory.opened
        await self._ask({"id": 1, "type": "open", "from": self.runtime, "to": "mn:/session"})

    async def subscribe(self, address: str, handler: Any) -> None:
        to, body = "domain://msg-node.localhost/sm", {"resources": [address]}
        await self._ask({"id": 2, "type": "subscribe", "from": self.runtime, "to": to, "body": body})
        self._factory.heard = handler

    def publish(self, to: str, body: dict[str, Any]) -> None:
        self._link.tell({"id": 3, "type": "update", "from": self.runtime, "to": to, "body": body})

    def close(self) -> None:
        self._link.tell({"id": 4, "type": "close", "from": self.runtime, "to": "mn:/session"})

    async def _ask(self, message: dict[str, Any]) -> None:
        self._waiting: Deferred[Any] = Deferred()
        self._link.tell(message)
        await self._waiting

    def _answered(self, message: dict[str, Any]) -> None:
        self._waiting.callback(message)


def end(reactor: Any, job: dict[str, Any], name: str) -> Any:
    """
    A client of the kind that is measured.
    """
    runtime = f"runtime://localhost/{job['run']}-{name}"
    if job["client"] == "autobahn":
        return PlainEnd(reactor, job["port"], runtime)
    scheme, path = ("tcp", "") if job["wire"] == "line" else ("ws", "/ws")
    url = f"{scheme}://127.0.0.1:{job['port']}{path}"
    return Client(reactor, url, runtime, resume=job.get("resume", False))


async def measure(reactor: Any, job: dict[str, Any]) -> dict[str, Any]:
    """
    A window of messages under way, the receiver letting the next go, for the time that is asked.
    """
    address, body = f"comm://localhost/{job['run']}", {"value": "x" * job["size"]}
    sender, receiver = end(reactor, job, "s"), end(reactor, job, "r")
    received, sent, running = 0, 0, True

    def send() -> None:
        nonlocal sent
        sent += 1
        sender.publish(address, body)

    def heard(_: Any) -> None:
        nonlocal received
        received += 1
        if running:
            send()

    for client in (sender, receiver):
        await client.connect()
    await receiver.subscribe(address, heard)
    for _ in range(job["window"]):
        send()
    await deferLater(reactor, job["warmup"], lambda: None)
    before, wall, own, theirs = received, time.perf_counter(), time.process_time(), cpu_seconds(job["pids"])
    await deferLater(reactor, job["seconds"], lambda: None)
    took = time.perf_counter() - wall
    result = {
        "figure": (received - before) / took,
        "generator_cores": (time.process_time() - own) / took,
        "server_cores": (cpu_seconds(job["pids"]) - theirs) / took,
    }
    running = False
    deadline = time.perf_counter() + DRAIN
    while received < sent and time.perf_counter() < deadline:
        await deferLater(reactor, 0.05, lambda: None)
    for client in (sender, receiver):
        client.close()
    await deferLater(reactor, 0.1, lambda: None)
    return {**result, "lost": sent - received, "errors": []}


async def main(reactor: Any) -> None:
    print(json.dumps(await measure(reactor, json.loads(sys.argv[1]))))


if __name__ == "__main__":
    react(main)
