"""
A client that sends garbage in its session, leaves before the answer, and comes back for what waited.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from soaking.load.publisher import SM
from soaking.load.resuming_client import SESSION, Message, ResumingClient
from soaking.load.transports import PATIENCE, Broken, LineLink, Link, PollLink, WebSocketLink
from soaking.progress import Stall, wait_until
from soaking.verdict import Damage, Numbers, Verdict, find

MORE = 8  # messages that wait behind what the node says of the garbage
LINKS = (LineLink, WebSocketLink, PollLink)


class GarblingClient:
    """
    A client that visits the node twice: it sends garbage, and comes back for `MORE` messages of `sender`.

    `stuck` counts the times that it did not come so far as to have all.
    """

    def __init__(self, ports: dict[str, int], sender: ResumingClient) -> None:
        self.runtime = "runtime://soak/garbling"
        self.got: list[int] = []
        self.sent = self.stuck = self.received = 0
        self._damages: list[Damage] = []
        self._token = self._epoch = ""
        self._ports = ports
        self._sender = sender
        self._welcomed = False

    async def garble(self, chance: random.Random) -> None:
        """
        Send garbage once, by two transports out of three.
        """
        first = chance.choice(LINKS) if self._welcomed else LineLink
        second, fresh = chance.choice(LINKS), chance.random() < 0.5
        try:
            await self._visit(first, fresh=not self._token, garbage=True)
            self._write(MORE)
            if not await wait_until(lambda: not self._sender.kept, Stall(lambda: self._sender.moved)):
                raise Broken("what was sent to it is not acknowledged")
            await self._visit(second, fresh=fresh, garbage=False)
        except (TimeoutError, Broken, OSError, StopAsyncIteration):
            self.stuck += 1
            self._token = ""

    def damaged(self) -> None:
        """
        Files of the node were damaged.
        """
        self._damages.append(Damage(len(self.got), self.sent))

    def wrong(self) -> Numbers:
        return find(self.sent, self.got, self._damages)

    def verdict(self) -> Verdict:
        return Verdict.of(self.wrong())

    def _write(self, number: int) -> None:
        for _ in range(number):
            self.sent += 1
            to = f"{self.runtime}/x"
            self._sender.send({"id": self.sent, "type": "update", "from": self._sender.runtime, "to": to})

    async def _visit(self, kind: type[Link], fresh: bool, garbage: bool) -> None:
        link = kind(self._ports["line" if kind is LineLink else "web"])
        try:
            await self._open(link, fresh)
            async with aclosing(link.messages(lambda: self.received)) as coming:  # type: ignore[type-var]
                await self._settle(link, coming)
            if garbage:
                await link.garble(b"garbage")
        finally:
            link.abort()

    async def _open(self, link: Link, fresh: bool) -> None:
        resume: Any = True if fresh else {"epoch": self._epoch, "received": self.received}
        from_ = self.runtime if fresh else f"{self.runtime}/{self._token}"
        kind = "open" if fresh else "re-open"
        request = {"id": 1, "type": kind, "from": from_, "to": SESSION, "body": {"resume": resume}}
        body = json.loads(await link.open(json.dumps(request).encode()))["body"]
        self._token = link.token = body.get("runtimeToken", self._token)
        told = body["resume"]
        if told["epoch"] != self._epoch:
            self._epoch, self.received = told["epoch"], 0
        else:
            self.received += told["missed"]

    async def _settle(self, link: Link, coming: AsyncIterator[bytes | None]) -> None:
        """
        Take all that is to come, and acknowledge it for certain.
        """
        if not self._welcomed and not isinstance(link, PollLink):
            # A session that never bound anything lives for a minute only.
            body = {"resources": ["comm://garbling"]}
            self._put(link, {"id": "s", "type": "subscribe", "from": self.runtime, "to": SM, "body": body})
        async with asyncio.timeout(PATIENCE):  # it takes a few messages only
            while not self._has_all():
                self._hear(await anext(coming))
            if isinstance(link, PollLink):
                await link.confirm(self.received)
                return
            self._put(link, {"id": 0, "type": "ack", "to": SESSION, "body": {"received": self.received}})
            self._put(link, {"id": "p", "type": "ping", "to": SESSION})
            while not self._hear(await anext(coming)):
                pass

    def _has_all(self) -> bool:
        if not self._welcomed:
            return False
        uncertain = self._damages[-1].sent if self._damages else 0
        return self.sent <= uncertain or self.sent in self.got

    def _put(self, link: Link, message: Message) -> None:
        link.put(json.dumps({"from": self.runtime, **message}).encode(), 0)

    def _hear(self, data: bytes | None) -> bool:
        """
        Is it the answer to the ping?
        """
        message = json.loads(data or b"{}")
        if not message or message["from"] == SESSION:
            return bool(message.get("id") == "p")
        self.received += 1
        if message["type"] == "update":
            self.got.append(message["id"])
        elif message["id"] == "s":
            self._welcomed = True
        return False
