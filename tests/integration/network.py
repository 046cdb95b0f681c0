"""
Nodes of several domains for a test, and clients that resume at them.
"""

import asyncio
import json
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from soaking.load.resuming_client import ResumingClient
from soaking.load.transports import LineLink
from soaking.peers.domain_node import DomainNode, LinkPlan, Network

# Seconds. A node waits for up to 60 before it dials again, before a link that was lost often counts, and
# before it tries a first hop again that brought no acknowledgements.
PATIENCE = 180.0
ASK_AGAIN = 1.0  # seconds, while routes come up

Message = dict[str, Any]


class Runtime:
    """
    A client that resumes. `inbox` has what came, in order, but for what `ask` has taken out.
    """

    def __init__(self, node: DomainNode, name: str) -> None:
        self.node = node
        self.runtime = f"runtime://{node.domain}/{name}"
        self.inbox: list[Message] = []
        self.client = ResumingClient(self.runtime, lambda: LineLink(node.line_port), self.inbox.append)
        self._task = asyncio.create_task(self.client.run())
        self._asked = 1_000_000

    def send(self, to: str, type: str = "update", **fields: Any) -> None:
        self.client.send({"id": 1, "type": type, "from": self.runtime, "to": to, "body": {}, **fields})

    async def ask(self, to: str, type: str = "read", patience: float = PATIENCE, **fields: Any) -> Message:
        """
        The answer or the last receipt. AssertionError if there is none in so many seconds.
        """
        self._asked += 1
        self.send(to, type, id=self._asked, **fields)

        def answer() -> Message | None:
            return next((one for one in self.inbox if _is_answer(one, self._asked)), None)

        await until(lambda: answer() is not None, patience)
        found = answer()
        assert found is not None
        self.inbox.remove(found)
        return found

    async def subscribe(self, *addresses: str) -> int:
        """
        The code of the answer.
        """
        to = f"domain://msg-node.{self.node.domain}/sm"
        answer = await self.ask(to, "subscribe", body={"resources": list(addresses)})
        return int(answer["body"]["code"])

    async def path(self, to: str, ttl: float = 2.0) -> str:
        """
        The letters of the nodes by which a message went to an address, by its receipt; "" if it did not.
        """
        body = (await self.ask(to, "update", receipt=True, ttl=ttl, priority=9))["body"]
        return "".join(hop["node"][5] for hop in body.get("path", ())) if body["code"] < 300 else ""

    async def goes_by(self, to: str, letters: str) -> None:
        """
        Wait until messages to an address go by these nodes.
        """
        deadline = time.monotonic() + PATIENCE
        while (found := await self.path(to)) != letters:
            assert time.monotonic() < deadline, f"to {to} it goes by {found!r}, expected {letters!r}"
            await asyncio.sleep(ASK_AGAIN / 2)

    def numbers(self) -> list[int]:
        """
        The numbers of the numbered messages that came.
        """
        return [message["body"]["n"] for message in self.inbox if "n" in message.get("body", {})]

    async def stop(self) -> None:
        self.client.stop()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def _is_answer(message: Message, number: int) -> bool:
    if message["id"] != number or message["type"] not in ("response", "receipt"):
        return False
    return message["type"] == "response" or bool(message["body"].get("final"))


class Stream:
    """
    A runtime that sends numbered messages to an address until it is stopped.
    """

    def __init__(self, sender: Runtime, to: str, pause: float = 0.02) -> None:
        self.sent = 0
        self._sender, self._to, self._pause = sender, to, pause
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            self.sent += 1
            self._sender.send(self._to, id=self.sent, body={"n": self.sent})
            await asyncio.sleep(self._pause)

    def stop(self) -> None:
        self._task.cancel()


@asynccontextmanager
async def running(
    links: Sequence[LinkPlan], files: Mapping[str, Mapping[str, str]] | None = None, **more: Any
) -> AsyncIterator[Network]:
    """
    A network that runs, and is removed at the end. `files` are more files of each node, by its letter.
    """
    network = Network(Path(tempfile.mkdtemp(prefix="federation-")), links, **more)
    for letter, texts in (files or {}).items():
        for name, text in texts.items():
            (network.nodes[letter].directory / name).write_text(text)
    try:
        await network.start()
        yield network
    finally:
        await asyncio.to_thread(network.leave)


async def until(condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    """
    Wait for a condition, for so many seconds.
    """
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.02)


async def reach(node: DomainNode, domain: str, is_reachable: bool) -> None:
    """
    Wait until the node has a route to the domain, or none.
    """
    deadline = time.monotonic() + PATIENCE
    while bool((await _asked(node, domain))["cost"]) is not is_reachable:
        assert time.monotonic() < deadline, f"{node.node} to {domain}: reachable is not {is_reachable}"
        await asyncio.sleep(ASK_AGAIN / 10)


async def slow_link(node: DomainNode, domain: str, seconds: float) -> Message:
    """
    Wait until the node has a link with the domain, in its routes, whose round trip takes so long; its status.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        link: Message = (await _asked(node, domain))["links"][0]
        if link["state"] == "up" and link["round_trip"] is not None and link["round_trip"] >= seconds:
            return link
        assert time.monotonic() < deadline, link
        await asyncio.sleep(ASK_AGAIN / 10)


async def _asked(node: DomainNode, domain: str) -> Message:
    """
    What the node says to operators about a domain.
    """
    token = (node.directory / "state" / "admin-token").read_text().strip()
    url = f"http://127.0.0.1:{node.ports['admin']}/api/v1/links/{domain}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    # In a thread: the proxies between the nodes run here.
    return json.loads(
        await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=PATIENCE).read())
    )
