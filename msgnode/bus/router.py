"""
The router: the one path every message takes.

It makes no Deferred, writes no log event and encodes nothing again.  A node
address is answered by its responder; every other address is looked up, and
the bytes go to each session bound to it.
"""

from collections.abc import Callable, Iterator
from copy import copy
from time import time_ns
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from msgnode.bus.components import Components
from msgnode.bus.fanout import DECIDED, MANY, Batch, Delivery, Fanout
from msgnode.bus.forwarding import Forwards
from msgnode.bus.receipts import Receipts, wants_answer
from msgnode.bus.recipient_list import RecipientList
from msgnode.bus.responder import Reply
from msgnode.bus.routing_table import RoutingTable
from msgnode.config.schema import Config
from msgnode.policy.enforcement.points import IN, OUT, SUBSCRIBE, Policy
from msgnode.protocol.address import MAX_ADDRESS_CHARS, Domain
from msgnode.protocol.errors import Blocked, Claimed, NoRoute, NotOffered, Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.access.address_ownership import AddressOwnership
from msgnode.sessions.bindings import LEARNT, OWNED
from msgnode.sessions.counters import Counters
from msgnode.sessions.limits.disk_watermark import Watermark
from msgnode.sessions.limits.memory_budget import Budget, binding_size
from msgnode.sessions.persistence import SessionStore
from msgnode.sessions.session import Session
from msgnode.sessions.session_table import TrafficRecorder

# Not the address of one hyperty, so never learnt from a `from`.
_NO_SENDER = ("/children/", "/changes", "/subscription")
_SENDS = OWNED | LEARNT  # who is bound so may send from there
_KEPT = frozenset({"create", "subscribe"})  # requests to the node after which it has more to keep


class LocalOrigin:
    """
    The origin of the node's own messages, in the place of a connection.
    """

    connector = "node"
    peer = ""


LOCAL_ORIGIN = LocalOrigin()


class Router:
    """
    Responders are found by their whole address; one at `scheme://host/` answers for all below.
    """

    def __init__(
        self,
        config: Config,
        domain: Domain,
        routes: RoutingTable,
        components: Components,
        traffic_recorder: TrafficRecorder,
        counts: Counters,
        session_store: SessionStore,
        owners: AddressOwnership,
        budget: Budget,
        fanout: Fanout,
        forwards: Forwards,
    ) -> None:
        self.receipts = Receipts(routes, lambda: config.routing.reply_unknown)
        self.policy: Policy | None = None  # None while there are no policies
        # Who waits for a response, by the address and id of what it sent: whose it is, though it does
        # not go through that session, and who takes it.
        self.awaited: dict[tuple[str, int | str], tuple[Session, Callable[[Message], None]]] = {}
        self.watermark: Watermark | None = None
        self.forwards = forwards
        self._config = config
        self._fanout = fanout
        self._session_store = session_store
        self._owners = owners
        self._budget = budget
        self._domain = domain
        self._routes = routes
        self._components = components
        self._responders = components.responders
        self._traffic_recorder = traffic_recorder
        self._counts = counts
        self.several = RecipientList(
            self.route, domain, routes, self.receipts, traffic_recorder, counts, fanout, config.limits
        )

    def route(self, message: Message, session: Session, count: int = 1) -> Reply:
        """
        Carry one message of this session; the reply, if the node itself gives one.

        `count`: to how many addresses its sender sent it.
        """
        from_, to = message.from_, message.to
        held = session.bindings.get(from_, 0)
        stranger = not held
        if not held & _SENDS:
            if message.forward and self.forwards.allows(message, session):
                stranger = False  # it stays the first sender's, and nothing is learnt of who passes it on
            else:
                self._check_sender(from_, session)
        if not isinstance(to, str):
            return self.several.route(message, to, session)
        if self.policy is not None:
            return self._route_decided(message, session, stranger, count)
        if stranger:
            self._learn(from_, session)
        if self.awaited and self._hand_to_waiting(message):
            return None
        recipients = self._routes.resolve(to)
        if recipients:
            self._deliver(message, session, recipients)
            return None
        return self._find_nobody(message, to, session)

    def _hand_to_waiting(self, message: Message) -> bool:
        """
        Is it the response that somebody waits for outside of all sessions?
        """
        to = message.to
        if (
            message.type.lower() != "response"
            or not isinstance(to, str)
            or (to, message.id) not in self.awaited
        ):
            return False
        session, take = self.awaited[to, message.id]
        if self.policy is not None and self.policy.outward:
            self.policy.check(OUT, message, session)
        message.outcome, message.recipients = "delivered", 1
        take(message)
        return True

    def _find_nobody(self, message: Message, to: str, session: Session) -> Reply:
        if self._domain.owns(to):
            return self._respond(message, to, session)
        self._no_route(message, to, session)
        return None

    def _route_decided(self, message: Message, session: Session, stranger: bool, count: int) -> Reply:
        """
        Carry what the policies let pass, perhaps changed, elsewhere, or later.
        """
        assert self.policy is not None
        to = message.to
        try:
            wait = self.policy.check(IN, message, session, count)
            if wait is None:
                return self._carry(message, session, stranger)
        except Rejected as why:
            raise _as_asked(why, message, to) from None
        return wait.addCallback(self._carry_later, message, session, stranger, to)

    def _carry_later(
        self, now: None, message: Message, session: Session, stranger: bool, to: str | list[str]
    ) -> Any:
        try:
            return self._carry(message, session, stranger)
        except Rejected as why:
            raise _as_asked(why, message, to) from None

    def _carry(self, message: Message, session: Session, stranger: bool) -> Reply:
        if stranger and self._may_hear(message, session):
            self._learn(message.from_, session)
        if self.awaited and self._hand_to_waiting(message):
            return None
        to = message.to
        assert isinstance(to, str)
        recipients = self._routes.resolve(to)
        if not recipients:
            return self._find_nobody(message, to, session)
        if self.policy is not None and self.policy.outward:
            return self._deliver_decided(message, session, recipients)
        self._deliver(message, session, recipients)
        return None

    def _deliver_decided(
        self, message: Message, session: Session | None, recipients: tuple[Session, ...]
    ) -> Deferred[Any] | None:
        """
        Deliver to those of the recipients the policies let it go to; Blocked if that is nobody.
        """
        assert self.policy is not None
        if len(recipients) == 1 and self._fanout.gathering is None:
            self.policy.check(OUT, message, recipients[0])
            self._deliver(message, session, recipients)
            return None
        if len(recipients) > self._fanout.decided_at_once or self._fanout.gathering is not None:
            return self._decide_in_slices(message, session, recipients)
        delivered = waiting = 0
        refusal: Blocked | None = None
        for recipient in recipients:
            mine = copy(message)  # what is changed for one is not changed for all
            mine.receipt = False
            try:
                self.policy.check(OUT, mine, recipient)
            except Blocked as why:
                refusal = why
                continue
            self._deliver(mine, session, recipient.alone)
            delivered, waiting = delivered + mine.recipients, waiting + mine.waiting
        if refusal is not None and not delivered and not waiting:
            raise refusal
        message.recipients, message.waiting = delivered, waiting
        message.outcome = "delivered" if delivered else "waiting" if waiting else "dropped"
        self._fanout.spend(message.origin, DECIDED * len(recipients))
        if session is not None:
            self.receipts.give(message, 202, session, delivered + waiting)
        return None

    def _decide_in_slices(
        self, message: Message, session: Session | None, recipients: tuple[Session, ...]
    ) -> Deferred[Any]:
        """
        The same where it are many: everything is decided before the first of them gets it.
        """
        fanout, data = self._fanout, message.data
        gathering = fanout.gathering
        batch = gathering or Batch(message.origin)
        unchanged: list[Session] = []
        changed: list[tuple[Message, Session]] = []
        refusals: list[Blocked] = []
        planned: list[Message] = []

        def decide() -> Iterator[None]:
            for number, recipient in enumerate(recipients, 1):
                mine = copy(message)
                mine.receipt = False
                try:
                    if self.policy is not None:
                        self.policy.check(OUT, mine, recipient)
                except Blocked as why:
                    refusals.append(why)
                else:
                    if mine.data is data:
                        unchanged.append(recipient)
                    else:
                        changed.append((mine, recipient))
                if number % fanout.decided_at_once == 0:
                    yield

        def plan() -> None:
            if refusals and not unchanged and not changed:
                raise refusals[-1]
            plans: list[Delivery] = [(mine, recipient.alone) for mine, recipient in changed]
            if unchanged:
                plans.append((copy(message), tuple(unchanged)))
            for one, whom in plans:
                self._counts.echoes += batch.add(one, session, whom)
                planned.append(one)

        def tell(done: object) -> None:
            message.recipients = sum(one.recipients for one in planned)
            message.waiting = sum(one.waiting for one in planned)
            reached = "delivered" if message.recipients else "waiting"
            message.outcome = reached if message.recipients or message.waiting else "dropped"
            if session is not None:
                self.receipts.give(message, 202, session, message.recipients + message.waiting)

        reply = fanout.decide(batch, decide(), plan).addCallback(tell)
        if gathering is None:
            fanout.finish(batch)
        return reply

    def publish(self, message: Message) -> int:
        """
        Carry a message of the node's own to everybody who is bound to its address; how many they are.
        """
        assert isinstance(message.to, str)
        recipients = self._routes.resolve(message.to)
        if recipients:
            message.came = time_ns()
            later = self._publish_decided(message, recipients)
            if later is None:
                self._published(None, message)
            else:
                later.addErrback(self._not_published, message).addCallback(self._published, message)
        return len(recipients)

    def _published(self, done: object, message: Message) -> None:
        message.origin = LOCAL_ORIGIN
        self._traffic_recorder.message(message, None)

    def _publish_decided(self, message: Message, recipients: tuple[Session, ...]) -> Deferred[Any] | None:
        if self.policy is None or not self.policy.outward:
            self._deliver(message, None, recipients)
            return None
        try:
            return self._deliver_decided(message, None, recipients)
        except Blocked:
            self._not_published(Failure(), message)
            return None

    def _not_published(self, failed: Failure, message: Message) -> None:
        why = failed.trap(Blocked) and failed.value
        assert isinstance(why, Blocked)
        message.outcome, message.code, message.reason = "refused", why.code, why.reason
        self._counts.refuse(why.code, why.reason)

    def _deliver(self, message: Message, session: Session | None, recipients: tuple[Session, ...]) -> None:
        if message.receipt and session is not None:
            self._deliver_for_receipt(message, session, recipients)
            return
        if len(recipients) > self._fanout.at_once:
            self._fanout.deliver(message, session, recipients)
            return
        if message.forward:
            self.forwards.delivered(message, recipients, session)
        data = message.data
        held = self._fanout.held if len(recipients) > MANY else 0
        delivered = waiting = 0
        for recipient in recipients:
            ready = recipient.ready
            if recipient is session and message.has_via:
                self._counts.echoes += 1  # the sender's own stub would drop it
            elif ready is not None:
                ready.send(data)
                delivered += 1
            else:
                waiting += recipient.keep(message, self._asker(message, session, recipients))
        counts = self._counts
        counts.sent += delivered
        counts.sent_bytes += delivered * len(data)
        message.recipients, message.waiting = delivered, waiting
        message.outcome = "delivered" if delivered else "waiting" if waiting else "dropped"
        if len(recipients) > MANY:
            self._fanout.sent(message, len(recipients) - delivered, held)

    def _asker(self, message: Message, session: Session | None, recipients: tuple[Session, ...]) -> int:
        """
        The sid of the session that is told if nobody gets this.
        """
        if session is None or len(recipients) > 1 or not self.receipts.answered(message):
            return 0
        return session.sid

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
        if message.forward:
            self.forwards.delivered(message, recipients, session)
        if recipient is session and message.has_via:
            self._counts.echoes += 1
            message.outcome = "dropped"
            self.receipts.give(message, 404, session, 0)
        elif recipient.deliver(message, session.sid):
            message.outcome, message.recipients = "delivered", 1
            if recipient.outbox is None:
                self.receipts.give(message, 202, session)
        elif message.code == 507:
            message.outcome = "dropped"
        else:
            message.outcome, message.waiting = "waiting", 1

    def _respond(self, message: Message, to: str, session: Session) -> Reply:
        message.receipt = message.receipt and not wants_answer(message)  # an answer is better than that
        responder = self._responders.get(to) or self._responders.get(_host(to))
        if responder is None:
            raise NotOffered(f"this node offers nothing at {to}")
        session_store = self._session_store
        if session_store.failing:
            raise Rejected(f"the node cannot write this down now: {session_store.failing}", 503, "disk")
        watermark = self.watermark
        if watermark is not None and watermark.low and message.type.lower() in _KEPT:
            watermark.refused += 1
            full = "the node takes nothing new now: its disk is nearly full; try again later"
            raise Rejected(full, 503, "disk")
        before = session_store.changes
        self._components.answered[responder] += 1
        reply = responder.respond(message, session)
        message.outcome = "answered"
        message.code = message.code or (200 if reply is not None else 0)
        if session_store.changes == before or not isinstance(reply, Message):
            return reply
        written, answer = session_store.settled(), reply
        return written.addCallback(lambda done: answer)

    def _no_route(self, message: Message, to: str, session: Session) -> None:
        """
        Drop it; tell the sender only where that was asked for and somebody waits.
        """
        self._counts.no_route += 1
        self.receipts.give(message, 404, session, 0)
        if self.receipts.answered(message):
            raise NoRoute(f"nobody is bound to {to}")
        message.outcome, message.reason = "no-route", NoRoute.reason

    def _check_sender(self, from_: str, session: Session) -> None:
        """
        A sender that does not own this: refuse the node's own addresses.  Who serves one by a policy is bound
        to it.
        """
        self._owners.check_sender(from_, session)
        if not from_.startswith("hyperty://") and self._domain.claimed_by(from_):
            raise Claimed(f"{from_!r} is an address of the node; send from one of your own")

    def _may_hear(self, message: Message, session: Session) -> bool:
        """
        To be found at an address is to hear it, so that the policies are asked as for a subscription.
        """
        if self.policy is None or not message.from_.startswith("hyperty://"):
            return True
        topic = copy(message)
        topic.to = message.from_
        try:
            self.policy.check(SUBSCRIBE, topic, session)
        except Blocked:
            return False
        return True

    def _learn(self, from_: str, session: Session) -> None:
        """
        A hyperty that nobody announced: answers find the way to it.
        """
        if not from_.startswith("hyperty://"):
            return
        if session.learnt >= self._config.limits.learned_routes_per_session or from_ in self._routes:
            return
        if len(from_) > MAX_ADDRESS_CHARS or any(part in from_ for part in _NO_SENDER):
            return
        if self._budget.has_room(session.account, binding_size(from_)):
            self._routes.bind(from_, session, LEARNT)


def _as_asked(why: Rejected, message: Message, to: str | list[str]) -> Rejected:
    """
    The refusal in terms of the address its sender wrote, wherever policies have redirected the message.
    """
    if message.to == to:
        return why
    message.to = to
    if isinstance(why, Blocked):
        return why
    if isinstance(why, NoRoute):
        return NoRoute(f"nobody is bound to {to}")
    return Rejected(f"{to} does not accept this message", why.code, why.reason)


def _host(address: str) -> str:
    """
    `domain://registry.example.org/` of that and of all below.
    """
    return address[: address.find("/", address.find("://") + 3) + 1]
