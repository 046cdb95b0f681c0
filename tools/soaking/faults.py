"""
What goes wrong, and when: all of it from one seed.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

from soaking.load import Load
from soaking.node import Node

CALM = 20.0  # seconds
RECOVERS = 30.0  # seconds that the node has once there is room on its disk

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
    One fault after the other; `done` counts them by name.
    """

    def __init__(self, node: Node, load: Load, queue: int, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self.degraded = 0  # how often the node said that its disk takes nothing
        self.damaged = self.found_out = 0  # how often files were damaged, and how often that was found out
        self.degraded_at_start = 0  # and how often it did when it had started on one
        # Its own, so that the same seed gives the same faults however the clients interleave.
        self._chance = random.Random(seed)
        self._node = node
        self._load = load
        self._queue = queue
        self._possible: list[tuple[str, int, Callable[[], Awaitable[None]]]] = [
            ("kill -9", 8, self._kill),
            ("cut connection", 8, self._cut),
            ("half-open connection", 4, self._freeze),
            ("stalled reader", 4, self._stall),
            ("overflow", 2, self._overflow),
            ("garbage", 5, self._garbage),
            ("two at once", 3, self._two),
            ("garbage, then resume", 3, self._babble),
            ("damage", 1, self._damage),
        ]
        if node.can_change_clock:
            self._possible.append(("clock jump", 2, self._jump))
        if node.small:
            self._possible.append(("full disk", 2, self._fill))
            self._possible.append(("kill on a full disk", 2, self._kill_on_full_disk))

    async def run(self, seconds: float) -> None:
        names = {name: (weight, act) for name, weight, act in self._possible}
        end = asyncio.get_running_loop().time() + seconds
        # Each once, then as it comes.
        first = self._chance.sample(list(names), len(names))
        while asyncio.get_running_loop().time() < end:
            if first:
                name = first.pop()
            else:
                name = self._chance.choices(list(names), [weight for weight, _ in names.values()])[0]
            await names[name][1]()
            self.done[name] += 1
            await asyncio.sleep(self._chance.uniform(0.2, 1.5))

    async def _kill(self) -> None:
        self._node.kill()
        await asyncio.sleep(self._chance.uniform(0, 1))
        await asyncio.to_thread(self._node.start)

    async def _cut(self) -> None:
        clients = [peer.client for peer in self._load.peers] + list(self._load.legacy)
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
        clients = [peer.client for peer in self._chance.sample(self._load.peers, 2)]
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

    async def _babble(self) -> None:
        await self._load.babbler.babble(self._chance)

    async def _damage(self) -> None:
        """
        The node is stopped, a file of its spool spoilt and repaired; clients are told that some may miss.
        """
        if not await self._load.be_calm(CALM):
            return
        await asyncio.to_thread(self._node.stop)
        self._load.doubt()
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
        status = await asyncio.to_thread(self._node.live)
        self.degraded += status["status"] == "degraded"
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
        status = await asyncio.to_thread(self._node.live)
        self.degraded_at_start += status["status"] == "degraded"
        await self._make_room()
        self._load.forgotten.append((began, time.time()))

    async def _make_room(self) -> None:
        """
        Until the node has noticed: killed before, it would forget what it gave to clients of today.
        """
        self._node.make_room()
        deadline = time.monotonic() + RECOVERS
        await asyncio.sleep(2)
        while time.monotonic() < deadline:
            status = await asyncio.to_thread(self._node.live)
            if status["status"] != "degraded":
                return
            await asyncio.sleep(0.2)
