"""
The network of one stub: its WebSockets and requests, which the node makes for it.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from msgnode.backends.call_outcomes import in_words
from msgnode.foreign.lifecycle.stub_host import StubLimits
from msgnode.foreign.proxy.guard import AddressGuard, split_port
from msgnode.foreign.proxy.http import HTTPResponse, StubRequests
from msgnode.foreign.proxy.websocket import ABNORMAL, StubWebSocket
from msgnode.foreign.sandbox.flow import Allowance, Rate
from msgnode.foreign.sandbox.lines import (
    MAX_SUB_PROTOCOLS,
    MAX_URL_CHARACTERS,
    Abort,
    BadLine,
    Close,
    Fetch,
    Open,
    Send,
    encoded,
)
from msgnode.transport.endpoints import QuietEndpoint, TLSTrust

MAX_UNSENT_BYTES = 32 * 1024 * 1024  # twice what the host script lets a socket have
CONNECTIONS_SECONDS = 5.0  # of the permitted rate may come at once
REQUESTS_SECONDS = 1.0
_VISIBLE = re.compile(r"[!-~]+")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # of RFC 9110
PORTS = {"ws": 80, "wss": 443, "http": 80, "https": 443}


class Egress(NamedTuple):
    """
    The parts of the node by which stubs connect.
    """

    reactor: Any
    guard: AddressGuard
    trust: TLSTrust
    requests: StubRequests


class NotPermitted(Exception):
    """
    A connection that the stub may not make. `limit` is the limit that it is beyond.
    """

    def __init__(self, text: str, limit: str = "hosts") -> None:
        super().__init__(text)
        self.limit = limit


class StubNetwork:
    """
    The sockets and requests of one stub. `write` takes lines for its process, `limited` the word of a limit
    that it has reached.
    """

    def __init__(
        self,
        egress: Egress,
        hosts: tuple[str, ...],
        limits: StubLimits,
        write: Callable[[bytes], None],
        limited: Callable[[str], None],
    ) -> None:
        self._egress = egress
        self._hosts = frozenset(split_port(each) for each in hosts)
        self._limits = limits
        self._max_bytes = limits.message_bytes + limits.message_bytes // 2
        self._write = write
        self.limited = limited
        self._sockets: dict[int, _Socket] = {}
        self._requests: dict[int, Deferred[Any]] = {}
        self._opening = Allowance(egress.reactor, CONNECTIONS_SECONDS, limits.connections_per_second)
        self._fetching = Allowance(egress.reactor, REQUESTS_SECONDS, limits.requests_per_second)
        self._incoming = Rate(egress.reactor, limits.messages_per_second, limits.output_bytes_per_second)
        self._paused = False

    def read(self, size: int, frames: int) -> float:
        """
        So much came; the seconds until more may be read.
        """
        self._incoming.take(size, frames)
        wait = self._incoming.wait()
        if wait:
            self.limited("incoming")
        return wait

    def _permitted(self, url: str, schemes: tuple[str, ...]) -> tuple[SplitResult, str, int]:
        """
        The parts of a URL, with its host and port. NotPermitted if the stub may not connect to it.
        """
        if len(url) > MAX_URL_CHARACTERS or not _VISIBLE.fullmatch(url):
            raise NotPermitted(f"expected a URL of at most {MAX_URL_CHARACTERS} visible ASCII characters")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or PORTS.get(parts.scheme, 0)
        except ValueError as why:
            raise NotPermitted(str(why)) from None
        if "@" in parts.netloc or "\\" in url:  # others read them in another way
            raise NotPermitted(f"expected a URL without a user and without a backslash, not {url[:200]!r}")
        if parts.scheme not in schemes or not host:
            raise NotPermitted(f"expected a URL with {' or '.join(schemes)}, not {url[:200]!r}")
        if (host, port) not in self._hosts:
            raise NotPermitted(f"{host}:{port} is not among the hosts that this stub may connect to")
        return parts, host, port

    # -- WebSockets --------------------------------------------------------------

    def open(self, line: Open) -> None:
        if line.s in self._sockets or len(line.protocols) > MAX_SUB_PROTOCOLS:
            raise BadLine(f"a WebSocket cannot be opened as number {line.s}")
        try:
            if len(self._sockets) >= self._limits.sockets:
                text = f"a stub has at most {self._limits.sockets} WebSockets at once"
                raise NotPermitted(text, "sockets")
            if not all(_TOKEN.fullmatch(each) for each in line.protocols):
                raise NotPermitted("a sub-protocol has letters, digits and some signs only (RFC 9110, 5.6.2)")
            parts, host, port = self._permitted(line.url, ("ws", "wss"))
        except NotPermitted as why:
            self.limited(why.limit)
            self.tell("closed", s=line.s, code=ABNORMAL, reason=str(why), clean=False)
            return
        socket = self._sockets[line.s] = _Socket(self, line.s)
        wait = self._opening.wait()
        if wait:
            self.limited("connections")
        socket.starting = self._egress.reactor.callLater(
            wait, self._connect, socket, line, parts.scheme, host, port
        )

    def _connect(self, socket: "_Socket", line: Open, scheme: str, host: str, port: int) -> None:
        socket.starting = None
        egress = self._egress
        creator = egress.trust.creatorForNetloc(host.encode("ascii"), port) if scheme == "wss" else None
        endpoint = QuietEndpoint(egress.guard.endpoint(host, port), creator, egress.reactor)
        socket.connection = StubWebSocket(egress.reactor, socket)
        if self._paused:
            socket.connection.pause()
        try:
            socket.connection.connect(endpoint, line.url, line.protocols, self._max_bytes)
        except Exception as why:  # a URL or a sub-protocol that Autobahn refuses
            socket.closed(ABNORMAL, in_words(why), False)

    def send(self, line: Send) -> None:
        socket = self._sockets.get(line.s)
        if socket is None or socket.connection is None:
            return
        is_binary = line.text is None
        payload = (line.base64 or b"") if line.text is None else line.text.encode()
        socket.unsent += len(payload)
        if len(payload) > self._max_bytes or socket.unsent > MAX_UNSENT_BYTES:
            raise BadLine("more is sent on a WebSocket than the host script permits", "unsent")
        socket.connection.send(payload, is_binary)

    def close(self, line: Close) -> None:
        socket = self._sockets.get(line.s)
        if socket is None:
            return
        if socket.connection is None:
            socket.closed(ABNORMAL, "closed before it was open", False)
        else:
            socket.connection.close(line.code, line.reason[:120])

    def closed(self, number: int, code: int, reason: str, clean: bool) -> None:
        if self._sockets.pop(number, None) is not None:
            self.tell("closed", s=number, code=code, reason=reason, clean=clean)

    def tell(self, kind: str, **fields: Any) -> None:
        self._write(encoded(kind, **fields))

    # -- requests ----------------------------------------------------------------

    def fetch(self, line: Fetch) -> None:
        if line.s in self._requests:
            raise BadLine(f"request {line.s} is under way")
        try:
            if len(self._requests) >= self._limits.requests:
                raise NotPermitted(f"a stub has at most {self._limits.requests} requests at once", "requests")
            if not self._fetching.take():
                text = f"a stub may make {self._limits.requests_per_second} requests in a second"
                raise NotPermitted(text, "request-rate")
            if self._incoming.wait():
                text = f"a stub gets {self._limits.output_bytes_per_second} bytes in a second"
                raise NotPermitted(text, "incoming")
            self._permitted(line.url, ("http", "https"))
        except NotPermitted as why:
            self.limited(why.limit)
            self.tell("fetched", s=line.s, error=str(why))
            return
        request = self._egress.requests.request(
            line.method, line.url, line.headers, line.body, self._max_bytes
        )
        self._requests[line.s] = request
        request.addCallbacks(self._answered, self._not_answered, (line.s,), {}, (line.s,), {})

    def _answered(self, response: HTTPResponse, number: int) -> None:
        if self._requests.pop(number, None) is not None:
            status, reason, headers, body = response
            self._incoming.take(len(body))
            self.tell("fetched", s=number, status=status, reason=reason, headers=headers, body=body)

    def _not_answered(self, why: Failure, number: int) -> None:
        if self._requests.pop(number, None) is not None:
            assert why.value is not None
            self.tell("fetched", s=number, error=in_words(why.value))

    def abort(self, line: Abort) -> None:
        request = self._requests.pop(line.s, None)
        if request is not None:
            request.cancel()

    # -- the process ---------------------------------------------------------------

    def pause(self) -> None:
        """
        The process does not read; nothing is read for it either.
        """
        self._paused = True
        for socket in self._sockets.values():
            if socket.connection is not None:
                socket.connection.pause()

    def resume(self) -> None:
        self._paused = False
        for socket in list(self._sockets.values()):
            if socket.connection is not None:
                socket.connection.resume()

    def end(self) -> None:
        """
        The process is gone.
        """
        sockets, self._sockets = self._sockets, {}
        requests, self._requests = self._requests, {}
        for socket in sockets.values():
            socket.end()
        for request in requests.values():
            request.cancel()


class _Socket:
    """
    A WebSocket of a stub, by its number; the SocketEvents of its connection.
    """

    def __init__(self, network: StubNetwork, number: int) -> None:
        self._network = network
        self._number = number
        self.starting: IDelayedCall | None = None
        self.connection: StubWebSocket | None = None
        self.unsent = 0

    def end(self) -> None:
        if self.starting is not None and self.starting.active():
            self.starting.cancel()
        if self.connection is not None:
            self.connection.abort()

    def opened(self, protocol: str) -> None:
        self._network.tell("opened", s=self._number, protocol=protocol)

    def received(self, payload: bytes, is_binary: bool) -> None:
        if is_binary:
            self._network.tell("message", s=self._number, base64=payload)
        else:
            self._network.tell("message", s=self._number, text=payload.decode())

    def read(self, size: int, frames: int) -> float:
        return self._network.read(size, frames)

    def limited(self, limit: str) -> None:
        self._network.limited(limit)

    def drained(self, size: int) -> None:
        self.unsent -= size
        self._network.tell("sent", s=self._number, n=size)

    def closed(self, code: int, reason: str, clean: bool) -> None:
        if self.starting is not None and self.starting.active():
            self.starting.cancel()
        self._network.closed(self._number, code, reason, clean)
