"""
The transports of the clients: WebSocket, TCP lines, long-polling.

A link is one connection.  `open` sends the `open` or `re-open`, `messages`
yields what comes, and None where the node acknowledged something by the way;
`put` sends.  A link waits as long as the connection lasts: a client that gives
up a slow `open` and sends another one may have them read in the wrong order.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import websockets
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from soaking.progress import STALLED

PATIENCE = 2 * STALLED  # seconds for an answer; those who wait for the client give up before
LINE = 16 * 1024 * 1024  # bytes of a line that are taken
HOLD = 5  # seconds a GET may be held
ASK_AGAIN = 1.0  # seconds without a POST until a client that polls asks what is on disk


class Broken(Exception):
    """
    The error of a connection that is no more.
    """


class Link:
    """
    A connection of one client.

    `acknowledged` is how many messages the node said it has, where it says so by the way. `node` is the name
    of that node, where there are several.
    """

    node = ""
    token = ""
    acknowledged = 0

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self, request: bytes) -> bytes:
        raise NotImplementedError

    def put(self, data: bytes, number: int) -> None:
        raise NotImplementedError

    def acknowledge(self, ack: bytes) -> None:
        self.put(ack, 0)

    def messages(self, received: Callable[[], int]) -> AsyncIterator[bytes | None]:
        raise NotImplementedError

    async def garble(self, data: bytes) -> None:
        """
        Send what is no message, and give the node a moment to read it.
        """
        self.put(data, 0)
        await asyncio.sleep(0.1)

    def abort(self) -> None:
        raise NotImplementedError


class WebSocketLink(Link):
    """
    A WebSocket at `/ws`.
    """

    _socket: ClientConnection | None = None

    async def open(self, request: bytes) -> bytes:
        try:
            self._socket = await asyncio.wait_for(
                connect(
                    f"ws://127.0.0.1:{self._port}/ws",
                    max_size=LINE,
                    compression=None,
                    ping_interval=None,
                    close_timeout=0.2,
                    open_timeout=PATIENCE,
                ),
                PATIENCE,
            )
            await self._socket.send(request.decode())
            return str(await asyncio.wait_for(self._socket.recv(), PATIENCE)).encode()
        except WebSocketException as why:
            raise Broken(str(why)) from why

    def put(self, data: bytes, number: int) -> None:
        # Straight to the transport: `send` would have to be awaited for each.
        socket = self._socket
        assert socket is not None
        if socket.state is websockets.State.OPEN:
            socket.protocol.send_text(data)
            with suppress(Exception):
                for piece in socket.protocol.data_to_send():
                    socket.transport.write(piece)

    async def messages(self, received: Callable[[], int]) -> AsyncIterator[bytes | None]:
        assert self._socket is not None
        try:
            async for text in self._socket:
                yield text.encode() if isinstance(text, str) else text
        except WebSocketException as why:
            raise Broken(str(why)) from why

    def abort(self) -> None:
        if self._socket is not None:
            self._socket.transport.abort()


class LineLink(Link):
    """
    A TCP connection with one JSON object a line.
    """

    _writer: asyncio.StreamWriter | None = None

    async def open(self, request: bytes) -> bytes:
        opened = asyncio.open_connection("127.0.0.1", self._port, limit=LINE)
        self._reader, self._writer = reader, writer = await asyncio.wait_for(opened, PATIENCE)
        writer.write(request + b"\n")
        line = await asyncio.wait_for(reader.readline(), PATIENCE)
        if not line.endswith(b"\n") or line.startswith(b'{"type":"close"'):
            raise Broken("closed")
        return line

    def put(self, data: bytes, number: int) -> None:
        assert self._writer is not None
        self._writer.write(data + b"\n")

    async def messages(self, received: Callable[[], int]) -> AsyncIterator[bytes | None]:
        while True:
            line = await self._reader.readline()
            if not line.endswith(b"\n"):
                raise Broken("closed")
            if not line.startswith(b'{"type":"close"'):
                yield line

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()


class PollLink(Link):
    """
    A client that polls: one connection for GET, another for POST.
    """

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._waiting: list[tuple[int, bytes]] = []
        self._last = 0  # number of the last message that was posted
        self._something = asyncio.Event()
        self._get: Http | None = None
        self._post: Http | None = None
        self._posting: asyncio.Task[None] | None = None
        self._news: asyncio.Queue[None] = asyncio.Queue()

    async def open(self, request: bytes) -> bytes:
        self._get, self._post = await Http.to(self._port), await Http.to(self._port)
        status, body = await self._post.ask("POST", "/poll", "", request)
        if status != 200:
            raise Broken(f"status {status}")
        return json.dumps(json.loads(body)["messages"][0]).encode()

    def put(self, data: bytes, number: int) -> None:
        self._waiting.append((number, data))
        self._something.set()

    def acknowledge(self, ack: bytes) -> None:
        """
        The next GET says it.
        """

    async def confirm(self, received: int) -> None:
        """
        Say it now, and wait until the node has heard it.
        """
        assert self._get is not None
        await self._get.ask("GET", f"/poll?wait=0&after={received}", self.token)

    async def garble(self, data: bytes) -> None:
        assert self._post is not None
        await self._post.ask("POST", "/poll", self.token, data)

    async def messages(self, received: Callable[[], int]) -> AsyncIterator[bytes | None]:
        assert self._get is not None
        self._posting = asyncio.create_task(self._post_all())
        self._posting.add_done_callback(_take_notice)
        while True:
            path = f"/poll?wait={HOLD}&after={received()}"
            status, body = await self._get.ask("GET", path, self.token)
            while not self._news.empty():
                self._news.get_nowait()
                yield None
            if self._posting.done():
                raise Broken("a POST failed")
            if status == 200:
                for message in json.loads(body)["messages"]:
                    yield json.dumps(message).encode()
            elif status != 204:
                raise Broken(f"status {status}")

    async def _post_all(self) -> None:
        """
        Post what is to be sent; and nothing, to hear of what was still worked on at the last POST.
        """
        assert self._post is not None
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._something.wait(), ASK_AGAIN)
            if not self._waiting and self.acknowledged >= self._last:
                continue
            self._something.clear()
            some, self._waiting = self._waiting, []
            first = some[0][0] if some else self._last + 1
            body = b"[" + b",".join(data for _, data in some) + b"]"
            status, answer = await self._post.ask("POST", f"/poll?seq={first}", self.token, body)
            if status == 400 and len(some) > 1:
                raise Broken("refused")
            if status != 202:
                raise Broken(f"status {status}")
            self._last = first + len(some) - 1
            self.acknowledged = json.loads(answer)["received"]
            self._news.put_nowait(None)

    def abort(self) -> None:
        if self._posting is not None:
            self._posting.cancel()
        for http in (self._get, self._post):
            if http is not None:
                http.abort()


def any_link(chance: random.Random, web: int, line: int) -> Link:
    """
    A WebSocket at one port or lines at the other, by chance.
    """
    return LineLink(line) if chance.random() < 0.5 else WebSocketLink(web)


def _take_notice(task: asyncio.Task[None]) -> None:
    # The next GET says that it failed; asyncio need not.
    if not task.cancelled():
        task.exception()


class Http:
    """
    An HTTP/1.1 connection, with as much of HTTP as long-polling needs.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, port: int) -> "Http":
        opened = asyncio.open_connection("127.0.0.1", port, limit=LINE)
        return cls(*await asyncio.wait_for(opened, PATIENCE))

    async def ask(self, method: str, path: str, token: str, body: bytes = b"") -> tuple[int, bytes]:
        """
        The status and the body of the answer.
        """
        bearer = f"Authorization: Bearer {token}\r\n" if token else ""
        head = f"{method} {path} HTTP/1.1\r\nHost: node\r\n{bearer}Content-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        return await asyncio.wait_for(self._answer(), PATIENCE + HOLD)

    async def _answer(self) -> tuple[int, bytes]:
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            status, length, chunked = int(lines[0].split()[1]), 0, False
            for line in lines[1:]:
                name, _, value = line.partition(":")
                if name.lower() == "content-length":
                    length = int(value)
                chunked = chunked or (name.lower() == "transfer-encoding" and "chunked" in value)
            if not chunked:
                return status, await self._reader.readexactly(length)
            body = b""
            while size := int(await self._reader.readline(), 16):
                body += await self._reader.readexactly(size)
                await self._reader.readexactly(2)
            await self._reader.readexactly(2)
            return status, body
        except (asyncio.IncompleteReadError, IndexError, ValueError) as why:
            raise Broken(str(why)) from why

    def abort(self) -> None:
        self._writer.transport.abort()
