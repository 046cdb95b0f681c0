"""
A client that acknowledges: the other side of docs/protocol.md, "Acknowledged resume".

It speaks by any link of transports.py, and may take another one each time it
comes back.  It keeps its token, the epoch, how many messages it has received,
and those it sent that are not acknowledged.
"""

import asyncio
import json
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from soaking.load.transports import Broken, Link

ACK_AFTER = 64  # messages
ACK_EVERY = 0.4  # seconds; the protocol says half a second
BACK_AFTER = (0.05, 0.3)  # seconds until it connects again, at first
MAX_BACKOFF = 4  # and so many times as long at most, when it fails again
SESSION = "mn:/session"

Message = dict[str, Any]


class ResumingClient:
    """
    A client with one session.  `heard` is called with each message once, in order.

    It counts what the node told it: `missed` messages that are gone for good,
    `restarted` epochs without a reason, and `doubted` ones that began because
    files were damaged.  `history` has what it was told at each connection.
    """

    def __init__(self, runtime: str, link: Callable[[], Link], heard: Callable[[Message], None]) -> None:
        self.runtime = runtime
        self.link_of = link  # makes the next link
        self.heard = heard
        self.link: Link | None = None
        self.token = self.epoch = ""
        self.received = 0
        self.missed = self.restarted = self.connected = self.doubted = 0
        self.may_restart = False  # files were damaged, of which it was not told yet
        self.may_begin_anew = False  # its session's node may be gone
        self.told_null: Callable[[], None] = lambda: None  # called when it is told that
        self.sent = 0  # number of the last message sent
        self.kept: deque[bytes] = deque()  # what is not acknowledged; the last has number `sent`
        self.stalled = asyncio.Event()  # cleared while the client does not read
        self.stalled.set()
        self.progress: list[tuple[int, float]] = []  # what was acknowledged, and when
        self.history: list[dict[str, Any]] = []
        self._base = 0  # numbers of the epochs before
        self._told = 0
        self._failed = 0  # attempts in a row
        self._running = True

    @property
    def moved(self) -> tuple[int, int]:
        """
        What changes whenever it receives something, or something of it is acknowledged.
        """
        return self.received, self.acknowledged + self._base

    @property
    def acknowledged(self) -> int:
        """
        How many of its messages the node has for certain.
        """
        return self.sent - len(self.kept)

    def send(self, message: Message) -> int:
        """
        Send, now or when there is a connection; the number of the message, over all epochs.
        """
        data = json.dumps(message).encode()
        self.sent += 1
        self.kept.append(data)
        if self.link is not None:
            self.link.put(data, self.sent)
        return self.sent + self._base

    def lose(self) -> None:
        """
        The connection is gone, without a word.
        """
        if self.link is not None:
            self.link.abort()

    def stop(self) -> None:
        self._running = False
        self.lose()

    async def run(self) -> None:
        """
        Be connected, until `stop`.
        """
        while self._running:
            link = self.link_of()
            try:
                await self._resume(link)
                await self._live(link)
            except (TimeoutError, Broken, OSError) as why:
                if self.link is not None:
                    self._note(link, lost=repr(why))
                else:
                    self._failed += 1
            finally:
                self.link = None
                link.abort()
            await asyncio.sleep(random.uniform(*BACK_AFTER) * min(1 + self._failed, MAX_BACKOFF))

    def _note(self, link: Link, **what: Any) -> None:
        self.history.append({"time": time.time(), "by": type(link).__name__, "at": link.node, **what})

    async def _resume(self, link: Link) -> None:
        """
        Open the session, or come back to it, and send again what is not acknowledged.
        """
        resume: Any = {"epoch": self.epoch, "received": self.received} if self.token else True
        from_ = f"{self.runtime}/{self.token}" if self.token else self.runtime
        kind = "re-open" if self.token else "open"
        request = {"id": 1, "type": kind, "from": from_, "to": SESSION, "body": {"resume": resume}}
        body = json.loads(await link.open(json.dumps(request).encode()))["body"]
        if body["code"] != 200:
            raise Broken(body.get("desc", ""))
        self.token = link.token = body.get("runtimeToken", self.token)
        told = body["resume"]
        wrong = self._wrong(told)
        self._note(link, said=resume, told=told, sent=self.sent, kept=len(self.kept), wrong=wrong)
        self._failed = 0
        if told["epoch"] == self.epoch:
            self.missed += told["missed"]
            self.received += told["missed"]
            self._forget(told["received"])
        else:
            self.restarted += bool(wrong)
            if self.epoch and not wrong:
                self.may_restart = False
                self.doubted += 1
                self.told_null()
            self._base += self.acknowledged
            self.epoch, self.received, self.sent = told["epoch"], 0, len(self.kept)
        self.connected += 1
        self._told = self.received
        first = self.sent - len(self.kept) + 1
        for number, data in enumerate(self.kept, first):
            link.put(data, number)
        self.link = link

    def _wrong(self, told: dict[str, Any]) -> str:
        """
        Which promise the answer to `re-open` breaks; empty if none, or if room was short.
        """
        if told["epoch"] == self.epoch:
            return "told as missed" if told["missed"] else ""
        is_excused = not self.epoch or self.may_begin_anew
        is_excused = is_excused or (self.may_restart and told["missed"] is None)
        return "" if is_excused else "epoch lost"

    async def _live(self, link: Link) -> None:
        ticking = asyncio.create_task(self._tick(link))
        try:
            async for data in link.messages(lambda: self.received):
                if data is None:
                    self._forget(link.acknowledged)
                else:
                    await self.stalled.wait()
                    self._hear(data, link)
        finally:
            ticking.cancel()

    def _hear(self, data: bytes, link: Link) -> None:
        message = json.loads(data)
        if message["from"] == SESSION:
            if message["type"] == "ack":
                self._forget(message["body"]["received"])
            return
        self.received += 1
        self.heard(message)
        if self.received - self._told >= ACK_AFTER:
            self._acknowledge(link)

    async def _tick(self, link: Link) -> None:
        while True:
            await asyncio.sleep(ACK_EVERY)
            if self.received > self._told:
                self._acknowledge(link)

    def _acknowledge(self, link: Link) -> None:
        self._told = self.received
        ack = {"id": 0, "type": "ack", "from": self.runtime, "to": SESSION}
        link.acknowledge(json.dumps({**ack, "body": {"received": self.received}}).encode())

    def _forget(self, number: int) -> None:
        """
        The node has everything up to this number.
        """
        if self.acknowledged < number:
            self.progress.append((number + self._base, time.time()))
        while self.acknowledged < number:
            self.kept.popleft()
