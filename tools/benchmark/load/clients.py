"""
What is said over a wire to each peer: open, bind an address, send, close.

A client's `letter` is the same message for every peer, wrapped as that peer
wants it and ready to be written.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Protocol

from benchmark.load.deflate import DeflateWire, deflate
from benchmark.load.frames import compact, message, nats_publish, topic, wamp_publish
from benchmark.load.transports import Inbox, StreamWire, WebSocketWire, stream, websocket

ACK_AFTER = 64  # messages
ACK_WITHIN = 0.5  # seconds
Wire = WebSocketWire | StreamWire | DeflateWire
AT_ONCE = 50  # connections being opened together


class Refused(Exception):
    """
    A peer did not accept what the benchmark needs; the text is its answer.
    """


class Client(Protocol):
    """
    One connection that is open at a peer, under a name.
    """

    wire: Wire
    inbox: Inbox

    async def open(self) -> None: ...
    def received(self, count: int) -> None: ...
    async def bind(self, addresses: Sequence[str]) -> None: ...
    def letter(self, number: int, sender: str, receiver: str, size: int, spaces: bool = False) -> bytes: ...
    def close(self) -> None: ...


class NodeClient:
    """
    A runtime at the messaging node, by WebSocket or by lines.
    """

    def __init__(
        self, wire: Wire, name: str, end: bytes, token: str = "", resume: bool = False, login: str = ""
    ) -> None:
        self.wire = wire
        self.inbox = wire.inbox
        self.runtime = f"runtime://localhost/{name}"
        self.token = token  # of a session that is there already
        self._resume = resume
        self._login = login
        self._received = self._told = 0
        self._soon: asyncio.TimerHandle | None = None
        self._end = end

    async def open(self) -> None:
        """
        Open the session, or come back to it.
        """
        opening: dict[str, Any] = {"id": 1, "type": "open", "from": self.runtime, "to": "mn:/session"}
        if self.token:
            opening |= {"type": "re-open", "from": f"{self.runtime}/{self.token}"}
        if self._login:
            opening["body"] = {"token": self._login}
        if self._resume:
            opening["body"] = {**opening.get("body", {}), "resume": True}
            self.inbox.ignored = b'"type":"ack"'
        reply = await self._ask(opening)
        self.token = reply["body"].get("runtimeToken", self.token)
        self._received = self._told = 0

    def received(self, count: int) -> None:
        """
        So many came; a client that resumes says so after 64, or half a second.
        """
        self._received += count
        if not self._resume:
            return
        if self._received - self._told >= ACK_AFTER:
            self._acknowledge()
        elif self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(ACK_WITHIN, self._late)

    async def bind(self, addresses: Sequence[str]) -> None:
        """
        Subscribe these addresses, in one request.
        """
        own = f"{self.runtime}/sm"
        body = {"resources": list(addresses)}
        to = "domain://msg-node.localhost/sm"
        await self._ask({"id": 2, "type": "subscribe", "from": own, "to": to, "body": body})

    def letter(self, number: int, sender: str, receiver: str, size: int, spaces: bool = False) -> bytes:
        return self.wire.frame(message(number, sender, receiver, size, spaces))

    def creation(self, number: int) -> bytes:
        """
        A request for so many hyperty addresses.
        """
        own = f"{self.runtime}/address-allocation"
        body = {"scheme": "hyperty", "value": {"number": number}}
        to = "domain://msg-node.localhost/address-allocation"
        return self.wire.frame(compact({"id": 3, "type": "create", "from": own, "to": to, "body": body}))

    def close(self) -> None:
        """
        End the session, not only the connection.
        """
        self.wire.write(
            self.wire.frame(compact({"id": 4, "type": "close", "from": self.runtime, "to": "mn:/session"}))
        )
        self.wire.lose()

    def _late(self) -> None:
        self._soon = None
        if self._received > self._told:
            self._acknowledge()

    def _acknowledge(self) -> None:
        self._told = self._received
        ack = {"id": 0, "type": "ack", "from": self.runtime, "to": "mn:/session"}
        self.wire.write(self.wire.frame(compact({**ack, "body": {"received": self._received}})))

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self.wire.write(self.wire.frame(compact(request)))
        reply: dict[str, Any] = json.loads(await self.inbox.reply(self._end))
        if reply.get("body", {}).get("code") != 200:
            raise Refused(f"{request['type']}: {reply}")
        self._received += 1
        return reply


class NatsClient:
    """
    A core NATS client; an address is a subject.
    """

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.inbox = wire.inbox
        self.inbox.answer_ping = lambda: wire.write(wire.frame(b"PONG\r\n"))

    async def open(self) -> None:
        await self.inbox.reply(b"INFO")
        await self._ask(b'CONNECT {"verbose":false,"pedantic":false}\r\n')

    async def bind(self, addresses: Sequence[str]) -> None:
        await self._ask(
            b"".join(b"SUB %s %d\r\n" % (topic(a).encode(), n) for n, a in enumerate(addresses, 1))
        )

    def received(self, count: int) -> None:
        """
        Nothing is acknowledged.
        """

    def letter(self, number: int, sender: str, receiver: str, size: int, spaces: bool = False) -> bytes:
        return self.wire.frame(nats_publish(receiver, message(number, sender, receiver, size, spaces)))

    def close(self) -> None:
        self.wire.lose()

    async def _ask(self, commands: bytes) -> None:
        self.wire.write(self.wire.frame(commands + b"PING\r\n"))
        reply = await self.inbox.reply(b"PONG")
        if b"-ERR" in reply:
            raise Refused(reply.decode())


class WampClient:
    """
    An anonymous WAMP client; an address is a topic.
    """

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.inbox = wire.inbox

    async def open(self) -> None:
        await self._ask([1, "realm1", {"roles": {"publisher": {}, "subscriber": {}}}], 2)

    async def bind(self, addresses: Sequence[str]) -> None:
        for number, address in enumerate(addresses, 1):
            await self._ask([32, number, {}, topic(address)], 33)

    def received(self, count: int) -> None:
        """
        Nothing is acknowledged.
        """

    def letter(self, number: int, sender: str, receiver: str, size: int, spaces: bool = False) -> bytes:
        return self.wire.frame(wamp_publish(receiver, message(number, sender, receiver, size, spaces)))

    def close(self) -> None:
        self.wire.lose()

    async def _ask(self, request: list[Any], expected: int) -> None:
        self.wire.write(self.wire.frame(compact(request)))
        reply = json.loads(await self.inbox.reply())
        if reply[0] != expected:
            raise Refused(f"{request}: {reply}")


async def connect(job: dict[str, Any], index: int) -> Client:
    """
    Client number `index` of this job, open at its peer.
    """
    kind, port = (job["server"], job["wire"]), job["port"]
    name = f"{job['run']}-{index}"
    client: Client
    if kind in (("msgnode", "websocket"), ("msgnode", "tls"), ("msgnode", "proxied")):
        how = {"token": job.get("token", ""), "resume": job.get("resume", False)}
        wire = await websocket(port, index, Inbox(whole=True), tls=kind[1] != "websocket")
        client = NodeClient(wire, name, b"", login=job.get("login", ""), **how)
    elif kind == ("msgnode", "deflate"):
        client = NodeClient(await deflate(port, index, Inbox(whole=True)), name, b"")
    elif kind == ("msgnode", "line"):
        client = NodeClient(await stream(port, index, Inbox(whole=False), b"\n"), name, b"\n")
    elif kind == ("nats", "websocket"):
        client = NatsClient(await websocket(port, index, Inbox(whole=False), binary=True))
    elif kind == ("nats", "line"):
        client = NatsClient(await stream(port, index, Inbox(whole=False), b""))
    elif kind == ("crossbar", "websocket"):
        client = WampClient(await websocket(port, index, Inbox(whole=True), protocol="wamp.2.json"))
    else:
        raise ValueError(f"no client for {kind}")
    await client.open()
    return client


async def connect_all(job: dict[str, Any], count: int, addresses: Sequence[str] = ()) -> list[Client]:
    """
    So many clients, AT_ONCE at a time; client i is bound to addresses[i] where there is one.
    """
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(index: int) -> Client:
        async with gate:
            client = await connect(job, index)
            if index < len(addresses):
                await client.bind([addresses[index]])
            return client

    return list(await asyncio.gather(*(one(index) for index in range(count))))
