"""
All clients of a run: some publish and observe, some have no resume, one is flooded, one sends garbage.
"""

import asyncio
import random
from bisect import bisect_left
from typing import Any

from soaking.load.flooded_client import FloodedClient
from soaking.load.garbling_client import GarblingClient
from soaking.load.legacy_client import LegacyClient
from soaking.load.publisher import Publisher
from soaking.load.resuming_client import ResumingClient
from soaking.load.transports import LineLink
from soaking.peers.proxy import Proxy
from soaking.progress import Stall, wait_until

ASKS = 0.2  # requests for each message published
# Where the node does not keep up, a publisher lengthens its pauses by so much each time, up to so much.
SLOWER, FASTER, MAX_PAUSE = 1.5, 0.9, 10.0


class Load:
    """
    The clients, and the proxies that they connect through.
    """

    def __init__(self, web: Proxy, lines: Proxy, ports: dict[str, int], count: int, rate: float) -> None:
        self.web = web
        self.lines = lines
        self.publishers: list[Publisher] = []
        self.publishers += [Publisher(number, self.publishers, count, self) for number in range(count)]
        # From when to when a node that was killed could not write down what it had delivered.
        self.disk_full: list[tuple[float, float]] = []
        self.legacy = [
            LegacyClient(number, self, lambda: self.publishers[0].published, self.disk_full)
            for number in range(max(2, count // 8))
        ]
        self._flooder = ResumingClient(
            "runtime://soak/flooder", lambda: LineLink(lines.port), lambda message: None
        )
        self.flooded = FloodedClient(self, self._flooder)
        self.garbling = GarblingClient(ports, self._flooder)
        self._rate = rate
        self._tasks: list[asyncio.Task[None]] = []
        self._publishing: list[asyncio.Task[None]] = []

    @property
    def web_port(self) -> int:
        return self.web.port

    @property
    def line_port(self) -> int:
        return self.lines.port

    @property
    def clients(self) -> list[ResumingClient]:
        """
        All that acknowledge.
        """
        return [one.client for one in self.publishers] + [self.flooded.client, self._flooder]

    def moved(self) -> object:
        """
        What changes whenever a client receives something, or something of it is acknowledged.
        """
        return [client.moved for client in self.clients]

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(client.run()) for client in self.clients]
        self.flooded.subscribe()
        for one in self.publishers:
            one.subscribe()
        if not await wait_until(lambda: all(one.is_subscribed for one in self.publishers), Stall(self.moved)):
            raise RuntimeError("not all clients could subscribe")
        self._tasks += [asyncio.create_task(legacy.run()) for legacy in self.legacy]
        self._publishing = [asyncio.create_task(self._publish(one)) for one in self.publishers]

    async def _publish(self, publisher: Publisher) -> None:
        """
        Publish and ask at the rate wanted, or at as much of it as the node bears.
        """
        pause = 1.0
        while True:
            await asyncio.sleep(pause * random.expovariate(self._rate))
            bears = publisher.publish()
            pause = max(1.0, pause * FASTER) if bears else min(pause * SLOWER, MAX_PAUSE)
            if bears and random.random() < ASKS:
                publisher.ask()

    async def overflow(self, number: int) -> None:
        """
        The flooded client is away until the node has taken so many messages for it.
        """
        self.flooded.client.stalled.clear()
        self.flooded.client.lose()
        self.flooded.flood(number)
        # Only when the node has all of it, more waits than may.
        await wait_until(lambda: not self._flooder.kept, Stall(lambda: self._flooder.moved))
        self.flooded.client.stalled.set()

    async def settled(self) -> bool:
        """
        Wait until all floods are over: what was sent has come, and the sender knows.  False: something lacks.
        """
        return await wait_until(
            lambda: (
                not self._flooder.kept
                and not self.flooded.client.kept
                and not sum(self.flooded.verdict())
                and not sum(self.garbling.verdict())
            ),
            Stall(lambda: (self.flooded.client.moved, self._flooder.moved)),
        )

    def damaged(self) -> None:
        """
        The node is stopped, and its files are damaged.
        """
        self._flooder.may_restart = True
        self.flooded.damaged()
        self.garbling.damaged()
        for one in self.publishers:
            one.damaged()
        for legacy in self.legacy:
            legacy.damaged()

    def crashed(self) -> int:
        """
        How many clients ended by an error: of the node, or of their own.
        """
        return sum(task.done() for task in self._tasks)

    async def drain(self) -> bool:
        """
        Publish no more, and wait until all has come.
        """
        for task in self._publishing:
            task.cancel()
        done = await wait_until(self._has_all, Stall(self.moved), every=0.5)
        await asyncio.sleep(1)  # what comes too much comes now
        return done

    def _has_all(self) -> bool:
        return (
            not any(client.kept for client in self.clients)
            and all(one.verdict().lost == 0 for one in self.publishers)
            and self.flooded.verdict().lost == 0
        )

    def misdelivered(self) -> int:
        """
        How many messages came to a client that were for another one.
        """
        found = sum(one.misdelivered() for one in self.publishers) + self.flooded.misdelivered()
        return found + sum(legacy.misdelivered() for legacy in self.legacy)

    async def stop(self) -> None:
        for client in self.clients:
            client.stop()
        for legacy in self.legacy:
            legacy.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def acknowledged(self) -> dict[str, list[tuple[str, float, float]]]:
        """
        The messages that the node acknowledged, by sender in order: name, when it was sent and acknowledged.
        """
        found: dict[str, list[tuple[str, float, float]]] = {}
        for one in self.publishers:
            progress, of_one = one.client.progress, found.setdefault(one.runtime, [])
            for name, (number, when) in one.sent_at.items():
                step = bisect_left(progress, (number, 0.0))
                if step < len(progress):
                    of_one.append((name, when, progress[step][1]))
        return found

    def records(self) -> dict[str, Any]:
        """
        What each client wrote down, for whoever looks for the cause of a broken promise.
        """
        return {
            one.runtime: {
                "published": one.published,
                "heard": one.heard,
                "heard at": one.heard_at,
                "sent at": one.sent_at,
                "asked at": one.asked_at,
                "answers": one.answers,
                "was asked": [[*what, when] for what, when in one.requests.items()],
                "acknowledged": one.client.progress,
                "refusals": one.refusals,
                "unacknowledged": [data.decode() for data in one.client.kept],
                "history": one.client.history,
            }
            for one in self.publishers
        } | {
            "flooded": {
                "received": self.flooded.received,
                "answered": self.flooded.answered,
                "history": self.flooded.client.history,
            },
            "flooder": {"history": self._flooder.history},
            "garbling": {"received": self.garbling.got},
            "legacy": {legacy.runtime: legacy.received for legacy in self.legacy},
        }
