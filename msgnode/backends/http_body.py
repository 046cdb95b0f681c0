"""
Bodies of HTTP calls to a back end: request and response.
"""

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.iweb import IBodyProducer
from zope.interface import implementer


class TooLarge(Exception):
    """
    A response body exceeds its limit.
    """


@implementer(IBodyProducer)
class RequestBody:
    """
    The body of a request, written at once. treq's own producer needs several turns of the reactor.
    """

    def __init__(self, body: bytes | str) -> None:
        self._body = body.encode() if isinstance(body, str) else body
        self.length = len(self._body)

    def startProducing(self, consumer: Any) -> Deferred[None]:
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        pass

    def resumeProducing(self) -> None:
        pass

    def stopProducing(self) -> None:
        pass


class BoundedBody(Protocol):
    """
    A collector of a response body with a limit.

    `whole` fires with the body, or fails with TooLarge beyond `most` bytes. Cancelling it aborts the
    connection.
    """

    def __init__(self, most: int) -> None:
        self.whole: Deferred[bytes] = Deferred(self._give_up)
        self._most = most
        self._parts: list[bytes] = []

    def dataReceived(self, data: bytes) -> None:
        self._most -= len(data)
        if self._most >= 0:
            self._parts.append(data)
        elif not self.whole.called:
            self._give_up(self.whole)
            self.whole.errback(TooLarge())

    def connectionLost(self, reason: Failure = ResponseDone) -> None:  # type: ignore[assignment]
        if self.whole.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.whole.callback(b"".join(self._parts))
        else:
            self.whole.errback(reason)

    def _give_up(self, whole: Deferred[bytes]) -> None:
        self._parts.clear()
        transport: Any = self.transport
        getattr(transport, "abortConnection", transport.loseConnection)()
