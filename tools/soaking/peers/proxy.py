"""
The proxy between the clients and the node, which can break connections in every way.
"""

import asyncio
import socket
import time
from collections.abc import Callable

from soaking.peers.ports import free_port

ROOM_BYTES = 64 * 1024
UNDER_WAY = 64  # pieces of what was read, at most, that are held back


class Proxy:
    """
    Passes connections on to the node, and can let one go dead: open, and nothing passes any more.

    While the way is closed, all connections break and none is made. `delay_seconds` holds back what passes,
    in both directions, `pause_seconds` is a pause after each 64 KiB, and `tap` sees it.
    """

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.delay_seconds = self.pause_seconds = 0.0
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


Late = asyncio.Queue[tuple[float, bytes]]  # when it is due


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
        self._tasks: list[asyncio.Task[None]] = []
        for reader, writer in ((near[0], far[1]), (far[0], near[1])):
            late: Late = asyncio.Queue(UNDER_WAY)
            self._tasks += [
                asyncio.create_task(self._read(reader, late)),
                asyncio.create_task(self._write(late, writer)),
            ]

    async def _read(self, reader: asyncio.StreamReader, late: Late) -> None:
        """
        What is read is due after the delay; the end, too, which is empty.
        """
        data = b"more"
        while data:
            try:
                data = await reader.read(ROOM_BYTES)
            except OSError:
                data = b""
            if data:
                self._proxy.tap(data)
            delay = self._proxy.delay_seconds
            await late.put((time.monotonic() + delay, data))
            if not delay:
                await late.join()  # no more is read than the other side takes
            if self._proxy.pause_seconds:
                await asyncio.sleep(self._proxy.pause_seconds)

    async def _write(self, late: Late, writer: asyncio.StreamWriter) -> None:
        data = b"more"
        try:
            while data:
                due, data = await late.get()
                if (left := due - time.monotonic()) > 0:
                    await asyncio.sleep(left)
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
                late.task_done()
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
            for task in self._tasks:
                if task is not asyncio.current_task():
                    task.cancel()
