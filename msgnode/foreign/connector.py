"""
A stub in the place of a connector: messages for an address of this node are posted into the bus of the stub,
and its responses are the answers.
"""

from collections.abc import Callable

from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.foreign.foreign_domain import ForeignDomain
from msgnode.links.exchange.envelopes import without_via
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message, compose, decode
from msgnode.sessions.session import Session


class Asked(Struct):
    """
    A request that the stub has not answered: the message, and the answer to come.
    """

    message: Message
    answer: Deferred[Message]
    timer: IDelayedCall


class ConnectorStub:
    """
    A responder by a stub. `stub` is the domain whose stub it is.

    The stub sees each request with an id of this node's, so that two clients with one id are distinguished.
    """

    def __init__(
        self,
        addresses: tuple[str, ...],
        stub: str,
        what: str,
        clock: IReactorTime,
        deadline_seconds: float,
        in_flight: int,
        publish: Callable[[Message], object] = lambda message: None,
    ) -> None:
        self.addresses = addresses
        self.stub = stub
        self._what = what
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._in_flight = in_flight
        self._publish = publish
        self._domain: ForeignDomain | None = None
        self._asked: dict[int, Asked] = {}
        self._last_id = 0

    def attach(self, domain: ForeignDomain) -> None:
        """
        Uses the stub of this domain, and starts it.
        """
        self._domain = domain
        domain.record.connectors.extend(a for a in self.addresses if a not in domain.record.connectors)
        if self.take not in domain.takers:
            domain.takers.append(self.take)
        domain.lifecycle.want()

    def respond(self, message: Message, session: Session) -> Deferred[Message]:
        """
        The answer of the stub: 504 without one in time, 503 while the stub is not live or takes no more.
        """
        domain = self._domain
        if domain is None:
            raise Rejected(f"the stub for {self._what} does not run", 503, "back-end")
        domain.lifecycle.want()
        if not domain.lifecycle.is_live or len(self._asked) >= self._in_flight:
            raise Rejected(
                f"the stub for {self._what} takes no requests now; try again later", 503, "back-end"
            )
        self._last_id += 1
        id = self._last_id
        if not domain.post(_with_id(message, id)):
            raise Rejected(
                f"the stub for {self._what} takes no requests now; try again later", 503, "back-end"
            )
        answer: Deferred[Message] = Deferred()
        self._asked[id] = Asked(
            message, answer, self._clock.callLater(self._deadline_seconds, self._late, id)
        )
        return answer

    def take(self, message: Message) -> bool:
        """
        Takes a response, or a notification, of the stub for this address; False if it is none.
        """
        if message.from_ not in self.addresses and not message.from_.startswith(self.addresses[0] + "/"):
            return False
        if message.type.lower() != "response":
            self._notify(message)
            return True
        asked = self._asked.get(message.id) if isinstance(message.id, int) else None
        if asked is None or message.to != asked.message.from_:
            return True  # too late, or no client has asked
        body = message.fields()
        code = body.get("code")
        if isinstance(code, int) and code < 200:
            return True  # another one follows
        del self._asked[message.id]  # type: ignore[arg-type]
        asked.timer.cancel()
        asked.answer.callback(asked.message.reply(body))
        return True

    def _notify(self, message: Message) -> None:
        """
        Publishes what the stub says of a registration, as a connector does.
        """
        is_status = isinstance(message.to, str) and message.to.endswith("/registration")
        if is_status and message.to not in self.addresses:
            own = compose(message.id, message.type, self.addresses[0], str(message.to), message.fields())
            self._publish(own)

    def _late(self, id: int) -> None:
        asked = self._asked.pop(id)
        asked.answer.errback(Rejected(f"Error contacting the stub for {self._what}.", 504, "back-end"))


def _with_id(message: Message, id: int) -> bytes:
    """
    The bytes of the message with another id, and without `via`.
    """
    found = decode(without_via(message))
    return compose(id, found.type, found.from_, str(found.to), found.fields(), found.transaction).data
