"""
Python clients in memory, by each of their wires, at a Network.
"""

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from msgnode.client import Client, Message
from msgnode.client.endpoint import Endpoint, LineFactory, WebSocketFactory
from tests.support.network import Link, Network

NAMES = {"line": "tcp://example.org:9091", "web": "ws://example.org/ws"}


class MemoryEndpoint:
    """
    Connects to a listener of the network, unless it is `down`.
    """

    def __init__(self, net: Network, listener: str) -> None:
        self.net, self.listener = net, listener
        self.down = False
        self.attempts = 0
        self.link: Link | None = None

    def connect(self, factory: Factory) -> Deferred[Any]:
        self.attempts += 1
        if self.down:
            return fail(Failure(ConnectionRefusedError()))
        protocol = factory.buildProtocol(None)
        self.link = self.net.link(self.listener, protocol)
        return succeed(protocol)


class Program(Client):
    """
    A Client at `runtime://example.org/<name>`; `came` is what no handler is for.
    """

    def __init__(self, net: Network, name: str = "a", wire: str = "line", **options: Any) -> None:
        self.net = net
        self.endpoint = MemoryEndpoint(net, wire)
        self.came: list[Message] = []
        url = NAMES[wire]
        make = LineFactory if wire == "line" else lambda owner: WebSocketFactory(owner, url, net.clock)
        runtime = f"runtime://example.org/{name}" if name else ""
        options = {"chance": lambda: 0.0, "heard": self.came.append, **options}
        super().__init__(net.clock, Endpoint(url, self.endpoint, make), runtime, **options)

    def opened(self) -> "Program":
        """
        The same, connected.
        """
        done = self.connect()
        self.net.pump()
        assert done.called and not isinstance(done.result, Failure), done
        return self

    def result(self, deferred: Deferred[Any]) -> Any:
        """
        What it fires with; raises what it fails with.
        """
        self.net.pump()
        found: list[Any] = []
        deferred.addBoth(found.append)
        assert found, "it has not fired"
        if isinstance(found[0], Failure):
            found[0].raiseException()
        return found[0]

    def swallow(self) -> None:
        """
        The network takes all and carries nothing, and neither end is told.
        """
        assert self.endpoint.link is not None
        self.endpoint.link.clientIO.stalled = self.endpoint.link.serverIO.stalled = True

    def drop(self) -> None:
        """
        The connection is gone without a word.
        """
        assert self.endpoint.link is not None
        self.endpoint.link.clientIO.abortConnection()
        self.net.pump()
