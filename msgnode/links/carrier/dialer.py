"""
Dialling a peer: a connection is made, kept, and made again after a wait that grows (exponential back-off).
"""

import os
import random
from typing import Any

from twisted.application.internet import ClientService
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.error import ConnectError, ConnectingCancelledError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.logger import ILogObserver, LogEvent, Logger
from twisted.python.failure import Failure
from zope.interface import implementer, provider

from msgnode.links.carrier.connection import LinkConnection
from msgnode.links.carrier.link_table import LinkTable
from msgnode.links.carrier.websocket import ClientFactory

FIRST_SECONDS, LAST_SECONDS = 1.0, 60.0
MAX_ASKED_SECONDS = 3600.0  # that a peer may ask this node to wait
STEADY_SECONDS = 30.0  # that a link must have been up to count as a success


@provider(ILogObserver)
def _ignore(event: LogEvent) -> None:
    pass


class QuietClientService(ClientService):
    """
    A ClientService that does not log each attempt; the link table logs why a peer is not reached.
    """

    _log = Logger(observer=_ignore)


@implementer(IStreamClientEndpoint)
class NotedEndpoint:
    """
    An endpoint whose failures are counted, and logged once.
    """

    def __init__(self, endpoint: IStreamClientEndpoint, domain: str, table: LinkTable) -> None:
        self._endpoint = endpoint
        self._domain = domain
        self._table = table

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        return self._endpoint.connect(protocolFactory).addErrback(self._note)

    def _note(self, why: Failure) -> Failure:
        if not why.check(CancelledError, ConnectingCancelledError):
            self._table.note(self._domain, "dial", f"cannot connect: {text_of(why.value)}"[:300])
        return why


def text_of(error: BaseException | None) -> str:
    """
    The text of a failed connection, without the two sentences that Twisted puts before that of the system.
    """
    number = error.osError if isinstance(error, ConnectError) else None
    return os.strerror(number).lower() if isinstance(number, int) and number else str(error)


class Dialer(Service):
    """
    A service that keeps a connection to one domain.

    It rests while the node it leads to is linked by a connection that the other side dialled.
    """

    def __init__(
        self,
        domain: str,
        url: str,
        table: LinkTable,
        endpoint: IStreamClientEndpoint,
        reactor: Any,
        chance: random.Random,
    ) -> None:
        self.domain = domain
        self.url = url
        self.node = ""  # where the URL leads to, once known
        self.failures = 0
        self.attempts = 0
        self._table = table
        self._clock = reactor
        self._chance = chance
        self._endpoint = NotedEndpoint(endpoint, domain, table)
        self._factory = ClientFactory(table, domain, url, self._made, reactor)
        self._service: QuietClientService | None = None
        self._connection: LinkConnection | None = None
        self._up_since = 0.0
        self.last: LinkConnection | None = None  # that ended
        self._asked = 0.0  # seconds that the peer asked to wait
        self._waits = False

    @property
    def is_resting(self) -> bool:
        return bool(self.running) and self._service is None

    @property
    def is_waiting(self) -> bool:
        """
        Is this the pause between two attempts?
        """
        return self._waits and self._service is not None

    def startService(self) -> None:
        super().startService()
        self._dial()

    def stopService(self) -> Deferred[None]:
        super().stopService()
        return self._stop_dialling()

    def wake(self) -> None:
        """
        The peer is there: do not wait any longer.
        """
        if self.is_waiting:
            self.failures = 0
            self._stop_dialling()
            self._dial()

    def rest(self) -> None:
        if self.running and self._service is not None:
            self._stop_dialling()

    def go_on(self) -> None:
        """
        The node lost the link that made this rest.
        """
        if self.is_resting:
            self._dial()

    # -- news of connections ------------------------------------------------------

    def up(self, connection: LinkConnection) -> None:
        if connection is self._connection:
            self.node = connection.node
            self._up_since = self._clock.seconds()

    def ended(self, connection: LinkConnection, is_linked: bool) -> None:
        if connection is not self._connection:
            return
        self._connection, self.last = None, connection
        self._asked = connection.retry_after
        self.node = connection.node or self.node
        if connection.peer is not None and self._clock.seconds() - self._up_since >= STEADY_SECONDS:
            self.failures = 0
        if is_linked or connection.retry_after < 0:
            self.rest()

    # -- attempts --------------------------------------------------------------------

    def _dial(self) -> None:
        self._waits = False
        self._service = QuietClientService(self._endpoint, self._factory, self._delay, self._clock)
        self._service.startService()

    def _stop_dialling(self) -> Deferred[None]:
        service, self._service = self._service, None
        self._waits = False
        return succeed(None) if service is None else service.stopService()

    def _made(self, connection: LinkConnection) -> None:
        self.attempts += 1
        self._waits = False
        self._connection = connection

    def _delay(self, failures: int) -> float:
        """
        Full jitter: any time up to a limit that doubles. Links that end soon count as failures, too.
        """
        self._waits = True
        longest = min(FIRST_SECONDS * 2.0 ** min(self.failures, 20), LAST_SECONDS)
        self.failures += 1
        asked, self._asked = self._asked, 0.0
        # A peer may send any number, NaN too, which no comparison holds for.
        wait = min(asked, MAX_ASKED_SECONDS) if asked > 0 else 0.0
        return wait + self._chance.random() * longest
