"""
A client that does not acknowledge, as there are many: it opens, subscribes, and opens again.
"""

import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from soaking.load.publisher import SM, Ports
from soaking.load.transports import LineLink, Link, WebSocketLink
from soaking.verdict import Damage, Numbers, Verdict, find, misdelivered, without_excused

TOPIC = "comm://soak/0/changes"
BACK_AFTER = (0.1, 0.5)  # seconds


class LegacyClient:
    """
    A client without resume, which observes the first publisher.

    `published` says how many messages that one has sent; `disk_full` has the times from when to when a node
    that was killed could not write down what it had delivered.
    """

    def __init__(
        self,
        number: int,
        ports: Ports,
        published: Callable[[], int],
        disk_full: Sequence[tuple[float, float]],
    ) -> None:
        self.runtime = f"runtime://soak/legacy-{number}"
        self.received: list[int] = []
        self.addresses: list[str] = []  # what messages to it were addressed to
        self._received_at: list[float] = []
        self._damages: list[Damage] = []
        self._ports = ports
        self._published = published
        self._disk_full = disk_full
        self._link: Link | None = None
        self._running = True

    async def run(self) -> None:
        while self._running:
            link = self._link = random.choice(
                (WebSocketLink(self._ports.web_port), LineLink(self._ports.line_port))
            )
            try:
                await self._live(link)
            except Exception:
                pass
            finally:
                link.abort()
            await asyncio.sleep(random.uniform(*BACK_AFTER))

    async def _live(self, link: Link) -> None:
        await link.open(self._encoded(id=1, type="open", to="mn:/session"))
        link.put(self._encoded(id="s", type="subscribe", to=SM, body={"resources": [TOPIC]}), 0)
        async for data in link.messages(lambda: 0):
            self.heard(json.loads(data or b"{}"))

    def heard(self, message: dict[str, Any]) -> None:
        self.addresses.append(message.get("to", ""))
        if message.get("type") == "update":
            self.received.append(message["id"])
            self._received_at.append(time.time())

    def _encoded(self, **fields: Any) -> bytes:
        return json.dumps({"from": self.runtime, **fields}).encode()

    def lose(self) -> None:
        if self._link is not None:
            self._link.abort()

    def stop(self) -> None:
        self._running = False
        self.lose()

    def damaged(self) -> None:
        self._damages.append(Damage(len(self.received), self._published()))

    def verdict(self) -> Verdict:
        return Verdict.of(self.wrong())

    def wrong(self) -> Numbers:
        """
        The numbers that came twice or out of order; it may lose, so none is lost.
        """
        found, begin, last = Numbers([], [], []), 0, 0
        for end, after in [*self._damages, (len(self.received), 0)]:
            times = self._received_at[begin:end]
            part = without_excused(self.received[begin:end], times, self._disk_full)
            wrong = find(0, [number for number in part if number > last])
            found.doubled.extend(wrong.doubled)
            found.disordered.extend(wrong.disordered)
            begin, last = end, after
        return found

    def misdelivered(self) -> int:
        return misdelivered(self.addresses, {TOPIC}, self.runtime)
