"""
The router: the one path every message takes.

It makes no Deferred, writes no log event and encodes nothing again.  A node
address is answered by its responder; every other address is looked up, and
the bytes go to each session bound to it.
"""

from time import time_ns
from typing import Protocol

from twisted.internet.defer import Deferred

from msgnode.address import LONGEST, Domain, is_multicast
from msgnode.config import Config
from msgnode.errors import Claimed, Malformed, NoRoute, NotOffered, Rejected
from msgnode.keeping import Keeping
from msgnode.message import Message
from msgnode.ownership import Ownership
from msgnode.receipts import Receipts
from msgnode.routes import LEARNT, RoutingTable
from msgnode.session import Counts, Session
from msgnode.sessions import Journal

# Not the address of one hyperty, so never learnt from a `from`.
_NO_SENDER = ("/children/", "/changes", "/subscription")
_WANT_ROUTE = frozenset({"create", "read", "subscribe", "execute"})


Reply = Message | Deferred[Message] | None


class Responder(Protocol):
    """
    Who answers at a node address.
    """

    def respond(self, message: Message, session: Session) -> Reply:
        """
        The reply, which the node delivers.  Raises Rejected to refuse.
        """


class Router:
    """
    `responders` are found by their whole address.
    """

    def __init__(
        self,
        config: Config,
        domain: Domain,
        routes: RoutingTable,
        responders: dict[str, Responder],
        journal: Journal,
        counts: Counts,
        keeping: Keeping,
        ownership: Ownership,
    ) -> None:
        self.receipts = Receipts(routes)
        self._config = config
        self._keeping = keeping
        self._ownership = ownership
        self._domain = domain
        self._routes = routes
        self._responders = responders
        self._journal = journal
        self._counts = counts
        self._registry = f"domain://registry.{domain.name}"

    def route(self, message: Message, session: Session) -> Reply:
        """
        Carry one message of this session; the reply, if the node itself gives one.
        """
        from_, to = message.from_, message.to
        if from_ not in session.bindings:
            self._meet(from_, session)
        if not isinstance(to, str):
            return self._route_each(message, to, session)
        recipients = self._routes.resolve(to)
        if recipients:
            self._deliver(message, session, recipients)
            return None
        if self._domain.owns(to):
            return self._respond(message, to, session)
        self._no_route(message, to, session)
        return None

    def _deliver(self, message: Message, session: Session, recipients: tuple[Session, ...]) -> None:
        if message.receipt:
            self._deliver_for_receipt(message, session, recipients)
            return
        data = message.data
        delivered = waiting = 0
        for recipient in recipients:
            ready = recipient.ready
            if recipient is session and message.has_via:
                self._counts.echoes += 1  # the sender's own stub would drop it
            elif ready is not None:
                ready.send(data)
                delivered += 1
            else:
                recipient.keep(message)
                waiting += 1
        counts = self._counts
        counts.sent += delivered
        counts.sent_bytes += delivered * len(data)
        message.recipients, message.waiting = delivered, waiting
        message.outcome = "delivered" if delivered else "waiting" if waiting else "dropped"

    def _deliver_for_receipt(
        self, message: Message, session: Session, recipients: tuple[Session, ...]
    ) -> None:
        """
        Deliver, and tell the sender what can be told of it by now.
        """
        if len(recipients) > 1:  # one receipt, and none for each of them
            message.receipt = False
            self._deliver(message, session, recipients)
            message.receipt = True
            self.receipts.give(message, 202, session, message.recipients + message.waiting)
            return
        recipient = recipients[0]
        if recipient is session and message.has_via:
            self._counts.echoes += 1
            message.outcome = "dropped"
            self.receipts.give(message, 404, session, 0)
        elif recipient.deliver(message, session.sid):
            message.outcome, message.recipients = "delivered", 1
            if recipient.outbox is None:
                self.receipts.give(message, 202, session)
        else:
            message.outcome, message.waiting = "waiting", 1

    def _route_each(self, message: Message, to: list[str], session: Session) -> Reply:
        """
        Carry a copy to each of several recipients, and write down each copy.
        """
        if len(to) == 1:  # a message like any other
            message.data = message.addressed(to[0]).data
            message.to = to[0]
            return self.route(message, session)
        for address in to:
            if self._domain.owns(address):
                alone = f"{address} is the node's own address; send to it alone"
                raise Malformed(alone, message.id, message.from_)
        reply: Reply = None
        for address in dict.fromkeys(to):
            copy = message.addressed(address)
            try:
                reply = self.route(copy, session)
            except NoRoute as why:
                copy.outcome, copy.code = "no-route", why.code
            copy.micros = (time_ns() - copy.came) // 1000
            self._journal.message(copy, session)
        return reply

    def _respond(self, message: Message, to: str, session: Session) -> Reply:
        message.receipt = False  # the answer is better than that
        responder = self._responders.get(to)
        if responder is None:
            raise NotOffered(f"this node offers nothing at {to}")
        keeping = self._keeping
        if keeping.failing:
            raise Rejected(f"the node cannot write this down now: {keeping.failing}", 503)
        before = keeping.changes
        reply = responder.respond(message, session)
        message.outcome = "answered"
        message.code = 200 if reply is not None else 0
        if keeping.changes == before or not isinstance(reply, Message):
            return reply
        written, answer = keeping.settled(), reply
        return written.addCallback(lambda done: answer)

    def _no_route(self, message: Message, to: str, session: Session) -> None:
        """
        Drop it; tell the sender only where that was asked for and somebody waits.
        """
        self._counts.no_route += 1
        self.receipts.give(message, 404, session, 0)
        wanted = message.type.lower() in _WANT_ROUTE and not is_multicast(to)
        if wanted and self._config.routing.reply_unknown:
            raise NoRoute(f"nobody is bound to {to}")
        message.outcome = "no-route"

    def _meet(self, from_: str, session: Session) -> None:
        """
        A sender that is not bound here: refuse the node's own addresses, learn a hyperty's.
        """
        self._ownership.check_sender(from_, session)
        if from_.startswith("hyperty://"):
            if session.learnt >= self._config.limits.learnt_per_session or self._routes.resolve(from_):
                return
            if len(from_) <= LONGEST and not any(part in from_ for part in _NO_SENDER):
                self._routes.bind(from_, session, LEARNT)
        elif self._domain.claimed_by(from_, self._registry in self._responders):
            raise Claimed(f"{from_!r} is an address of the node; send from one of your own")
