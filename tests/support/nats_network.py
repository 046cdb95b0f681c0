"""
A network in memory with NATS servers that a test plays, and clients on a clock.
"""

import json
import random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost, ConnectionRefusedError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransportWithDisconnection
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from msgnode.nats.client import NatsClient
from msgnode.nats.options import NullListener, Options
from msgnode.nats.servers import Server


class Recorder(NullListener):
    """
    A listener that keeps what it hears, as pairs of a name and an argument.
    """

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def connected(self, info: Any) -> None:
        self.heard.append(("connected", info.server_name))

    def disconnected(self, reason: Exception) -> None:
        self.heard.append(("disconnected", str(reason)))

    def lame_duck(self, info: Any) -> None:
        self.heard.append(("lame_duck", info.server_name))

    def full(self) -> None:
        self.heard.append(("full", None))

    def has_room(self) -> None:
        self.heard.append(("has_room", None))

    def failed(self, error: Exception) -> None:
        self.heard.append(("failed", str(error)))

    def names(self) -> list[str]:
        return [name for name, _ in self.heard]


class ServerEnd:
    """
    The server's end of a connection: the test says what the server sends, and sees what came.
    """

    def __init__(self, protocol: Any, place: str) -> None:
        self.place = place
        self.transport = StringTransportWithDisconnection()
        self.transport.protocol = protocol
        self.protocol = protocol
        protocol.makeConnection(self.transport)

    def send(self, data: bytes) -> None:
        self.protocol.dataReceived(data)

    def info(self, **fields: Any) -> None:
        """
        Send INFO, with headers unless the test says otherwise.
        """
        self.send(b"INFO %b\r\n" % json.dumps({"headers": True, **fields}).encode())

    def taken(self) -> bytes:
        """
        The bytes that came since the last call.
        """
        data = self.transport.value()
        self.transport.clear()
        return data

    def accept(self, **fields: Any) -> dict[str, Any]:
        """
        Play the handshake up to the client's last step; the options of its CONNECT.
        """
        self.info(**fields)
        connect, ping, rest = self.taken().split(b"\r\n")
        assert (connect[:8], ping, rest) == (b"CONNECT ", b"PING", b"")
        self.send(b"PONG\r\n")
        return dict(json.loads(connect[8:]))

    @property
    def is_closed(self) -> bool:
        return not self.transport.connected

    def lose(self) -> None:
        """
        The connection breaks.
        """
        self.transport.connected = False
        self.protocol.connectionLost(Failure(ConnectionLost()))


@implementer(IStreamClientEndpoint)
class _Endpoint:
    def __init__(self, network: "Network", server: Server) -> None:
        self._network = network
        self._server = server

    def connect(self, factory: Any) -> Deferred[Any]:
        return self._network.connect(str(self._server), factory)


class Network:
    """
    The servers that can be reached: all, but for those in `down`. `attempts` has the places that were tried.
    """

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.attempts: list[str] = []
        self.ends: list[ServerEnd] = []

    def endpoint_for(self, server: Server) -> _Endpoint:
        return _Endpoint(self, server)

    def connect(self, place: str, factory: Any) -> Deferred[Any]:
        self.attempts.append(place)
        made: Deferred[Any] = Deferred()
        if place in self.down:
            made.errback(Failure(ConnectionRefusedError()))
        else:
            protocol = factory.buildProtocol(None)
            self.ends.append(ServerEnd(protocol, place))
            made.callback(protocol)
        return made

    @property
    def newest(self) -> ServerEnd:
        return self.ends[-1]


class Middle:
    """
    Chance that always gives the same number.
    """

    def __init__(self, number: float = 0.5) -> None:
        self.number = number

    def random(self) -> float:
        return self.number


class NatsCase(SynchronousTestCase):
    """
    A client, the network it is in, and what its listener heard.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.network = Network()
        self.heard = Recorder()

    def make(self, *urls: str, chance: Any = None, **options: Any) -> NatsClient:
        """
        A client that has not connected. The servers are tried in their order.
        """
        return NatsClient(
            self.clock,
            urls or ["nats://one:4222"],
            Options(**{"shuffle": False, **options}),
            self.heard,
            chance=chance or random.Random(1),
            inbox="_INBOX.me",
            endpoint_for=self.network.endpoint_for,
        )

    def connected(self, *urls: str, **options: Any) -> NatsClient:
        """
        A client that is connected to a server that supports headers.
        """
        client = self.make(*urls, **options)
        self.connecting = client.connect(retry=True)
        self.end = self.network.newest
        self.end.accept(server_name="first")
        self.successResultOf(self.connecting)
        return client

    def turn(self, seconds: float = 0) -> None:
        """
        Let the turn of the event loop end, and so many seconds pass.
        """
        self.clock.advance(seconds)
