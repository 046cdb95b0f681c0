"""
The proxy between the clients and the node, which can break connections in every way.
"""

import asyncio
import socket
from collections.abc import Callable

from soaking.peers.ports import free_port

ROOM_BYTES = 64 * 1024


class Proxy:
    """
    Passes connections on to the node, and can let one go dead: open, and nothing passes any more.

    While the way is closed, all connections break and none is made. `delay_seconds` holds back what passes,
    in both directions, and `tap` sees it.
    """

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.delay_seconds = 0.0
        self.tap: Callable[[bytes], None] = lambda data: None
        self._target = target
        self._is_open = True
        self._pipes: list[Pipe] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        listening = _with_little_room()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self.port))
        self._server = await asyncio.start_server(self._accept, sock=listening)

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    def pipes(self) -> "list[Pipe]":
        self._pipes = [pipe for pipe in self._pipes if not pipe.over]
        return self._pipes

    def close_way(self) -> None:
        self._is_open = False
        self.cut()

    def cut(self) -> None:
        """
        Break all connections.
        """
        for pipe in self.pipes():
            pipe.cut()

    def open_way(self) -> None:
        self._is_open = True

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._is_open:
            writer.transport.abort()
            return
        try:
            connecting = _with_little_room()
            await asyncio.get_running_loop().sock_connect(connecting, ("127.0.0.1", self._target))
            there = await asyncio.open_connection(sock=connecting)
        except OSError:
            connecting.close()
            writer.transport.abort()
            return
        self._pipes.append(Pipe((reader, writer), there, self))


def _with_little_room() -> socket.socket:
    """
    A socket that takes no more than a slow link has under way: by default the system buffers megabytes, and
    what is urgent could not overtake them.
    """
    made = socket.socket()
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM_BYTES)
    return made


class Pipe:
    """
    One connection through the proxy.
    """

    def __init__(
        self,
        near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        proxy: Proxy,
    ) -> None:
        self._proxy = proxy
        self.over = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers = near[1], far[1]
        self._tasks = [
            asyncio.create_task(self._pump(near[0], far[1])),
            asyncio.create_task(self._pump(far[0], near[1])),
        ]

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                self._proxy.tap(data)
                if self._proxy.delay_seconds:
                    await asyncio.sleep(self._proxy.delay_seconds)
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
            await self._flowing.wait()
        except OSError:
            await self._flowing.wait()
        finally:
            self.cut()

    def freeze(self) -> None:
        """
        Neither side hears of the other any more, and neither is told.
        """
        self._flowing.clear()

    def leave_node(self) -> None:
        """
        The client is told that the connection is gone, the node is not.
        """
        self._writers[0].transport.abort()

    def cut(self) -> None:
        if not self.over:
            self.over = True
            self._flowing.set()
            for writer in self._writers:
                writer.transport.abort()
