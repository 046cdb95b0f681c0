"""
A node with its listeners in memory, and the wires to its clients.

iosim's transports, and what they lack: a peer that does not read, reads of
64 KiB, a producer that is paused when 64 KiB wait, and a last word that still
leaves after loseConnection.
"""

from collections import deque
from functools import cached_property
from itertools import count
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IPushProducer, ITCPTransport
from twisted.internet.protocol import Protocol
from twisted.test.iosim import FakeTransport, IOPump
from twisted.web.server import Site
from zope.interface import implementer

from msgnode.admin.admin_tokens import AdminTokens
from msgnode.admin.health import EventLoopLag
from msgnode.admin.live.service import Live
from msgnode.admin.node_facts import NodeFacts
from msgnode.admin.operations import Operations
from msgnode.config.schema import Listen
from msgnode.connectors.websocket import WebSocketConnection
from msgnode.policy.administration.commands import PolicyCommands
from msgnode.service.tap import admin_factory, factories
from msgnode.service.wiring import make_policy_store
from msgnode.transport.tls import over_tls
from tests.support.certificate import PATH
from tests.support.durable import DurableNode
from tests.support.fakes import MemoryNode

READ = 65536  # bytes in one read, and those that may wait to be written

_ports = count(50000)


@implementer(ITCPTransport, IPushProducer)
class Wire(FakeTransport):
    """
    One end of a connection.  `stalled`: the other end does not read.
    """

    bufferSize = READ

    def __init__(self, protocol: Any, isServer: bool, peer: Any = None) -> None:
        super().__init__(protocol, isServer, peerAddress=peer)
        self.stalled = self.losing = self.deaf = self.full = False
        self.size = 0  # bytes that wait to be written
        self.unread: deque[bytes] = deque()
        self.options: list[str] = []

    # -- writing -------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self.losing:
            return
        super().write(data)
        self.size += len(data)
        if self.size > READ and self.producer and not self.full:
            self.full = True
            self.producer.pauseProducing()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        if self.producer is not None:
            raise RuntimeError("a producer is registered")  # as Twisted's transports do
        super().registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:
        super().unregisterProducer()
        self.full = False

    def getOutBuffer(self) -> bytes | None:
        if self.stalled:
            return None
        data, self.size = super().getOutBuffer(), 0
        if self.losing:
            self.disconnecting = True
        return data or None

    def _checkProducer(self) -> None:
        if self.full and not self.stream:
            self.full = False
            self.producer.resumeProducing()

    def loseConnection(self) -> None:
        self.losing = True
        if not self.stream:
            self.disconnecting = True

    def abortConnection(self) -> None:
        self.stream.clear()
        self.size = 0
        self.losing = self.disconnecting = True

    @property
    def has_work(self) -> bool:
        """
        Whether something may move here: most wires have nothing to do most of the time.
        """
        return bool(self.stream) or self.losing or self.disconnecting or self.full

    # -- reading -------------------------------------------------------------

    def bufferReceived(self, buf: bytes) -> None:
        self.unread.extend(buf[at : at + READ] for at in range(0, len(buf), READ))

    def read(self) -> bool:
        if not self.unread or self.deaf or self.disconnected:
            return False
        self.protocol.dataReceived(self.unread.popleft())
        return True

    def setTcpNoDelay(self, enabled: bool) -> None:
        self.options.append("no delay")

    def setTcpKeepAlive(self, enabled: bool) -> None:
        self.options.append("keep alive")

    def pauseProducing(self) -> None:
        self.deaf = True

    def resumeProducing(self) -> None:
        self.deaf = False


class Link(IOPump):
    """
    The two ends of a connection.
    """

    clientIO: Wire
    serverIO: Wire

    def pump(self, debug: bool = False, advanceClock: bool = True) -> bool:
        server, client = self.serverIO, self.clientIO
        if server.unread or client.unread:
            came = [wire.read() for wire in (server, client)]
            if any(came):
                return True
        return (server.has_work or client.has_work) and super().pump(debug, advanceClock)

    @property
    def over(self) -> bool:
        return bool(self.serverIO.disconnected and self.clientIO.disconnected)


class PlainConnection(WebSocketConnection):
    """
    Autobahn alone.
    """

    fast_path = False


class Network:
    """
    Listeners by name: `web`, `plain` (the fast path off), `tls`, `line`, `admin`.
    """

    def __init__(self, node: MemoryNode | DurableNode | None = None, **sections: Any) -> None:
        from tests.support.world import World  # which is built of our wires

        self.node = node or MemoryNode(world=World, **sections)
        self.clock = self.node.clock
        self.traffic_recorder = self.node.traffic_recorder
        self.lag = EventLoopLag(self.clock)
        self.links: list[Link] = []
        self.runtimes: list[Any] = []
        self.policies = make_policy_store(self.node, self.clock)
        self.tokens = AdminTokens(self.node.config.state, self.wall, self.clock.seconds)
        self.facts = NodeFacts(self.node.config, wall=self.wall)
        self.listeners: dict[str, Any] = {}

    # Few tests have to do with operators, and what is for them takes half the time to make a node.

    @cached_property
    def commands(self) -> PolicyCommands:
        return PolicyCommands(self.policies, self.node.enforcement)

    @cached_property
    def operations(self) -> Operations:
        return Operations(self.node, self.facts, self.lag, self.clock, self.tokens, self.commands)

    @property
    def live(self) -> Live:
        return self.operations.live

    def wall(self) -> float:
        """
        Seconds since 1970, as the node counts them.
        """
        return self.node.sessions.connections.closed.wall()

    def listener(self, name: str) -> Any:
        """
        The factory of that listener; made when it is first asked for.
        """
        if not self.listeners:
            self.listeners |= factories(self.node, self.clock)
        if name == "admin" and name not in self.listeners:
            self.listeners[name] = self._admin_factory()
        if name == "tls" and name not in self.listeners:
            listen = Listen(kind="web", endpoint="tcp:0", cert=PATH, key=PATH)
            self.listeners[name] = over_tls(listen, self.listeners["web"], self.clock)
        if name == "plain" and name not in self.listeners:
            plain = factories(self.node, self.clock)["web"]
            plain.resource.children[b"ws"]._factory.protocol = PlainConnection
            self.listeners[name] = plain
        return self.listeners[name]

    def _admin_factory(self) -> Site:
        return admin_factory(
            self.node,
            self.lag,
            lambda: 0,
            self.clock,
            self.policies,
            self.commands,
            self.tokens,
            self.operations,
        )

    def link(self, name: str, client: Protocol, peer: Any = None) -> Link:
        """
        Connect a client's protocol to a listener.
        """
        host = "127.0.0.1" if name == "admin" else "192.0.2.1"
        peer = peer or IPv4Address("TCP", host, next(_ports))
        server = self.listener(name).buildProtocol(peer)
        link = Link(client, server, Wire(client, False), Wire(server, True, peer), False, self.clock)
        server.makeConnection(link.serverIO)
        client.makeConnection(link.clientIO)
        self.links.append(link)
        return link

    def pump(self) -> None:
        """
        Move everything that can move, at this moment of the clock.
        """
        for _ in range(100_000):
            self.clock.advance(0)
            links = [*self.links, *self.node.links]
            moved = [link.pump(advanceClock=False) for link in links]
            if not any(moved) and not any([runtime.settle() for runtime in self.runtimes]):
                break
        else:
            raise AssertionError("it never comes to rest")
        self.links = [link for link in self.links if not link.over]

    def advance(self, seconds: float) -> None:
        """
        Let time pass, while clients and node do what they do.
        """
        while seconds > 0:
            self.pump()
            self.clock.advance(min(seconds, 1))
            seconds -= 1
        self.pump()
