"""
Faults of linked nodes: kill -9 of each in turn, links that are cut or hang, partitions with kills.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from soaking.federation.load import Load
from soaking.load.member_load import PATIENCE_SECONDS
from soaking.peers.domain_node import Network
from soaking.peers.proxy import Proxy
from soaking.progress import Stall, wait_until

LOOK_SECONDS = 0.2
APART_SECONDS = (3, 20)
WAITS = 0.8  # the part of the faults after which the next waits until messages pass again


class Faults:
    """
    Faults one after the other; `done` counts them by name.

    After most of them it waits until messages pass between all domains again, because a link that is lost
    often counts late: otherwise nothing would be under way that a kill could lose.
    """

    def __init__(self, network: Network, load: Load, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self.history: list[tuple[str, float, float]] = []  # name, begin, and when messages passed again
        self._chance = random.Random(seed)
        self._network = network
        self._load = load
        self._next = 0

    async def run(self, seconds: float) -> None:
        """
        Part the network once, and kill each node meanwhile; then kill each in turn, and between two kills
        break a link sometimes, until the time is over.
        """
        end = time.monotonic() + seconds
        await self._do(self._partition)
        others: list[Callable[[], Awaitable[None]]] = [self._cut, self._hang, self._partition]
        while time.monotonic() < end:
            await self._do(self._kill_next)
            if time.monotonic() < end and self._chance.random() < 0.3:
                await self._do(self._chance.choice(others))

    async def _do(self, act: Callable[[], Awaitable[None]]) -> None:
        began = time.time()
        await act()
        healed = time.time()
        if self._chance.random() < WAITS:
            stall = Stall(lambda: None, PATIENCE_SECONDS)
            await wait_until(lambda: self._load.has_flowed(healed), stall, LOOK_SECONDS)
        self.history.append((act.__name__.strip("_"), began, time.time()))
        await asyncio.sleep(self._chance.uniform(0.5, 3))

    async def _kill_next(self) -> None:
        letters = sorted(self._network.nodes)
        letter = letters[self._next % len(letters)]
        self._next += 1
        await self.kill(letter)

    async def kill(self, letter: str) -> None:
        """
        kill -9, and start it again a moment later.
        """
        self.done[f"kill -9 of {letter}"] += 1
        node = self._network.nodes[letter]
        node.kill()
        await asyncio.sleep(self._chance.uniform(0, 2))
        await asyncio.to_thread(node.start)

    async def _cut(self) -> None:
        self.done["cut of a link"] += 1
        for pipe in self._proxy().pipes():
            pipe.cut()

    async def _hang(self) -> None:
        """
        Nothing passes, and neither side is told, for longer or shorter than it takes them to notice.
        """
        self.done["link that hangs"] += 1
        pipes = self._proxy().pipes()
        for pipe in pipes:
            pipe.freeze()
        await asyncio.sleep(self._chance.choice((2, 45)))
        for pipe in pipes:
            pipe.cut()

    async def _partition(self) -> None:
        await self.partition(self._proxy(), self._chance.uniform(*APART_SECONDS))

    async def partition(self, proxy: Proxy, seconds: float) -> None:
        """
        A link is away for so long, while all nodes on both sides of it are killed.
        """
        self.done["partition with kills on both sides"] += 1
        proxy.close_way()
        letters = sorted(self._network.nodes)
        began = time.monotonic()
        for letter in self._chance.sample(letters, len(letters)):
            await self.kill(letter)
        await asyncio.sleep(max(0.0, seconds - (time.monotonic() - began)))
        proxy.open_way()

    def _proxy(self) -> Proxy:
        return self._chance.choice(list(self._network.proxies.values()))
