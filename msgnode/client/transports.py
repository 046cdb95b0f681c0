"""
The transports of the client: WebSocket, and TCP lines with a keepalive.

A link is one connection.  It notifies its owner when it is ready for messages, of
each message that arrives, and of the reason when it is lost.
"""

import json
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from autobahn.twisted.websocket import WebSocketClientProtocol
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Protocol as StreamProtocol
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure

from msgnode.client.message import encode
from msgnode.protocol.address import SESSION
from msgnode.protocol.close_codes import Closing

QUIET_SECONDS = 25.0  # seconds without data on lines until a ping is sent, and until it must be answered
MAX_LINE_BYTES = 64 * 1024 * 1024  # no node sends a longer line
CLOSE_LINE = b'{"type":"close","from":"mn:/session"'
# Seconds until the first probe of a silent connection, seconds between two probes, and their number;
# then the milliseconds after which unacknowledged data ends the connection.
_ALIVE = (
    ("TCP_KEEPIDLE", 25),
    ("TCP_KEEPINTVL", 10),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 60_000),
)
_RETRY = re.compile(r"(.*?); retry_after=([0-9.]+)(?:; node=.*)?")  # docs/protocol.md, "Closing"


class Owner(Protocol):
    """
    The receiver of a link's messages and events.
    """

    def arrived(self, link: "Link") -> None: ...
    def heard(self, data: bytes) -> None: ...
    def lost(self, link: "Link", why: Closing | None, text: str) -> None: ...


class Link(Protocol):
    """
    A transport's connection to the node, as its owner uses it.

    `pings`: the link itself detects that the peer is gone.  Otherwise the owner
    sets `silent`, and the link clears it when data arrives.
    """

    speaks: str
    pings: bool
    silent: bool

    def send(self, data: bytes) -> None: ...
    def leave(self) -> None: ...
    def abort(self) -> None: ...


class LineLink(StreamProtocol):
    """
    A link of TCP lines: one JSON object per line.
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
        Close the connection after all written data is sent.
        """
        self.transport.loseConnection()

    def abort(self) -> None:
        self.transport.abortConnection()


def _closing(line: bytes) -> Closing:
    body = json.loads(line)["body"]
    return Closing(body["code"], body["reason"], body.get("retry_after"))


class WebSocketLink(WebSocketClientProtocol):
    """
    A link of WebSocket: one JSON object per text frame.
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
        Close the connection after all written data is sent.
        """
        self.sendClose(1000)

    def abort(self) -> None:
        self.transport.abortConnection()


def stay_alive(transport: Any) -> None:
    """
    Send small writes at once, and let the kernel detect that the peer is gone.
    """
    with suppress(AttributeError, OSError):  # a UNIX socket has none of these
        transport.setTcpNoDelay(True)
        transport.setTcpKeepAlive(True)
        handle = transport.getHandle()
        for name, value in _ALIVE:
            if hasattr(socket, name):
                handle.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Keepalive:
    """
    The keepalive timer of an open link of lines; calls `dead` when the node does not answer.

    If a peer vanishes without closing, the connection seems open as long as no data is sent, and for many
    minutes after data was sent.  WebSocket has pings for this; on lines the client sends a `ping` message.
    """

    def __init__(self, reactor: Any, link: Link, runtime: str, dead: Callable[[], None]) -> None:
        self._reactor = reactor
        self._link = link
        self._ping = encode({"id": 0, "type": "ping", "from": runtime, "to": SESSION})
        self._dead = dead
        self._asked = False
        self._next: IDelayedCall = reactor.callLater(QUIET_SECONDS, self._look)
        link.silent = True

    def stop(self) -> None:
        if self._next.active():
            self._next.cancel()

    def _look(self) -> None:
        link = self._link
        if link.silent and self._asked:
            self._dead()
            return
        self._asked = link.silent
        if link.silent:
            link.send(self._ping)
        link.silent = True
        self._next = self._reactor.callLater(QUIET_SECONDS, self._look)
