"""
Connecting, again and again: a ClientService over the ring of servers.
"""

from collections.abc import Callable
from typing import Any

from twisted.application.internet import ClientService
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.error import ConnectError, ConnectingCancelledError
from twisted.internet.interfaces import IAddress, IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater
from twisted.logger import ILogObserver, LogEvent, Logger
from twisted.python.failure import Failure
from zope.interface import implementer, provider

from msgnode.nats.connection import Connection
from msgnode.nats.errors import ConnectionLost
from msgnode.nats.servers import Server, Servers

# The endpoint of a server; tests have their own.
EndpointFor = Callable[[Server], IStreamClientEndpoint]


def hostname_endpoint(reactor: Any, seconds: float) -> EndpointFor:
    """
    Endpoints by name or address, with so many seconds for a TCP connection.
    """
    return lambda server: HostnameEndpoint(reactor, server.host, server.port, seconds)


@provider(ILogObserver)
def _ignore(event: LogEvent) -> None:
    pass


class _QuietClientService(ClientService):
    """
    A ClientService that does not log each attempt; the owner of the client hears why one failed.
    """

    _log = Logger(observer=_ignore)


class _Factory(Factory):
    """
    Makes the connection to the server that was chosen last.
    """

    noisy = False

    def __init__(self, build: Callable[[Server], Connection]) -> None:
        self._build = build
        self.server: Server | None = None

    def buildProtocol(self, addr: IAddress | None) -> Connection:
        assert self.server is not None
        return self._build(self.server)


@implementer(IStreamClientEndpoint)
class Dialer:
    """
    An endpoint that leads to the next server of the ring, and the service that connects to it.

    `failed` is called when there is no TCP connection; after that, the connection says how it ended.
    """

    def __init__(
        self,
        servers: Servers,
        endpoint_for: EndpointFor,
        build: Callable[[Server], Connection],
        failed: Callable[[Exception], None],
        reactor: Any,
    ) -> None:
        self._servers = servers
        self._endpoint_for = endpoint_for
        self._failed = failed
        self._clock = reactor
        self._factory = _Factory(build)
        self._service = _QuietClientService(self, self._factory, lambda failures: servers.pause(), reactor)

    def start(self) -> None:
        self._service.startService()

    def stop(self) -> Deferred[Any]:
        """
        End the connection, or the attempt; fires when it is over.

        The service is stopped in a turn of its own, since it may be what called.
        """
        return deferLater(self._clock, 0, self._service.stopService)

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        """
        Called by the service for each attempt.
        """
        server = self._factory.server = self._servers.take()
        return self._endpoint_for(server).connect(protocolFactory).addErrback(self._note, server)

    def _note(self, why: Failure, server: Server) -> Failure:
        if not why.check(CancelledError, ConnectingCancelledError):
            self._servers.ended()
            self._failed(ConnectionLost(f"cannot connect to {server}: {_text(why.value)}"[:300]))
        return why


def _text(error: BaseException | None) -> str:
    """
    The text of a failed attempt, without the sentence that Twisted puts before that of the system.
    """
    reason = str(error) or type(error).__name__
    return reason.partition(": ")[2] or reason if isinstance(error, ConnectError) else reason
