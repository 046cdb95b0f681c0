"""
A stub in the place of a connector: messages for an address of this node are posted into the bus of the stub,
and its responses are the answers.
"""

from collections.abc import Callable

from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.foreign.foreign_domain import ForeignDomain
from msgnode.foreign.header_edit import edited
from msgnode.links.exchange.envelopes import without_via
from msgnode.protocol.errors import NotOffered, Rejected
from msgnode.protocol.message import Message, compose, recall
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
    `publish` publishes what the stub of a registry says of a registration.
    """

    def __init__(
        self,
        addresses: tuple[str, ...],
        stub: str,
        what: str,
        clock: IReactorTime,
        deadline_seconds: float,
        in_flight: int,
        publish: Callable[[Message], object] | None = None,
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
        if message.type.lower() == "response":
            raise NotOffered(f"{self._what} sends no requests, so it accepts no responses")
        domain = self._domain
        if domain is None:
            raise Rejected(f"the stub for {self._what} does not run", 503, "back-end")
        domain.lifecycle.want()
        if not domain.lifecycle.is_live or len(self._asked) >= self._in_flight:
            raise self._busy()
        self._last_id += 1
        id = self._last_id
        answer: Deferred[Message] = Deferred()
        asked = Asked(message, answer, self._clock.callLater(self._deadline_seconds, self._late, id))
        self._asked[id] = asked
        if not domain.post(edited(without_via(message), id=id)):
            asked.timer.cancel()
            del self._asked[id]
            raise self._busy()
        return answer

    def _busy(self) -> Rejected:
        return Rejected(f"the stub for {self._what} takes no requests now; try again later", 503, "back-end")

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
        code = message.field("code")
        if isinstance(code, int) and code < 200:
            return True  # another one follows
        del self._asked[message.id]  # type: ignore[arg-type]
        asked.timer.cancel()
        asked.message.code = code if isinstance(code, int) else 0
        asked.answer.callback(_reply(asked.message, message))
        return True

    def _notify(self, message: Message) -> None:
        """
        Publishes what the stub says of a registration, as a connector does.
        """
        is_status = isinstance(message.to, str) and message.to.endswith("/registration")
        if self._publish is not None and is_status and message.to not in self.addresses:
            own = compose(message.id, message.type, self.addresses[0], str(message.to), message.fields())
            self._publish(own)

    def _late(self, id: int) -> None:
        asked = self._asked.pop(id)
        asked.answer.errback(Rejected(f"Error contacting the stub for {self._what}.", 504, "back-end"))


def _reply(request: Message, answer: Message) -> Message:
    """
    The stub's answer, with the id of the client's request.
    """
    changes = {"id": request.id, "from": request.to, "to": request.from_, "transaction": request.transaction}
    reply = recall(edited(answer.data, **changes))
    reply.log = request.log
    return reply
