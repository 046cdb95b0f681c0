"""
A program that sends to itself through nats-server: by msgnode.nats with Twisted, or by nats-py with asyncio.

It runs in a process of its own, because the generator's loop is neither Twisted's nor plain asyncio.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.task import deferLater, react

from benchmark.load.client_program import DRAIN
from benchmark.peers.processes import cpu_seconds
from msgnode.nats.client import NatsClient


async def load(job: dict[str, Any]) -> dict[str, Any]:
    """
    Messages per second of one connection with `window` messages under way.
    """
    command = [sys.executable, "-m", "benchmark.load.nats_program", json.dumps(job)]
    running = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await running.communicate()
    if running.returncode or not out:
        raise RuntimeError(err.decode()[-500:])
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result


class Count:
    """
    Messages sent and received, and the figures of the measured interval.
    """

    def __init__(self, job: dict[str, Any], pause: Callable[[float], Awaitable[Any]]) -> None:
        self.sent = self.received = 0
        self.is_running = True
        self._job = job
        self._pause = pause

    async def measure(self) -> dict[str, Any]:
        """
        The figures after the warm-up; then wait for what is under way.
        """
        job = self._job
        await self._pause(job["warmup"])
        before, wall, own = self.received, time.perf_counter(), time.process_time()
        theirs = cpu_seconds(job["pids"])
        await self._pause(job["seconds"])
        count, took, cpu = self.received - before, time.perf_counter() - wall, time.process_time() - own
        served = (cpu_seconds(job["pids"]) - theirs) / took
        self.is_running = False
        deadline = time.perf_counter() + DRAIN
        while self.received < self.sent and time.perf_counter() < deadline:
            await self._pause(0.05)
        return {
            "figure": count / took,
            "besides": {"CPU time of the client for each message, us": cpu / count * 1e6 if count else None},
            "generator_cores": cpu / took,
            "server_cores": served,
            "lost": self.sent - self.received,
            "errors": [],
        }


async def by_twisted(reactor: Any, job: dict[str, Any]) -> dict[str, Any]:
    count = Count(job, lambda seconds: deferLater(reactor, seconds, lambda: None))
    client = NatsClient(reactor, [f"nats://127.0.0.1:{job['port']}"])
    subject, payload = job["run"], b"x" * job["size"]

    def send() -> None:
        count.sent += 1
        client.publish(subject, payload)

    def received(_: Any) -> None:
        count.received += 1
        if count.is_running:
            send()

    await client.connect()
    client.subscribe(subject, received)
    for _ in range(job["window"]):
        send()
    result = await count.measure()
    await client.close()
    return result


async def by_nats_py(job: dict[str, Any]) -> dict[str, Any]:
    import nats

    count = Count(job, asyncio.sleep)
    client = await nats.connect(f"nats://127.0.0.1:{job['port']}")
    subject, payload = job["run"], b"x" * job["size"]

    async def send() -> None:
        count.sent += 1
        await client.publish(subject, payload)

    async def received(_: Any) -> None:
        count.received += 1
        if count.is_running:
            await send()

    await client.subscribe(subject, cb=received)
    for _ in range(job["window"]):
        await send()
    result = await count.measure()
    await client.close()
    return result


async def main(reactor: Any, job: dict[str, Any]) -> None:
    print(json.dumps(await by_twisted(reactor, job)))


def run(job: dict[str, Any]) -> None:
    if job["client"] == "twisted":
        react(main, [job])
    elif job["client"] == "nats-py":
        print(json.dumps(asyncio.run(by_nats_py(job))))
    else:
        import uvloop

        print(json.dumps(uvloop.run(by_nats_py(job))))


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
