"""
Python clients in memory, by each of their wires, at a Network.
"""

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from msgnode.client import Client, Message
from msgnode.client.endpoint import Endpoint, LineFactory, PollFactory, WebSocketFactory
from msgnode.client.polling.link import PollEndpoint
from tests.support.network import Link, Network

NAMES = {
    "line": "tcp://example.org:9091",
    "web": "ws://example.org/ws",
    "poll": "http://example.org/poll",
}
LISTENERS = {"poll": "web"}  # where it is not the wire


class MemoryEndpoint:
    """
    Connects to a listener of the network, unless it is `down`.
    """

    def __init__(self, net: Network, listener: str) -> None:
        self.net, self.listener = net, listener
        self.down = False
        self.attempts = 0
        self.links: list[Link] = []  # those that are not over; long-polling has two
        self.polls = False

    def connect(self, factory: Factory) -> Deferred[Any]:
        self.attempts += not self.polls
        if self.down:
            return fail(Failure(ConnectionRefusedError()))
        protocol = factory.buildProtocol(None)
        self.links = [link for link in self.links if not link.over]
        self.links.append(self.net.link(self.listener, protocol))
        return succeed(protocol)


class CountedPolling(PollEndpoint):
    """
    Counts attempts as the other wires do: not each connection of HTTP.
    """

    def __init__(self, net: Network, url: str, endpoint: MemoryEndpoint) -> None:
        super().__init__(net.clock, url, endpoint)
        self.counted = endpoint
        endpoint.polls = True

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        self.counted.attempts += 1
        return super().connect(protocolFactory)


class Program(Client):
    """
    A Client at `runtime://example.org/<name>`; `came` is what no handler is for.
    """

    def __init__(self, net: Network, name: str = "a", wire: str = "line", **options: Any) -> None:
        self.net = net
        self.endpoint = MemoryEndpoint(net, LISTENERS.get(wire, wire))
        self.came: list[Message] = []
        url = NAMES[wire]
        make = LineFactory if wire == "line" else lambda owner: WebSocketFactory(owner, url, net.clock)
        runtime = f"runtime://example.org/{name}" if name else ""
        options = {"chance": lambda: 0.0, "heard": self.came.append, **options}
        where = Endpoint(url, self.endpoint, make)
        if wire == "poll":
            where = Endpoint(url, CountedPolling(net, url, self.endpoint), PollFactory)
        super().__init__(net.clock, where, runtime, **options)

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
        for link in self.endpoint.links:
            link.clientIO.stalled = link.serverIO.stalled = True

    def drop(self) -> None:
        """
        The connection is gone without a word.
        """
        for link in self.endpoint.links:
            link.clientIO.abortConnection()
        self.net.pump()
