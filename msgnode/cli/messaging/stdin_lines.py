"""
Lines of stdin, read in a thread: stdin may be a file, a pipe or a terminal, and blocks.
"""

import os
from collections import deque
from threading import BoundedSemaphore, Thread
from typing import Any

from twisted.internet.defer import Deferred, succeed

MAX_AHEAD = 1000  # lines that are read before they are taken
MAX_LINE_BYTES = 64 * 1024 * 1024
_BLOCK = 65536


class LineTooLong(Exception):
    """
    A line is longer than any message may be.
    """


class StdinLines:
    """
    The lines of a file descriptor, without their ends.
    """

    def __init__(self, reactor: Any, descriptor: int = 0) -> None:
        self._reactor = reactor
        self._descriptor = descriptor
        self._room = BoundedSemaphore(MAX_AHEAD)
        self._lines: deque[bytes | LineTooLong | None] = deque()
        self._wanted: Deferred[bytes | None] | None = None
        # A daemon: a read that blocks does not keep the command from ending.
        Thread(target=self._read, daemon=True).start()

    def next(self) -> Deferred[bytes | None]:
        """
        Fires with the next line, and with None at the end; fails with LineTooLong.
        """
        if self._lines:
            return self._taken()
        self._wanted = Deferred()
        return self._wanted

    def _taken(self) -> Deferred[bytes | None]:
        line = self._lines[0]
        if isinstance(line, bytes):  # the end stays
            self._lines.popleft()
            self._room.release()
        if isinstance(line, LineTooLong):
            failed: Deferred[bytes | None] = Deferred()
            failed.errback(line)
            return failed
        return succeed(line)

    def _read(self) -> None:
        rest = b""
        while True:
            try:
                block = os.read(self._descriptor, _BLOCK)
            except OSError:
                block = b""
            *lines, rest = (rest + block).split(b"\n")
            if not block and rest:
                lines.append(rest)
            for line in lines:
                self._room.acquire()
                self._reactor.callFromThread(self._came, line.removesuffix(b"\r"))
            if not block:
                self._reactor.callFromThread(self._came, None)
                return
            if len(rest) > MAX_LINE_BYTES:
                self._reactor.callFromThread(
                    self._came, LineTooLong(f"a line has over {MAX_LINE_BYTES} bytes")
                )
                return

    def _came(self, line: bytes | LineTooLong | None) -> None:
        self._lines.append(line)
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            self._taken().chainDeferred(wanted)
