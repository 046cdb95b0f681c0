"""
A reader of the node's dashboard, which asks for what a browser with the overview open asks for.
"""

import asyncio
import contextlib
from pathlib import Path
from types import TracebackType
from typing import Any

REFRESH = 2.0  # seconds between two requests for the page: dashboard.js while there are events all the time


class DashboardReader:
    """
    An event stream, and the overview again and again. Without `watching` in the job it reads nothing.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        self.pages = 0
        self._port = job["admin"]
        self._home = job["home"]
        self._tasks: list[asyncio.Task[None]] = []
        self._is_watching = bool(job.get("watching"))

    async def __aenter__(self) -> "DashboardReader":
        if self._is_watching:
            self._token = next(Path(self._home).rglob("admin-token")).read_text().split()[0]
            self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._refresh())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def check(self) -> list[str]:
        """
        The errors of a reader that did not read.
        """
        if not self._is_watching:
            return []
        failed = [repr(task.exception()) for task in self._tasks if task.done() and task.exception()]
        return failed or ([] if self.pages else ["the dashboard was not read"])

    async def _ask(self, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self._token}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode())
        status = await reader.readline()
        if b" 200 " not in status:
            raise RuntimeError(f"{path}: {status.decode().strip()}")
        return reader, writer

    async def _listen(self) -> None:
        kinds = "session,refusal,slow,shed,backend,config,policy"
        reader, writer = await self._ask(f"/api/v1/events?kinds={kinds}")
        with contextlib.closing(writer):
            while await reader.read(65536):
                pass
        raise RuntimeError("the event stream ended")

    async def _refresh(self) -> None:
        while True:
            reader, writer = await self._ask("/")
            with contextlib.closing(writer):
                if b"Messages a second" in await reader.read():
                    self.pages += 1
            await asyncio.sleep(REFRESH)
