"""
The faults, and the order of them: all of it from one seed.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

from soaking.load.generator import Load
from soaking.peers.node_process import Node
from soaking.progress import STALLED

RECOVERS = STALLED  # seconds in which the node notices that its disk takes nothing, or something again

GARBAGE = (
    b"{nonsense\n",
    b'{"id":1}\n' * 50,
    b"\xff\xfe\n",
    b"[" * 100_000 + b"\n",
    b"x" * 2_000_000 + b"\n",
    b'{"id":1,"type":"open","from":"runtime://soak/0","to":',
    b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\x82\x85\0\0\0\0hello",
    b"GET /poll HTTP/1.1\r\nAuthorization: Bearer \xff\r\n\r\n",
    b"POST /poll HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n",
)


class Faults:
    """
    A sequence of faults, one after the other; `done` counts them by name.

    `degraded` says how often the node noticed that its disk took nothing, `degraded_at_start` how often when
    it had started on one, `stayed_degraded` how often it did not notice that there was room again.
    `damaged` counts damages of files, and `found_out` those that `msgnode state check` found.
    """

    def __init__(self, node: Node, load: Load, queue: int, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self.history: list[tuple[str, float, float]] = []  # name, begin and end
        self.degraded = self.degraded_at_start = self.stayed_degraded = 0
        self.damaged = self.found_out = 0
        # Its own, so that the same seed gives the same faults however the clients interleave.
        self._chance = random.Random(seed)
        self._node = node
        self._load = load
        self._queue = queue
        self._possible: list[tuple[str, int, Callable[[], Awaitable[None]]]] = [
            ("kill -9", 8, self._kill),
            ("cut connections", 8, self._cut),
            ("half-open connections", 4, self._freeze),
            ("stalled readers", 4, self._stall),
            ("flood", 2, self._overflow),
            ("garbage", 5, self._garbage),
            ("two at once", 3, self._two),
            ("garbage, then resume", 3, self._garble),
            ("damage", 1, self._damage),
        ]
        if node.can_change_clock:
            self._possible.append(("clock jump", 2, self._jump))
        if node.small:
            self._possible.append(("full disk", 2, self._fill))
            self._possible.append(("kill on a full disk", 2, self._kill_on_full_disk))

    async def run(self, seconds: float) -> None:
        """
        Each once, however long that takes; then as it comes, until the time is over.
        """
        names = {name: (weight, act) for name, weight, act in self._possible}
        end = asyncio.get_running_loop().time() + seconds
        first = self._chance.sample(list(names), len(names))
        while first or asyncio.get_running_loop().time() < end:
            if first:
                name = first.pop()
            else:
                name = self._chance.choices(list(names), [weight for weight, _ in names.values()])[0]
            began = time.time()
            await names[name][1]()
            self.history.append((name, began, time.time()))
            self.done[name] += 1
            await asyncio.sleep(self._chance.uniform(0.2, 1.5))

    async def _kill(self) -> None:
        self._node.kill()
        await asyncio.sleep(self._chance.uniform(0, 1))
        await asyncio.to_thread(self._node.start)

    async def _cut(self) -> None:
        clients = [one.client for one in self._load.publishers] + list(self._load.legacy)
        for client in self._chance.sample(clients, max(1, len(clients) // 4)):
            client.lose()

    async def _freeze(self) -> None:
        pipes = self._load.web.pipes() + self._load.lines.pipes()
        frozen = self._chance.sample(pipes, min(len(pipes), 3))
        for pipe in frozen:
            pipe.freeze()
        await asyncio.sleep(self._chance.uniform(1, 3))
        for pipe in frozen:
            pipe.leave_node()
        # The clients come back while the node still believes in the old connections.
        await asyncio.sleep(self._chance.uniform(1, 3))
        for pipe in frozen:
            pipe.cut()

    async def _stall(self) -> None:
        clients = [one.client for one in self._chance.sample(self._load.publishers, 2)]
        for client in clients:
            client.stalled.clear()
        await asyncio.sleep(self._chance.uniform(1, 3))
        for client in clients:
            client.stalled.set()

    async def _two(self) -> None:
        acts = self._chance.sample((self._kill, self._cut, self._freeze, self._stall), 2)
        await asyncio.gather(*(act() for act in acts))

    async def _overflow(self) -> None:
        await self._load.overflow(3 * self._queue + self._chance.randint(1, 500))

    async def _garbage(self) -> None:
        for garbage in self._chance.sample(GARBAGE, 4):
            port = self._chance.choice((self._node.ports["web"], self._node.ports["line"]))
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(garbage)
                with suppress(OSError, asyncio.TimeoutError):
                    await asyncio.wait_for(writer.drain(), 1)
                await asyncio.sleep(0.1)
                writer.transport.abort()

    async def _garble(self) -> None:
        await self._load.garbling.garble(self._chance)

    async def _damage(self) -> None:
        """
        The node is stopped, a file of its spool damaged and repaired; clients are told that some may miss.
        """
        if not await self._load.settled():
            return
        await asyncio.to_thread(self._node.stop)
        self._load.damaged()
        how = self._node.damage(self._chance)
        self.done[f"damage: {how}"] += 1
        self.damaged += 1
        self.found_out += await asyncio.to_thread(self._node.repair)
        await asyncio.to_thread(self._node.start)

    async def _jump(self) -> None:
        self._node.set_clock(self._chance.choice(("+2d", "-1d", "+45m", "-10m")))
        await asyncio.sleep(self._chance.uniform(0.5, 2))
        self._node.set_clock("+0")

    async def _fill(self) -> None:
        await asyncio.to_thread(self._node.fill)
        await asyncio.sleep(self._chance.uniform(1, 3))
        self.degraded += await self._becomes(degraded=True)
        await self._make_room()

    async def _kill_on_full_disk(self) -> None:
        """
        Killed while the disk takes nothing, started on it, perhaps killed once more, and then there is room.
        """
        began = time.time()
        await asyncio.to_thread(self._node.fill)
        for _ in range(self._chance.randint(1, 3)):
            await asyncio.sleep(self._chance.uniform(0.2, 2))
            await self._kill()
            await asyncio.to_thread(self._node.fill)  # what it freed at its start, too
        await asyncio.sleep(self._chance.uniform(0.5, 2))
        self.degraded_at_start += await self._becomes(degraded=True)
        await self._make_room()
        self._load.disk_full.append((began, time.time()))

    async def _make_room(self) -> None:
        """
        Until the node has noticed: killed before, it would forget what it gave to clients without resume.
        """
        self._node.make_room()
        await asyncio.sleep(2)
        self.stayed_degraded += not await self._becomes(degraded=False)

    async def _becomes(self, degraded: bool) -> bool:
        deadline = time.monotonic() + RECOVERS
        while await asyncio.to_thread(self._node.is_degraded) != degraded:
            if time.monotonic() > deadline:
                return False
            if degraded:
                await asyncio.to_thread(self._node.fill)  # what it has freed since
            await asyncio.sleep(0.2)
        return True
