"""
A probe of another node: one connection that asks by its hello whether a link would be accepted.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from email.utils import parsedate_to_datetime
from typing import Any

from msgspec import structs
from twisted.internet.defer import Deferred
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure

from msgnode.links.carrier.connection import Content, LinkConnection
from msgnode.links.carrier.pings import Pings
from msgnode.links.carrier.websocket import ClientFactory, LinkClient
from msgnode.links.carrier.wire import BAD_REQUEST, FORBIDDEN, Refused, Wire
from msgnode.links.overlay.trust import TrustedKey
from msgnode.links.wire.entries import CHECK, Hello


class LinkProbe:
    """
    A probe of one node: the Connector and Keeper of one connection. No link is made by it, here or there.

    `done` fires when the connection is lost, so that a check leaves none behind. `prove` says why a
    certificate is refused, or "". `code` is that of the close entry which the node sent, 0 for none; `time`
    is the node's clock.
    """

    def __init__(self, domain: str, url: str, own: Hello, clock: Any, hello_seconds: float) -> None:
        self.clock = clock
        self.hello_seconds = hello_seconds
        self.together: Callable[[], AbstractContextManager[Any]] = nullcontext
        self.prove: Callable[[Sequence[bytes]], str] = lambda chain: ""
        self.chain: Sequence[bytes] = ()
        self.refusal = ""
        self.code = 0
        self.reason = ""
        self.time: float | None = None
        self.factory = ProbeFactory(self, domain, url, lambda connection: None, clock)
        self.done: Deferred[None] = Deferred(lambda cancelled: self.abort())
        self._own = own
        self._wire: Wire | None = None

    def lost(self) -> None:
        """
        The connection is no more.
        """
        if not self.done.called:
            self.done.callback(None)

    def abort(self) -> None:
        if self._wire is not None:
            self._wire.abort()

    # -- Connector -----------------------------------------------------------------

    def connect(self, wire: Wire, dialled: str = "", host: str = "") -> LinkConnection:
        self._wire = wire
        return LinkConnection(wire, self, dialled, host)

    def note(self, who: str, cause: str, text: str) -> None:
        self.reason = self.reason or text

    # -- Keeper --------------------------------------------------------------------

    def hello(self) -> Hello:
        return structs.replace(self._own, features=[*self._own.features, CHECK])

    def prove_dialled(self, domain: str, chain: Sequence[bytes]) -> None:
        self.chain = chain
        self.refusal = self.prove(chain)
        if self.refusal:
            raise Refused(FORBIDDEN, self.refusal)

    def admit(self, connection: LinkConnection, hello: Hello) -> TrustedKey:
        raise Refused(BAD_REQUEST, "this was a check, which needs no hello in answer", -1.0)

    def make_pings(self, connection: LinkConnection) -> Pings:
        return Pings(self.clock, random.Random(), connection.send_ping, lambda: None, lambda: None)

    def established(self, connection: LinkConnection) -> None:
        """
        Never: no hello is admitted.
        """

    def received(self, connection: LinkConnection, entry: Content) -> None:
        """
        Never, either.
        """

    def has_room(self, connection: LinkConnection) -> None:
        """
        Nothing waits for room.
        """

    def ended(self, connection: LinkConnection, reason: str) -> None:
        closed = connection.closed
        self.code = 0 if closed is None else closed.code
        self.reason = self.reason or reason

    def gone(self, connection: LinkConnection) -> None:
        """
        `ended` has said all.
        """

    def misbehaved(self, connection: LinkConnection, cause: str, text: str) -> None:
        self.reason = self.reason or text


class ProbeClient(LinkClient):
    """
    The connection of a probe, which notes the time that the node states.
    """

    def onConnect(self, response: Any) -> None:
        with suppress(ValueError, TypeError):
            self.factory.table.time = parsedate_to_datetime(response.headers["date"]).timestamp()
        super().onConnect(response)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        super().connectionLost(reason)
        self.factory.table.lost()


class ProbeFactory(ClientFactory):
    """
    The factory of a probe's one connection.
    """

    client = ProbeClient
