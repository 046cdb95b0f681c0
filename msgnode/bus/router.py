"""
The router: decides where a message goes.

It makes no Deferred, writes no log event and encodes nothing again. A node address is answered by its
responder; every other address is looked up in the routing table, and the bytes go to each session bound to
it.
"""

from copy import copy
from functools import partial
from time import time_ns
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from msgnode.bus.components import ClusterMembers, Components, ForeignDomains, Reply
from msgnode.bus.delivery import Delivery, DeliveryObserver, ExpectedResponses
from msgnode.bus.egress import Egress
from msgnode.bus.fanout import Fanout
from msgnode.bus.flow_offers import FlowOffers
from msgnode.bus.forwarding import Forwards
from msgnode.bus.objects.catch_up import CatchUps
from msgnode.bus.objects.history import History
from msgnode.bus.objects.kept_objects import Channel, KeptObjects
from msgnode.bus.receipts import Receipts, wants_answer
from msgnode.bus.recipient_list import RecipientList
from msgnode.bus.refusals import note_refusal
from msgnode.bus.routing_table import RoutingTable
from msgnode.config.schema import Config
from msgnode.policy.enforcement.points import IN, OUT, SUBSCRIBE, Policy
from msgnode.protocol.address import MAX_ADDRESS_CHARS, TOPICS, Domain
from msgnode.protocol.errors import Blocked, Claimed, NoRoute, NotOffered, Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.access.address_ownership import AddressOwnership
from msgnode.sessions.counters import Counters
from msgnode.sessions.history.refusals import RefusalRing
from msgnode.sessions.limits.disk_watermark import Watermark
from msgnode.sessions.limits.memory_budget import Budget, binding_size
from msgnode.sessions.persistence import SessionStore
from msgnode.sessions.routing import LEARNED, OWNED, RUNTIMES
from msgnode.sessions.session import Session
from msgnode.sessions.session_table import TrafficRecorder
from msgnode.transport.cork import corked

# These are not addresses of one hyperty, so a `from` with one of them makes no learned route.
_NO_SENDER = ("/children/", "/changes", "/subscription")
_SENDS = OWNED | LEARNED  # a session with such a binding may send from the address
_NEEDS_DISK = frozenset({"create", "subscribe"})  # requests after which the node has more to store


class LocalOrigin:
    """
    The origin of the node's own messages, in the place of a connection.
    """

    connector = "node"
    peer = ""


LOCAL_ORIGIN = LocalOrigin()


class Router:
    """
    The router of messages. A message takes the first of these paths that fits it:

    - Its `to` is a list: RecipientList.route, which calls `route` for each copy.
    - There are policies: `_route_with_policy` asks for a decision at `in`; a permitted message continues in
    `_route_permitted`, at once or delayed, perhaps with another `to`.
    - A connector expects this response: ExpectedResponses.deliver.
    - Another domain decides about `to`: ForeignDomains.send.
    - Other nodes of the domain hold `to`: `_send_to_members`, which delivers to sessions here, too.
    - Sessions are bound to `to`: Delivery.deliver, or Egress.deliver if policies decide about each recipient.
    - `to` is an address of the node: `_respond`.
    - There is no recipient: `_no_route`.

    Messages that another node of the domain has routed enter at `deliver_here`.

    The node's own notifications enter at `publish`; only the policies at `out` decide about them.

    Responders are found by their whole address; one at `scheme://host/` answers for all addresses below.
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
        ring: RefusalRing,
    ) -> None:
        self._ring = ring
        self.receipts = Receipts(routes, lambda: config.routing.reply_unknown)
        self.expected_responses = ExpectedResponses()
        self.policy: Policy | None = None  # None while there are no policies
        self.flow_offers: FlowOffers | None = None  # None: the data plane carries nothing
        self.watermark: Watermark | None = None
        self.foreign: ForeignDomains | None = None  # None: the node reaches no other domain
        self.cluster: ClusterMembers | None = None  # None: the node is alone in its domain
        self.kept: KeptObjects | None = None  # None: the node keeps no objects
        self.history: History | None = None  # with them
        self.catching: CatchUps | None = None  # None: no subscriber catches up with an object
        self.forwards = forwards
        self._fanout = fanout
        self._delivery = Delivery(fanout, forwards, self.receipts, counts)
        self._egress = Egress(self._delivery, fanout, self.receipts, counts)
        self._config = config
        self._session_store = session_store
        self._owners = owners
        self._budget = budget
        self._domain = domain
        self._routes = routes
        self._components = components
        self._responders = components.responders
        self._traffic_recorder = traffic_recorder
        self._counts = counts
        self.recipient_list = RecipientList(
            self.route, domain, routes, self.receipts, traffic_recorder, counts, fanout, config.limits, ring
        )

    def observe(self, observer: DeliveryObserver | None) -> None:
        """
        Notifies this observer of each delivery from now on; None ends that.
        """
        self._delivery.observer = observer

    def route(self, message: Message, session: Session, count: int = 1) -> Reply:
        """
        Routes one message of this session; returns the reply, if the node itself gives one.

        `count`: the number of addresses its sender sent it to.
        """
        from_, to = message.from_, message.to
        reasons = session.bindings.get(from_, 0)
        stranger = not reasons
        if not reasons & _SENDS:
            if session.is_node:
                stranger = False  # it sends for a domain, and answers go there by their `to`
            elif message.forward and self.forwards.allows(message, session):
                stranger = False  # `from` stays the first sender's, and makes no learned route here
            else:
                self._check_sender(from_, session)
        if not isinstance(to, str):
            return self.recipient_list.route(message, to, session)
        if self.policy is not None:
            return self._route_with_policy(message, session, reasons, stranger, count)
        if stranger:
            self._learn(from_, session)
        if self.expected_responses.waiting and self.expected_responses.deliver(message, None):
            return None
        foreign = self.foreign
        if (
            foreign is not None
            and not to.startswith(foreign.own_host, to.find(":") + 3)
            and foreign.decides(to, session, message)
        ):
            return self._send_out(message, to, session, foreign)
        kept = self.kept
        if (
            kept is not None
            and (to.startswith(kept.beginnings) or from_.startswith(kept.beginnings))
            and (channel := kept.channels.get(to) or kept.concerned(message))
        ):
            return self._route_kept(kept, channel, message, session, reasons if count == 1 else None)
        recipients = self._routes.resolve(to)
        if session.is_node and recipients and self.foreign is not None:
            recipients = self.foreign.permitted(message, recipients, session)
        if self.cluster is not None:
            nodes = self._members(self.cluster, message, to, session, recipients)
            if nodes is None:
                return None
            if nodes:
                return self._send_to_members(self.cluster, nodes, message, session, recipients)
        if self.catching is not None and recipients:
            return self._deliver(message, session, recipients)
        if recipients and to not in TOPICS:
            self._delivery.deliver(message, session, recipients)
            if self.flow_offers is not None and count == 1:
                self._offer_flow(message, session, reasons, recipients)
            return None
        return self._respond_or_drop(message, to, session)

    def _members(
        self,
        cluster: ClusterMembers,
        message: Message,
        to: str,
        session: Session,
        recipients: tuple[Session, ...],
    ) -> tuple[str, ...] | None:
        """
        The members that get the message, too. None: it is dropped, for its request was answered in its place.
        """
        asks_or_answers = recipients and message.type != "update"
        if asks_or_answers and not cluster.passed_here(message, session, recipients[0]):
            message.outcome, message.reason = "dropped", "old-answer"
            return None
        nodes = cluster.holders(to, bool(recipients))
        if nodes and session.is_node and self.foreign is not None:
            nodes = self.foreign.permitted_members(message, nodes)
        return nodes

    def _offer_flow(
        self, message: Message, session: Session, reasons: int, recipients: tuple[Session, ...]
    ) -> None:
        if session.is_node:
            return
        if self.flow_offers is not None and self._may_always_send(message.from_, reasons, session):
            self.flow_offers.offer(message, session, recipients, self.policy)

    def _respond_or_drop(self, message: Message, to: str, session: Session) -> Reply:
        if self._domain.owns(to):
            return self._respond(message, to, session)
        if self.cluster is not None:
            asked = self.cluster.ask(to)
            if asked is not None:
                return self._route_asked(asked, message, to, session)
        self._no_route(message, to, session)
        return None

    # -- other nodes of the domain ---------------------------------------------------

    def _send_to_members(
        self,
        cluster: ClusterMembers,
        nodes: tuple[str, ...],
        message: Message,
        session: Session,
        recipients: tuple[Session, ...],
    ) -> Reply:
        """
        Sends the message to the nodes that hold its address, one copy each, and delivers it here. What is for
        the name of a session that is leaving goes to its new node only, as from any other node.
        """
        if len(nodes) == 1 and (not recipients or str(message.to).startswith(RUNTIMES)):
            cluster.send(message, session, nodes[0])
            return None
        reached = cluster.send_copies(message, session, nodes)
        asked, message.receipt = message.receipt, False  # there is one for all recipients

        def report(delivered: Any) -> None:
            message.receipt = asked
            message.recipients += reached
            if reached:
                message.outcome = "delivered"
            self.receipts.give(message, 202, session, message.recipients + message.waiting)

        later = None
        if recipients:
            try:
                later = self._deliver(message, session, recipients)
            except Blocked:
                if not reached:
                    message.receipt = asked
                    raise
        if later is None:
            report(None)
            return None
        if reached:
            later.addErrback(lambda failed: failed.trap(Blocked) and None)
        waiting: Deferred[Any] = later
        waiting.addCallback(report)
        return waiting

    def deliver_here(self, message: Message, session: Session) -> Reply:
        """
        Delivers what another node of the domain has routed to sessions here, or sends it to another domain;
        `session` is that node's. Raises Rejected if a policy refuses it, or no session here is bound to its
        address any more.
        """
        to = message.to
        assert isinstance(to, str)
        if self.expected_responses.waiting and self.expected_responses.deliver(message, self.policy):
            return None
        foreign = self.foreign
        if (
            foreign is not None
            and not to.startswith(foreign.own_host, to.find(":") + 3)
            and foreign.decides(to, session, message)
        ):
            foreign.send(message, session)  # this node is the gateway
            return None
        if self.kept is not None and (channel := self._channel_kept_here(self.kept, message, to)):
            return self._deliver_kept_here(self.kept, channel, message, session)
        recipients = self._routes.resolve(to)
        if foreign is not None and getattr(message.origin, "is_from_home", False):
            recipients = foreign.permitted(message, recipients, session)
            if not recipients:
                return None  # the subscriber has left, or has no answer yet
        if recipients and to not in TOPICS:
            return self._deliver(message, session, recipients)  # type: ignore[return-value]
        if self.cluster is not None:
            if self.cluster.forward(message, session, None):
                return None
            asked = self.cluster.ask(to, has_moved=True)
            if asked is not None:
                found: Deferred[Any] = asked.addCallback(self._forward_found, message, to, session)
                return found
        self._no_route(message, to, session)
        return None

    @staticmethod
    def _channel_kept_here(kept: KeptObjects, message: Message, to: str) -> Channel | None:
        """
        The channel of the object of which another member sends something to this node as its keeper.
        """
        origin = message.origin
        if getattr(origin, "is_copy", False) or getattr(origin, "is_from_home", False):
            return None
        channel = kept.channel(to)
        return channel if channel is not None and not kept.keeper(channel.object) else None

    def _forward_found(self, nodes: tuple[str, ...], message: Message, to: str, session: Session) -> Any:
        if self.cluster is None or not nodes or not self.cluster.forward(message, session, nodes):
            self._no_route(message, to, session)
        return None

    def _route_asked(
        self, asked: Deferred[tuple[str, ...]], message: Message, to: str, session: Session
    ) -> Deferred[Any]:
        """
        Routes the message when the members have said who holds its address; the sender's later ones wait.
        """
        work = None if session.is_node else self._fanout.hold(message.origin)
        found = corked(self._fanout.together, asked)
        found.addCallback(self._route_found, message, to, session)
        if work is not None:
            found.addBoth(partial(self._fanout.release, work))
        return found

    def _route_found(
        self, nodes: tuple[str, ...], message: Message, to: str, session: Session
    ) -> Deferred[Any] | None:
        if self.cluster is not None and nodes:
            self._send_to_members(self.cluster, nodes, message, session, ())
        else:
            self._no_route(message, to, session, was_asked=True)
        return None

    # -- other domains ---------------------------------------------------------------

    def _send_out(self, message: Message, to: str, session: Session, foreign: ForeignDomains) -> Reply:
        here = foreign.same_here(to)
        if here:
            return self._respond(message, here, session)
        foreign.send(message, session)
        return None

    # -- with policies ---------------------------------------------------------------

    def _route_with_policy(
        self, message: Message, session: Session, reasons: int, stranger: bool, count: int
    ) -> Reply:
        """
        Asks the policies, which may refuse the message, edit it, redirect it or delay it.
        """
        assert self.policy is not None
        to = message.to
        try:
            wait = self.policy.check(IN, message, session, count)
            if wait is None:
                is_repeatable = self.flow_offers is not None and count == 1 and message.to is to
                return self._route_permitted(message, session, stranger, reasons if is_repeatable else None)
        except Rejected as why:
            raise _as_asked(why, message, to) from None
        wait = corked(self._fanout.together, wait)
        return wait.addCallback(self._route_delayed, message, session, stranger, to)

    def _route_delayed(
        self, now: None, message: Message, session: Session, stranger: bool, to: str | list[str]
    ) -> Any:
        try:
            return self._route_permitted(message, session, stranger)
        except Rejected as why:
            raise _as_asked(why, message, to) from None

    def _route_permitted(
        self, message: Message, session: Session, stranger: bool, reasons: int | None = None
    ) -> Reply:
        """
        `reasons`: those for which the session is bound to `from`; None: the decision is for this message
        only.
        """
        if stranger and self._may_learn(message, session):
            self._learn(message.from_, session)
        if self.expected_responses.waiting and self.expected_responses.deliver(message, self.policy):
            return None
        to = message.to
        assert isinstance(to, str)
        foreign = self.foreign
        if (
            foreign is not None
            and not to.startswith(foreign.own_host, to.find(":") + 3)
            and foreign.decides(to, session, message)
        ):
            return self._send_out(message, to, session, foreign)
        kept = self.kept
        if (
            kept is not None
            and (to.startswith(kept.beginnings) or message.from_.startswith(kept.beginnings))
            and (channel := kept.channels.get(to) or kept.concerned(message))
        ):
            return self._route_kept(kept, channel, message, session, reasons)
        return self._distribute(message, to, session, reasons)

    def _distribute(self, message: Message, to: str, session: Session, reasons: int | None) -> Reply:
        """
        Delivers to the sessions bound to the address, here and at other members.
        """
        recipients = self._routes.resolve(to)
        if session.is_node and recipients and self.foreign is not None:
            recipients = self.foreign.permitted(message, recipients, session)
        if self.cluster is not None:
            nodes = self._members(self.cluster, message, to, session, recipients)
            if nodes is None:
                return None
            if nodes:
                return self._send_to_members(self.cluster, nodes, message, session, recipients)
        if recipients and to not in TOPICS:
            later = self._deliver(message, session, recipients)
            if reasons is not None and later is None:
                self._offer_flow(message, session, reasons, recipients)
            return later
        return self._respond_or_drop(message, to, session)

    def _deliver(
        self, message: Message, session: Session | None, recipients: tuple[Session, ...]
    ) -> Deferred[Any] | None:
        """
        Delivers to the recipients, or to those that the policies permit if a rule applies at egress.
        """
        if self.catching is not None:
            recipients = self.catching.hold(message, recipients)
            if not recipients:
                message.outcome, message.waiting = "waiting", 1
                if session is not None:
                    self.receipts.give(message, 202, session)
                return None
        policy = self.policy
        if policy is not None and policy.outward:
            return self._egress.deliver(policy, message, session, recipients)
        self._delivery.deliver(message, session, recipients)
        return None

    def deliver_also(self, message: Message, session: Session, recipients: tuple[Session, ...]) -> None:
        """
        Delivers a copy of what another domain gets to clients here that listen, without a receipt.
        """
        also = copy(message)
        also.receipt = False
        try:
            later = self._deliver(also, session, recipients)
        except Blocked:
            return
        if later is not None:
            later.addErrback(lambda failed: failed.trap(Blocked) and None)

    # -- objects with a history --------------------------------------------------------

    def _route_kept(
        self, kept: KeptObjects, channel: Channel, message: Message, session: Session, reasons: int | None
    ) -> Reply:
        """
        Has a publication of a kept object recorded before it is delivered, or reads its history. `reasons`:
        as for _route_permitted.
        """
        assert self.history is not None and isinstance(message.to, str)
        if channel.is_history:
            message.receipt = message.receipt and not wants_answer(message)
            reply = self.history.respond(channel.object, message, session)
            message.outcome, message.code = "answered", 200
            return reply
        keeper = "" if kept.others is None else kept.keeper(channel.object)
        is_kept = False
        if keeper and self.cluster is not None and kept.others is not None:
            if not kept.others.is_away(keeper):
                self.cluster.send(message, session, keeper)
                return None
            kept.others.note_missed(keeper, channel.object)
        else:
            is_kept = kept.record(channel, message)
            if is_kept and self.flow_offers is not None and reasons is not None:
                return self._deliver_and_offer(kept, channel.object, message, session, reasons)
        return self._deliver_kept(message, message.to, session, is_kept)

    def _deliver_and_offer(
        self, kept: KeptObjects, object: str, message: Message, session: Session, reasons: int
    ) -> Reply:
        """
        Delivers a publication of an object; if only sessions here hear it, the data plane may repeat that.
        """
        to = message.to
        assert isinstance(to, str)
        reply = self._deliver_kept(message, to, session, True)
        if self.flow_offers is None or reply is not None or session.is_node or self.catching is not None:
            return reply
        recipients = self._routes.resolve(to)
        if self.cluster is not None and self.cluster.holders(to, bool(recipients)):
            return None
        if recipients and self._may_always_send(message.from_, reasons, session):
            number = kept.number(object, message)
            if number is not None:
                self.flow_offers.offer(message, session, recipients, self.policy, number)
        return None

    def _deliver_kept(self, message: Message, to: str, session: Session, is_kept: bool) -> Reply:
        """
        Delivers a publication of an object, here and to the members that hold its address. One that is in
        the journal has arrived, even if no session is subscribed.
        """
        recipients = self._routes.resolve(to)
        nodes = self.cluster.holders(to, bool(recipients)) if self.cluster is not None else ()
        if nodes and self.cluster is not None:
            return self._send_to_members(self.cluster, nodes, message, session, recipients)
        if recipients:
            if self.catching is not None or self.policy is not None:
                return self._deliver(message, session, recipients)
            self._delivery.deliver(message, session, recipients)
            return None
        if not is_kept:
            if not session.is_node:
                return self._respond_or_drop(message, to, session)
            self._no_route(message, to, session)
            return None
        message.outcome = "delivered"  # to the journal
        self.receipts.give(message, 202, session, 0, text="kept in the history; no session is subscribed")
        return None

    def _deliver_kept_here(
        self, kept: KeptObjects, channel: Channel, message: Message, session: Session
    ) -> Reply:
        """
        As the keeper of an object, records what another member sends, or gives it a part of the history.
        """
        assert self.history is not None and self.cluster is not None and isinstance(message.to, str)
        if channel.is_history:
            cluster, node = self.cluster, session.runtime
            answered = self.history.answer_member(channel.object, message)
            answered.addCallback(lambda answer: cluster.carry(node, answer.data))
            message.outcome, message.code = "answered", 200
            return answered
        is_kept = kept.record(channel, message)
        return self._deliver_kept(message, message.to, session, is_kept)

    def deliver_again(self, message: Message, session: Session) -> None:
        """
        Delivers a message of before to one session. Raises Blocked if the policies do not permit it now.
        """
        message.received_at = time_ns()
        policy = self.policy
        if policy is not None and policy.outward:
            policy.check(OUT, message, session)
        self._delivery.deliver(message, None, session.as_tuple)
        self._record_publication(None, message)

    # -- the node's own notifications -----------------------------------------------

    def publish(self, message: Message) -> int:
        """
        Delivers a message of this node to every session bound to its address; returns the number of those
        that are here.
        """
        assert isinstance(message.to, str)
        recipients = self._routes.resolve(message.to)
        if self.cluster is not None:
            nodes = self.cluster.holders(message.to, bool(recipients))
            if nodes:
                self.cluster.publish(message, nodes)
        if recipients:
            message.received_at = time_ns()
            later = None
            try:
                later = self._deliver(message, None, recipients)
            except Blocked:
                self._note_refusal(Failure(), message)
            if later is None:
                self._record_publication(None, message)
            else:
                later.addErrback(self._note_refusal, message).addCallback(self._record_publication, message)
        return len(recipients)

    def _note_refusal(self, failed: Failure, message: Message) -> None:
        why = failed.trap(Blocked) and failed.value
        assert isinstance(why, Blocked)
        message.outcome, message.code, message.reason = "refused", why.code, why.reason
        self._counts.refuse(why.code, why.reason)
        note_refusal(self._ring, why, message, None)

    def _record_publication(self, done: object, message: Message) -> None:
        message.origin = LOCAL_ORIGIN
        self._traffic_recorder.message(message, None)

    # -- answers of the node, and messages without a recipient -------------------------------------------

    def _respond(self, message: Message, to: str, session: Session) -> Reply:
        message.receipt = message.receipt and not wants_answer(message)  # the answer contains more
        responder = self._responders.get(to) or self._responders.get(_host(to))
        if responder is None:
            raise NotOffered(f"this node has no service at {to}")
        session_store = self._session_store
        if session_store.failing:
            raise Rejected(f"the node cannot write to disk now: {session_store.failing}", 503, "disk")
        watermark = self.watermark
        if watermark is not None and watermark.low and message.type.lower() in _NEEDS_DISK:
            watermark.refused += 1
            full = "the node accepts no new data: its disk is nearly full; try again later"
            raise Rejected(full, 503, "disk")
        before = session_store.changes
        told = self.cluster.changes if self.cluster is not None else 0
        self._components.answered[responder] += 1
        reply = responder.respond(message, session)
        message.outcome = "answered"
        message.code = message.code or (200 if reply is not None else 0)
        if not isinstance(reply, Message):
            return reply
        answer = reply
        if session_store.changes != before:
            written = session_store.committed()
            if self.cluster is not None and self.cluster.changes != told:
                settled = self.cluster.settled()
                written.addCallback(lambda done: settled)
            return written.addCallback(lambda done: answer)
        if self.cluster is not None and self.cluster.changes != told:
            return self.cluster.settled().addCallback(lambda done: answer)
        return reply

    def _no_route(self, message: Message, to: str, session: Session, was_asked: bool = False) -> None:
        """
        Drops the message; the sender gets an error only if that is configured and it waits for a response, or
        if this node waits for that: other members were asked (`was_asked`), so it knows nothing yet.
        """
        self._counts.no_route += 1
        self.receipts.give(message, 404, session, 0)
        foreign = self.foreign
        elsewhere = foreign is not None and not to.startswith(foreign.own_host, to.find(":") + 3)
        why = NoRoute(f"no session is bound to {to}")
        expected = was_asked and self.expected_responses.awaits(message)
        if expected or self.receipts.answered(message, session, elsewhere):
            raise why
        note_refusal(self._ring, why, message, session)
        message.outcome, message.reason = "no-route", NoRoute.reason

    # -- senders ---------------------------------------------------------------------

    def _check_sender(self, from_: str, session: Session) -> None:
        """
        Raises Claimed if the session may not send from an address that it is not bound to.

        A session may send from the node's own address only if it serves it, by a policy, and is bound to it.
        """
        self._owners.check_sender(from_, session)
        if self.foreign is not None and self.foreign.is_held_elsewhere(from_, session):
            raise Claimed(f"{from_!r} is an address of another domain; send from one of your own"[:300])
        if not from_.startswith("hyperty://") and self._domain.claimed_by(from_):
            raise Claimed(f"{from_!r} is an address of the node; send from one of your own")

    def _may_always_send(self, from_: str, reasons: int, session: Session) -> bool:
        """
        May a session bound so send from the address until its binding or the configuration changes?

        It has just sent from there.  From a hyperty without a binding, each message may learn one.
        """
        if reasons & _SENDS:
            return True
        if from_.startswith("hyperty://"):
            return False
        return from_ == session.runtime or self._config.session.from_check == "off"

    def _may_learn(self, message: Message, session: Session) -> bool:
        """
        Do the policies permit a route to `from`? They decide as for a subscription, which has the same
        effect.
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
        Binds the session to `from` if that is a hyperty without a binding, so that answers are routed to it.
        """
        if not from_.startswith("hyperty://"):
            return
        if session.learned >= self._config.limits.learned_routes_per_session or from_ in self._routes:
            return
        if self.cluster is not None and self.cluster.holders(from_, False):
            return
        if len(from_) > MAX_ADDRESS_CHARS or any(part in from_ for part in _NO_SENDER):
            return
        if self._budget.has_room(session.account, binding_size(from_)):
            self._routes.bind(from_, session, LEARNED)


def _as_asked(why: Rejected, message: Message, to: str | list[str]) -> Rejected:
    """
    The refusal with the address that the sender used, not the one to which policies redirected the message.
    """
    if message.to == to:
        return why
    message.to = to
    if isinstance(why, Blocked):
        return why
    if isinstance(why, NoRoute):
        return NoRoute(f"no session is bound to {to}")
    return Rejected(f"{to} does not accept this message", why.code, why.reason)


def _host(address: str) -> str:
    """
    The beginning of an address up to its host: `domain://registry.example.org/`.
    """
    return address[: address.find("/", address.find("://") + 3) + 1]
