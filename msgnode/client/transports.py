"""
How the client's bytes travel: WebSocket, or lines.

A link is one connection.  It tells its owner when it can carry messages, what
came, and why it is gone.
"""

import json
import re
import socket
from contextlib import suppress
from typing import Any, Protocol

from autobahn.twisted.websocket import WebSocketClientProtocol
from twisted.internet.protocol import Protocol as StreamProtocol
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure

from msgnode.protocol.close_codes import Closing

MAX_LINE_BYTES = 64 * 1024 * 1024  # bytes; no node sends such
CLOSE_LINE = b'{"type":"close","from":"mn:/session"'
# Seconds until the first probe of a silent connection, and between them; how many.  What was
# sent and is not acknowledged waits for so many milliseconds.
_ALIVE = (
    ("TCP_KEEPIDLE", 25),
    ("TCP_KEEPINTVL", 10),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 60_000),
)
_RETRY = re.compile(r"(.*); retry_after=([0-9.]+)")


class Owner(Protocol):
    """
    The receiver of what comes by a link.
    """

    def arrived(self, link: "Link") -> None: ...
    def heard(self, data: bytes) -> None: ...
    def lost(self, link: "Link", why: Closing | None, text: str) -> None: ...


class Link(Protocol):
    """
    A transport's connection to the node, as its owner uses it.

    `pings`: it finds out by itself that the other end is gone; else the owner
    sets `silent`, and the link takes it back when something comes.
    """

    speaks: str
    pings: bool
    silent: bool

    def send(self, data: bytes) -> None: ...
    def leave(self) -> None: ...
    def abort(self) -> None: ...


class LineLink(StreamProtocol):
    """
    One JSON object a line.
    """

    speaks = "lines"
    pings = silent = False
    transport: Any
    _why: Closing | None = None

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._rest = bytearray()

    def connectionMade(self) -> None:
        stay_alive(self.transport)
        self._owner.arrived(self)

    def dataReceived(self, data: bytes) -> None:
        self.silent = False
        lines = data.split(b"\n")
        rest = lines.pop()
        if lines and self._rest:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest = bytearray()
        heard = self._owner.heard
        for line in lines:
            if line.startswith(CLOSE_LINE):
                self._why = _closing(line)
            elif line:
                heard(line)
        self._rest += rest
        if len(self._rest) > MAX_LINE_BYTES:
            self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._owner.lost(self, self._why, reason.getErrorMessage())

    def send(self, data: bytes) -> None:
        self.transport.write(data + b"\n")

    def leave(self) -> None:
        """
        Close, after what was written.
        """
        self.transport.loseConnection()

    def abort(self) -> None:
        self.transport.abortConnection()


def _closing(line: bytes) -> Closing:
    body = json.loads(line)["body"]
    return Closing(body["code"], body["reason"], body.get("retry_after"))


class WebSocketLink(WebSocketClientProtocol):
    """
    One JSON object a text frame.
    """

    speaks = "WebSocket"
    pings = True
    silent = False
    _why: Closing | None = None
    _text = ""

    def __init__(self, owner: Owner) -> None:
        super().__init__()
        self._owner = owner

    def connectionMade(self) -> None:
        super().connectionMade()
        stay_alive(self.transport)

    def onOpen(self) -> None:
        self._owner.arrived(self)

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        self._owner.heard(payload)

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        self._text = reason or ""
        if wasClean and code is not None:
            asked = _RETRY.fullmatch(self._text)
            self._why = Closing(code, asked[1] if asked else self._text, float(asked[2]) if asked else None)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        super().connectionLost(reason)
        self._owner.lost(self, self._why, self._text or reason.getErrorMessage())

    def send(self, data: bytes) -> None:
        self.sendMessage(data)

    def leave(self) -> None:
        """
        Close, after what was written.
        """
        self.sendClose(1000)

    def abort(self) -> None:
        self.transport.abortConnection()


def stay_alive(transport: Any) -> None:
    """
    Send at once, and have the kernel notice when the other side is gone.
    """
    with suppress(AttributeError, OSError):  # a UNIX socket has none of these
        transport.setTcpNoDelay(True)
        transport.setTcpKeepAlive(True)
        handle = transport.getHandle()
        for name, value in _ALIVE:
            if hasattr(socket, name):
                handle.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
