"""
Faults of a cluster: nodes and NATS servers that are killed or stand still, slow nodes, partitions, restarts.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from soaking.cluster.load import ClusterLoad
from soaking.load.member_load import PATIENCE_SECONDS
from soaking.peers.member_node import Balancer, ClusterNetwork, MemberNode
from soaking.progress import Stall, wait_until

LOOK_SECONDS = 0.2
NOTICED_SECONDS = 2.0  # in which the balancer finds out that a node stands still
DOWN_SECONDS = (0.0, 8.0)
APART_SECONDS = (3.0, 30.0)
SLOW_SECONDS = 10.0
SLOW_TURN = (0.02, 0.18)  # seconds in which a slow node runs and stands still
DELAY_SECONDS = 0.1

Act = Callable[[], Awaitable[None]]


class Faults:
    """
    Faults one after the other; `done` counts them by name, `history` has when each began, and when messages
    passed between all clients again. A fault during which no node fails to answer for two seconds is `mild`:
    no client may lose its epoch by it.

    `stands_still` is for how many seconds a node is stopped by SIGSTOP, at most.
    """

    def __init__(
        self,
        network: ClusterNetwork,
        balancer: Balancer,
        load: ClusterLoad,
        seed: int,
        stands_still: float,
    ) -> None:
        self.done: Counter[str] = Counter()
        self.history: list[tuple[str, float, float]] = []
        self.unsettled: list[str] = []  # after which faults messages did not pass again
        self._chance = random.Random(seed)
        self._network = network
        self._balancer = balancer
        self._load = load
        self._stands_still = stands_still
        self._turn = -1

    @property
    def harsh(self) -> list[Act]:
        return [
            self.kill_node,
            self.kill_nats,
            self.kill_both,
            self.stand_still,
            self.be_slow,
            self.part_nats,
            self.cut_off,
            self.kill_two,
            self.kill_all_nats,
            self.kill_everything,
        ]

    @property
    def mild(self) -> list[Act]:
        return [self.break_connections, self.rolling_restart]

    async def run(self, seconds: float, only: Sequence[str] = ()) -> None:
        """
        Each fault once, or those named; then by chance until the time is over.
        """
        end = time.monotonic() + seconds
        acts = [act for act in [*self.mild, *self.harsh] if not only or act.__name__ in only]
        for act in acts:
            await self._do(act)
        while time.monotonic() < end:
            await self._do(self._chance.choice(acts))

    async def _do(self, act: Act) -> None:
        self._load.allow_new_epochs(act in self.harsh)
        began = time.time()
        name = act.__name__
        self.done[name.replace("_", " ")] += 1
        await act()
        if not await self._has_settled():
            self.unsettled.append(name)
        self.history.append((name, began, time.time()))
        print(f"{name}: {time.time() - began:.1f} s", flush=True)
        await asyncio.sleep(self._chance.uniform(0.5, 3))

    async def _has_settled(self) -> bool:
        healed = time.time()
        return await wait_until(
            lambda: self._load.are_connected() and self._load.has_flowed(healed),
            Stall(lambda: None, PATIENCE_SECONDS),
            LOOK_SECONDS,
        )

    def _next(self) -> MemberNode:
        self._turn += 1
        return self._network.nodes[self._turn % len(self._network.nodes)]

    async def _down(self) -> None:
        await asyncio.sleep(self._chance.uniform(*DOWN_SECONDS))

    # -- mild ----------------------------------------------------------------------

    async def break_connections(self) -> None:
        """
        All clients lose their connections at once, three times, and come back at any node.
        """
        for _ in range(3):
            for node in self._network.nodes:
                node.web.cut()
                node.lines.cut()
            await asyncio.sleep(self._chance.uniform(0.5, 2))

    async def rolling_restart(self) -> None:
        """
        SIGTERM to each node, and its new start, in turn.
        """
        for node in self._network.nodes:
            await asyncio.to_thread(node.restart)
            await wait_until(lambda: self._are_linked(), Stall(lambda: None, PATIENCE_SECONDS), LOOK_SECONDS)

    def _are_linked(self) -> bool:
        most = len(self._network.nodes) - 1
        return all(node.up() == most for node in self._network.nodes)

    # -- harsh ---------------------------------------------------------------------

    async def kill_node(self) -> None:
        await self._kill([self._next()])

    async def kill_two(self) -> None:
        await self._kill([self._next(), self._next()])

    async def kill_everything(self) -> None:
        """
        All nodes and all NATS servers at once.
        """
        servers = self._network.nats.servers
        for server in servers:
            server.kill()
        for node in self._network.nodes:
            node.kill()
        for server in servers:
            await asyncio.to_thread(server.start)
        await asyncio.gather(*(asyncio.to_thread(node.start_again) for node in self._network.nodes))

    async def _kill(self, nodes: Sequence[MemberNode]) -> None:
        for node in nodes:
            node.kill()
        await self._down()
        await asyncio.gather(*(asyncio.to_thread(node.start_again) for node in nodes))

    async def kill_nats(self) -> None:
        """
        One of the two NATS servers.
        """
        server = self._chance.choice(self._network.nats.servers)
        server.kill()
        await self._down()
        await asyncio.to_thread(server.start)

    async def kill_all_nats(self) -> None:
        for server in self._network.nats.servers:
            server.kill()
        await self._down()
        for server in self._network.nats.servers:
            await asyncio.to_thread(server.start)

    async def kill_both(self) -> None:
        """
        A node and a NATS server.
        """
        server = self._chance.choice(self._network.nats.servers)
        server.kill()
        await self._kill([self._next()])
        await asyncio.to_thread(server.start)

    async def stand_still(self) -> None:
        """
        SIGSTOP of a node; its clients go elsewhere, and SIGCONT follows when it still believes it has them.
        """
        node = self._next()
        node.freeze()
        await asyncio.sleep(NOTICED_SECONDS)
        self._balancer.take_out(node)
        most = self._stands_still
        await asyncio.sleep(most if self._chance.random() < 0.5 else self._chance.uniform(1, most))
        node.thaw()
        await asyncio.sleep(0.2)
        self._balancer.bring_back(node)

    async def be_slow(self) -> None:
        """
        A node has a tenth of a core, and what it says to NATS is late.
        """
        node = self._next()
        end = time.monotonic() + SLOW_SECONDS
        for proxy in node.nats:
            proxy.delay_seconds = DELAY_SECONDS
        while time.monotonic() < end:
            node.freeze()
            await asyncio.sleep(SLOW_TURN[1])
            node.thaw()
            await asyncio.sleep(SLOW_TURN[0])
        for proxy in node.nats:
            proxy.delay_seconds = 0.0

    async def part_nats(self) -> None:
        """
        Each NATS server, with the nodes that prefer it, is alone.
        """
        nats = self._network.nats
        for node in self._network.nodes:
            node.nats[1].close_way()
        nats.between.close_way()
        await asyncio.sleep(self._chance.uniform(*APART_SECONDS))
        nats.between.open_way()
        for node in self._network.nodes:
            node.nats[1].open_way()

    async def cut_off(self) -> None:
        """
        A node reaches no NATS server, but its clients reach it; sometimes nothing says so.
        """
        node, is_silent = self._next(), self._chance.random() < 0.5
        pipes = [pipe for proxy in node.nats for pipe in proxy.pipes()]
        for proxy in node.nats:
            if not is_silent:
                proxy.close_way()
        for pipe in pipes if is_silent else ():
            pipe.freeze()
        await asyncio.sleep(self._chance.uniform(*APART_SECONDS))
        for proxy in node.nats:
            proxy.open_way()
        for pipe in pipes:
            pipe.cut()
