"""
Back ends in memory: a server of twisted.web, or one that writes what it is told, behind an endpoint.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from zope.interface import implementer

from msgnode.backends.http_client import BackendClient
from msgnode.config.sections import BackEndOptions
from tests.support.network import Link, Wire


class Scripted(Protocol):
    """
    A server that keeps what it is sent, and writes `reply` once a request is there.
    """

    reply = b""

    def __init__(self) -> None:
        self.got = b""

    def dataReceived(self, data: bytes) -> None:
        self.got += data
        if self.reply:
            self.transport.write(self.reply)

    def connectionLost(self, reason: Any = None) -> None:
        self.gone = True

    gone = False


@implementer(IStreamClientEndpoint)
class Memory:
    """
    An endpoint whose connections lead to what `serve` makes; `dialled` counts them.

    `refuse` is an exception that connecting ends with, "hang", or "cancel": as a host that
    drops SYN, whose connection ends in an exception of its own when it is given up.
    """

    def __init__(self, clock: Clock, serve: Callable[[], Any] = Scripted) -> None:
        self.clock = clock
        self.serve = serve
        self.refuse: Any = None
        self.dialled = 0
        self.servers: list[Any] = []
        self.links: list[Link] = []

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        self.dialled += 1
        if self.refuse == "hang":
            return Deferred()
        if self.refuse == "cancel":
            return Deferred(lambda replaced: replaced.errback(ConnectingCancelledError(None)))
        if self.refuse is not None:
            return fail(self.refuse)
        client, server = protocolFactory.buildProtocol(None), self.serve()
        link = Link(client, server, Wire(client, False), Wire(server, True), False, self.clock)
        server.makeConnection(link.serverIO)
        client.makeConnection(link.clientIO)
        self.servers.append(server)
        self.links.append(link)
        return succeed(client)

    def pump(self) -> None:
        for _ in range(10_000):
            self.clock.advance(0)
            if not any([link.pump(advanceClock=False) for link in self.links]):
                break
        self.links = [link for link in self.links if not link.over]

    def cut(self) -> None:
        """
        All connections break.
        """
        for link in self.links:
            link.serverIO.abortConnection()
        self.pump()

    @property
    def open(self) -> int:
        """
        Connections that stand.
        """
        self.pump()
        return len(self.links)

    def rest(self, base: str = "http://registry.example.org", **options: Any) -> BackendClient:
        """
        A client of this back end.
        """
        return BackendClient(
            base, BackEndOptions(**options), self.clock, "registry", dial=lambda host, port: self
        )


class Unforeseen(Exception):
    """
    What no table of exceptions has.
    """


class Broken:
    """
    In the place of a back end's client: while it is `broken` each request ends as nobody foresaw.
    """

    def __init__(self, rest: BackendClient) -> None:
        self.rest = rest
        self.broken = True
        self.asked = 0
        self.name, self.counts, self.down = rest.name, rest.counts, False

    def request(self, *what: Any, **how: Any) -> Deferred[Any]:
        self.asked += 1
        return fail(Unforeseen("strange")) if self.broken else self.rest.request(*what, **how)


def http(body: bytes = b"{}", status: str = "200 OK", kind: str = "application/json") -> bytes:
    """
    A whole response.
    """
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
