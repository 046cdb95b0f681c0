"""
The node without its connectors: sessions, routing, policies and responders, wired together.

The tap provides a clock and the disk, connectors provide connections. Tests provide a Clock and talk to it in
memory.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from copy import copy
from pathlib import Path
from typing import Any, Protocol

from twisted.internet.interfaces import IReactorTime

from msgnode.backends.identity.logins import Logins
from msgnode.backends.qos.reservations import Reservations
from msgnode.backends.registry.domain_registry import DomainRegistry
from msgnode.backends.registry.registrations import Registrations
from msgnode.bus.components import (
    BackEnd,
    ClusterMembers,
    ComponentResponder,
    Components,
    ForeignDomains,
    Responder,
)
from msgnode.bus.delivery import DeliveryObserver
from msgnode.bus.fanout import Fanout
from msgnode.bus.flow_offers import FlowOffers
from msgnode.bus.forwarding import Forwards
from msgnode.bus.handshake import Handshake
from msgnode.bus.ingress import Ingress
from msgnode.bus.objects.objects import Objects
from msgnode.bus.records.catalogue_responder import RecordsResponder
from msgnode.bus.records.known_records import KnownRecords
from msgnode.bus.records.notifications import SystemNotifications, TopicResponder
from msgnode.bus.records.record_check import RecordCheck
from msgnode.bus.refusals import Refusals
from msgnode.bus.responders.allocation import Allocation
from msgnode.bus.responders.bindings import Binder, Requests
from msgnode.bus.responders.subscriptions import Subscription
from msgnode.bus.router import Router
from msgnode.bus.routing_table import RoutingTable
from msgnode.bus.session_merge import SessionMerge
from msgnode.cluster.member_requests import MemberRequests
from msgnode.cluster.operator_requests import OperatorRequests
from msgnode.cluster.relay.member_relay import MemberRelay
from msgnode.cluster.relay.relay import Serve, not_served
from msgnode.cluster.status import ClusterStatus
from msgnode.config.schema import Config
from msgnode.foreign.stubs import ForeignStubs
from msgnode.links.operations import LinkOperations
from msgnode.policy.enforcement.enforcement import PolicyEnforcement
from msgnode.policy.enforcement.points import IN, SUBSCRIBE
from msgnode.protocol.address import POLICY, SESSIONS, TOPICS, Domain
from msgnode.protocol.close_codes import Closing
from msgnode.protocol.errors import TooFast
from msgnode.protocol.message import Message
from msgnode.sessions.access.address_ownership import AddressOwnership
from msgnode.sessions.access.asserted_identity import with_asserted_identity
from msgnode.sessions.access.authentication import Authenticator
from msgnode.sessions.access.bans import Bans
from msgnode.sessions.access.identity_expiry import IdentityExpiry
from msgnode.sessions.access.message_tokens import MessageIdentity
from msgnode.sessions.access.open_checks import OpenChecks
from msgnode.sessions.access.takeover import Takeover
from msgnode.sessions.counters import Counters, RegistryCounts
from msgnode.sessions.input_order import InputOrder
from msgnode.sessions.limits.connection_limits import ConnectionLimits
from msgnode.sessions.limits.disk_watermark import Watermark
from msgnode.sessions.limits.memory_budget import Budget
from msgnode.sessions.limits.partial_input import PartialInput
from msgnode.sessions.limits.rate_limits import Inflation, RateLimiter
from msgnode.sessions.limits.spool_share import Shares
from msgnode.sessions.persistence import MessageLog, NullMessageLog, NullSessionStore, SessionStore
from msgnode.sessions.principal import TokenValidator
from msgnode.sessions.session import Connection, Session
from msgnode.sessions.session_table import Sessions, TrafficRecorder
from msgnode.storage.traffic_log import TrafficLog
from msgnode.storage.traffic_tap import TrafficTap
from msgnode.structures.time_slices import Slices
from msgnode.transport.cork import Cork
from msgnode.transport.data_plane import NO_DATA_PLANE, DataPlane


class Offer(Responder, Protocol):
    """
    A responder that knows its addresses.
    """

    @property
    def addresses(self) -> Iterable[str]: ...


class MessageObserver(TrafficRecorder, DeliveryObserver, Protocol):
    """
    An observer of what becomes of messages: of deliveries, outcomes, and decisions of the policies.
    """

    def decided(
        self, point: str, message: Message, session: Session | None, effect: str, rule: str, micros: int
    ) -> None:
        """
        The policies have decided; `session` is the sender's, at `out` the recipient's.
        """


class Node:
    """
    The core of the node. A connector needs `receive(data, connection)`, `settle`, `sessions`, `handshake` and
    `slices`.

    `session_store` and `message_log` store sessions and messages across a restart; `validator` checks the
    tokens with which sessions are opened.
    """

    # Bound methods, set once, which saves one call for each message.
    receive: Callable[[bytes, Connection], None]  # Ingress.receive
    reject_undecodable: Callable[..., None]  # Ingress.reject_undecodable
    settle: Callable[..., None]  # DeliveryJournal.settle
    publish: Callable[[Message], int]  # Router.publish

    def __init__(
        self,
        config: Config,
        clock: IReactorTime,
        traffic_recorder: TrafficRecorder,
        session_store: SessionStore | None = None,
        message_log: MessageLog | None = None,
        wall: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
        validator: TokenValidator | None = None,
        data_plane: DataPlane = NO_DATA_PLANE,
    ) -> None:
        self.config = config
        self.link_operations: LinkOperations | None = None  # None: no federation is configured
        self.stubs: ForeignStubs | None = None  # None: the node was put together without them
        self._before_read: Callable[[], object] | None = None
        self._cork: AbstractContextManager[Any] | None = None
        self.registry: DomainRegistry | None = None  # None: the node calls none
        self.reservations: Reservations | None = None  # None: the QoS broker is not embedded
        self.logins: Logins | None = None  # None: no identity responder is on
        self.cluster_status: ClusterStatus | None = None  # None: the node is alone in its domain
        self.operator_requests = OperatorRequests(f"mn://{config.domain}/{config.node}", clock)
        self.member_requests: MemberRequests | None = None  # None: as above
        self.member_relay: MemberRelay | None = None  # None: as above
        self.serve_relayed: Serve = not_served  # the HTTP requests that other members relay
        self.data_plane = data_plane
        self.counts = Counters()
        self.registry_counts = RegistryCounts()
        self.slices = Slices(clock)
        self.session_store = session_store or NullSessionStore()
        self.message_log = message_log or NullMessageLog()
        self._domain = Domain(config.domain)
        self.traffic = TrafficTap(traffic_recorder)
        self._observer: MessageObserver | None = None
        self._make_limits(clock)
        self._make_sessions(self.traffic, clock, wall, chance)
        self._make_access(validator, clock, wall)
        self._make_responders()
        self._make_router(self.traffic, clock)
        self._make_objects(clock)
        self._make_handshake()
        self._make_ingress(self.traffic)
        self._make_bans(wall)
        self._make_enforcement(clock)
        self._make_records(clock)
        self.apply()

    def _make_limits(self, clock: IReactorTime) -> None:
        config = self.config
        self.connection_limits = ConnectionLimits(config)
        self.rates = RateLimiter(config, clock.seconds, self.data_plane)
        self.budget = Budget(config, clock.seconds)
        self.partial_input = PartialInput(config, self.budget, clock)
        self.partial_input.data_plane = self.data_plane
        self.inflation = Inflation(config, clock.seconds)
        state = Path(config.state) if config.state != "none" else None
        self.watermark = Watermark(state, lambda: config.storage.reserve_bytes)

    def _make_sessions(
        self,
        traffic_recorder: TrafficRecorder,
        clock: IReactorTime,
        wall: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        config = self.config
        self.routes = RoutingTable(self.session_store, self.slices)
        self.routes.data_plane = self.data_plane
        self.sessions = Sessions(
            config,
            self.routes,
            traffic_recorder,
            self.counts,
            clock,
            self.session_store,
            self.message_log,
            self.connection_limits,
            self.budget,
            wall,
            chance,
        )
        self.sessions.watermark = self.watermark
        self.sessions.data_plane = self.data_plane
        if config.state != "none":
            storage = config.storage
            self.sessions.shares = Shares(
                lambda: storage.max_spool_bytes_per_sender, lambda: config.trusted_proxies
            )
        self.registered = Registrations(
            self.session_store, self.sessions.get, config.limits.bindings_per_session, self.budget
        )
        self.sessions.on_end = self.registered.forget

    def _make_access(
        self, validator: TokenValidator | None, clock: IReactorTime, wall: Callable[[], float]
    ) -> None:
        """
        Makes the parts that decide who may open a session and use an address, and until when.
        """
        options, sessions = self.config.identity, self.sessions
        find, is_there = self.routes.runtime, sessions.connections.__contains__
        self._takeover = Takeover(self.config.session, self.routes, clock.seconds)
        self.owners = AddressOwnership(self.config.session, self.routes, clock.seconds)
        self.input_order = InputOrder(sessions.connections.close, is_there, clock, self.partial_input)
        self.input_order.data_plane = self.data_plane
        sessions.connections.is_held = self.input_order.pending.__contains__
        believed = validator.still_holds if validator is not None else lambda proof: True
        self.identity_expiry = IdentityExpiry(
            options, clock, wall, sessions.suspend, self.session_store, believed
        )
        self.authenticator = Authenticator(
            options,
            validator,
            self.identity_expiry,
            find,
            sessions.connections.close,
            is_there,
            self.input_order,
            clock.seconds,
        )
        self.message_identity = None
        if validator is not None:
            self.message_identity = MessageIdentity(options, validator, clock)

    def _make_responders(self) -> None:
        """
        Makes the responders at the node's own addresses that need no back end.
        """
        config, domain = self.config, self._domain
        self._binder = binder = Binder(domain, self.routes, self.owners, config.limits, self.budget)
        requests = Requests(self.slices, self.input_order, self.session_store)
        allocation = Allocation(config, domain, self.routes, binder, requests, self.session_store)
        self.allocation = allocation
        self._subscription = Subscription(domain, self.routes, binder, requests, config.limits)
        self._subscription.may_serve = self._may_serve
        self.components = Components(self._connections)
        self.components.offer("subscription manager", self._subscription, [self._subscription.address])
        self.components.offer("allocation", allocation, allocation.addresses)
        listing = ComponentResponder(domain, self.components, self._may_list)
        self.components.offer("connectors", listing, [listing.address])

    def _make_router(self, traffic_recorder: TrafficRecorder, clock: IReactorTime) -> None:
        sessions = self.sessions
        is_there = sessions.connections.__contains__
        self.fanout = Fanout(
            self.config.limits, self.input_order, self.slices, self.counts, sessions.journal, is_there, clock
        )
        self.forwards = Forwards(clock.seconds, self._domain.owns)
        self._router = Router(
            self.config,
            self._domain,
            self.routes,
            self.components,
            traffic_recorder,
            self.counts,
            self.session_store,
            self.owners,
            self.budget,
            self.fanout,
            self.forwards,
            self.sessions.refusals,
        )
        self._router.watermark = self.watermark
        sessions.sent_late = self.forwards.delivered_late
        sessions.receipt = self._router.receipts.give_late
        self.publish = self._router.publish
        self.expected_responses = self._router.expected_responses
        self.expected_responses.data_plane = self.data_plane
        is_logged = isinstance(self.traffic.recorder, TrafficLog)
        self._flow_offers = FlowOffers(self.config, self.data_plane, self.rates, is_logged)

    def _make_objects(self, clock: IReactorTime) -> None:
        self.objects = Objects(
            self.config,
            self._router,
            self.expected_responses,
            self.sessions.journal.before_write,
            self.slices,
            clock,
            self.data_plane,
        )
        self._subscription.catch_ups = self.objects.catch_ups

    def _make_handshake(self) -> None:
        session_merge = SessionMerge(
            self.sessions,
            self.routes,
            self.registered,
            self.session_store,
            self.budget,
            self.config.limits,
            self.slices,
            self.input_order,
        )
        checks = OpenChecks(
            self.sessions, self._domain, self._takeover, self.owners, self.authenticator, self.budget
        )
        self.open_checks = checks
        self.handshake = Handshake(
            self.sessions,
            self._domain,
            self._takeover,
            self.authenticator,
            checks,
            self.budget,
            session_merge,
        )

    def _make_ingress(self, traffic_recorder: TrafficRecorder) -> None:
        self._ingress = ingress = Ingress(
            self.handshake,
            self._router,
            Refusals(
                self.sessions.connections.send_or_close,
                traffic_recorder,
                self.counts,
                self._router.receipts,
                self.sessions.refusals,
                self._router.expected_responses.awaits,
            ),
            traffic_recorder,
            self.counts,
            self.input_order,
        )
        self.authenticator.receive = self.input_order.receive = ingress.receive
        self.receive = ingress.receive
        self.reject_undecodable = ingress.reject_undecodable
        self.settle = self.sessions.journal.settle

    def _make_bans(self, wall: Callable[[], float]) -> None:
        """
        Makes what operators change while the node runs.
        """
        self.bans = Bans(wall)
        self.turned_away: Closing | None = (
            None  # the close code for new clients while an operator drains the node
        )
        self.sessions.ban_of = self.bans.of_session
        self.sessions.connections.refuses = self._refuses_connection

    def _refuses_connection(self, connection: Connection) -> Closing | None:
        return self.turned_away or self.bans.of_connection(connection)

    def _make_enforcement(self, clock: IReactorTime) -> None:
        self.enforcement = PolicyEnforcement(
            self.config,
            clock,
            self._ask_policies,
            self.owners,
            who=self.authenticator.who,
            partial_input=self.partial_input,
        )
        self.enforcement.decisions.data_plane = self.data_plane
        contexts = self.enforcement.contexts
        contexts.pools = {pool.scheme: name for name, pool in self.config.pools.items()}
        self.allocation.is_verified = contexts.is_verified
        self.allocation.on_taken = lambda session, notice: session.deliver(notice)

    def _make_records(self, clock: IReactorTime) -> None:
        """
        Makes the check of records, their catalogue, and the node's own notifications.
        """
        self.known_records = known = KnownRecords()
        self.enforcement.contexts.kind_of = known.kind
        self._record_check = RecordCheck(
            self.config.records, known, self._router.receipts, self.counts.refuse
        )
        catalogue = RecordsResponder(self._domain, known, self._may_list)
        self.components.offer("records", catalogue, [catalogue.address])
        self.notifications = SystemNotifications(self.publish, self.routes.resolve, clock)
        self.sessions.on_event = self.notifications.event
        self.enforcement.replaced = self.notifications.policies_replaced
        topics: tuple[tuple[str, str, Callable[[], dict[str, Any]]], ...] = (
            ("sessions", SESSIONS, lambda: {"SESSIONS": len(self.sessions)}),
            ("policy", POLICY, lambda: {"VERSION": str(self.enforcement.version)}),
        )
        for name, address, now in topics:
            self.offer(name, TopicResponder(address, now, self.may_read_topic))

    def use_cork(self, cork: AbstractContextManager[Any]) -> None:
        """
        Holds back the output of work in later turns with this cork, as connectors do for each read.
        """
        self.fanout.together = self.sessions.overload.together = cork
        self.input_order.together = self._ingress.together = self.objects.catch_ups.together = cork
        self._cork = cork
        self._check_reads()

    def call_before_reads(self, check: Callable[[], object]) -> None:
        """
        Calls `check` before the input of a client is handled: by the connectors' cork, whichever of both is
        there first.
        """
        self._before_read = check
        self._check_reads()

    def _check_reads(self) -> None:
        if isinstance(self._cork, Cork) and self._before_read is not None:
            self._cork.before_read = self._before_read

    def apply(self) -> None:
        """
        Applies a changed configuration to the parts that store copies of it.
        """
        self.rates.apply()
        self.inflation.apply()
        self.fanout.apply()
        options = self.config.session
        self.sessions.journal.most = options.max_memory_bytes
        self.sessions.journal.limit_disk(self.config.storage.max_spool_bytes)
        strict = self.rates.on or options.message_token != "off"
        self._ingress.admit = self._check if strict else None
        self._ingress.check_record = None if self.config.records.check == "off" else self._record_check.check
        identity = self.config.identity
        self._ingress.stamp_identity = None if identity.auth == "none" else with_asserted_identity
        looks = self.message_identity
        if looks is not None:
            looks.forget()
            self._ingress.identify = None if identity.message_identity == "ignore" else looks.look
        self.enforcement.apply()
        limits = self.config.limits
        self.data_plane.set_limits(
            options.unsent_bytes, limits.partial_bytes, limits.partial_bytes_per_ip, limits.flow_bytes
        )
        self._offer_flows()

    def _offer_flows(self) -> None:
        """
        Offer what is decided only where no token is wanted in each message; what was offered is void.
        """
        ingress, offers = self._ingress, self._flow_offers
        keys = ((ingress.stamp_identity, "assertedIdentity"), (ingress.identify, "identity"))
        offers.refused = tuple(key for look, key in keys if look is not None)
        is_offered = self.data_plane.is_native and self.config.session.message_token == "off"
        self._router.flow_offers = offers if is_offered else None
        self.data_plane.change_all()

    def observe(self, observer: MessageObserver | None) -> None:
        """
        Notifies this observer of what becomes of messages, for operators' traces; None ends that.

        The data plane forgets its decisions: it repeats none about messages that the observer wants to see.
        """
        if self._observer is not None:
            self.traffic.leave(self._observer)
        if observer is not None:
            self.traffic.listen(observer)
        self._observer = self._flow_offers.observer = observer
        self.enforcement.observer = observer.decided if observer is not None else None
        self.sessions.sent_late = self.forwards.delivered_late if observer is None else self._sent_late
        self._router.observe(observer)
        self.data_plane.change_all()

    def _sent_late(self, data: bytes, session: Session) -> None:
        self.forwards.delivered_late(data, session)
        if self._observer is not None:
            self._observer.sent_late(data, session)

    def _ask_policies(self) -> None:
        """
        Connects the policies to the parts that need decisions, or disconnects them.
        """
        enforcement = self.enforcement if self.enforcement.is_on else None
        self._router.policy = self.handshake.policy = self._subscription.policy = enforcement
        self._ingress.filter_reply = enforcement.filter_reply if enforcement is not None else None
        self._router.recipient_list.filter_reply = self._ingress.filter_reply
        self.fanout.decides = enforcement is not None and enforcement.outward
        self._offer_flows()

    def federate(self, foreign: ForeignDomains | None) -> None:
        """
        Connects the other domains to the parts that look up addresses; None: there are none any more.
        """
        self._router.foreign = self._router.recipient_list.foreign = foreign
        self._subscription.foreign = self._binder.foreign = foreign
        self.routes.unbound = foreign.unbound if foreign is not None else None
        self.data_plane.change_all()

    def join_cluster(self, members: ClusterMembers) -> None:
        """
        Connects the other nodes of this domain to the parts that look up addresses, and tells them what this
        node holds.
        """
        for runtime in self.routes.names():
            members.opened(runtime)
        for address in self.routes.addresses():
            members.bound(address)
        self._router.cluster = self.routes.held = members
        self._flow_offers.awaits = members.awaits
        self.owners.is_held_elsewhere = members.is_held_elsewhere
        self.data_plane.change_all()

    @property
    def together(self) -> AbstractContextManager[Any]:
        """
        A context that collects the output of one piece of work, so that it is on disk before it is sent.
        """
        return self._ingress.together

    @property
    def router(self) -> Router:
        return self._router

    @property
    def ingress(self) -> Ingress:
        return self._ingress

    @property
    def responders(self) -> dict[str, Responder]:
        return self.components.responders

    @property
    def back_ends(self) -> list[BackEnd]:
        return self.components.back_ends

    def _connections(self) -> Counter[str]:
        return +self.sessions.connections.by_connector

    def _may_list(self, message: Message, session: Session) -> bool:
        """
        Does a rule name the list of the node's components?
        """
        return self.enforcement.names(IN, message, session, f"{self._domain.node}/")

    def _may_serve(self, address: str, message: Message, session: Session) -> bool:
        """
        May a client's session subscribe this address of the node's, because a rule names it?
        """
        is_topic = address in TOPICS and address in self.responders
        if not is_topic and not self._is_free(address):
            return False
        topic = copy(message)
        topic.to = address
        return self.enforcement.names(SUBSCRIBE, topic, session, "mn:/" if is_topic else "domain://")

    def may_read_topic(self, message: Message, session: Session) -> bool:
        """
        Does a rule name the topic that this message is sent to?
        """
        return self.enforcement.names(IN, message, session, "mn:/")

    def is_reserved(self, address: str) -> bool:
        """
        Is it an address of the node now, even if a session served it before a restart?
        """
        return address.startswith("domain://") and self._domain.owns(address) and not self._is_free(address)

    def _is_free(self, address: str) -> bool:
        """
        Is it a node address that a session may serve because the node itself does not?
        """
        registry = f"domain://registry.{self._domain.name}"
        return self.config.registry.url == "none" and address in (registry, f"{registry}/")

    def offer(self, name: str, responder: Offer) -> None:
        """
        Adds the responder at its addresses.
        """
        self.components.offer(name, responder, responder.addresses)
        self._domain.also |= {a for a in responder.addresses if not self._domain.owns(a)}

    def answer_late(self, reply: Message, session: Session, connection: Connection | None) -> None:
        """
        Sends one more answer to a request that was answered before; without a connection, to where the
        session is now.
        """
        with self._ingress.together:
            self._ingress.answer(reply, session, connection)

    def _check(self, data: bytes, session: Session, connection: Connection) -> None:
        if self.rates.on and not self.rates.acquire(session, connection.peer, len(data)):
            self.sessions.connections.too_fast(connection)
            raise TooFast()
        if self.config.session.message_token != "off":
            self._takeover.check_token(data, session, connection)

    def check_rate(self, message: Message, session: Session, connection: Connection) -> None:
        """
        For a sender that can be answered at once, whatever it sends: raises TooFast if the message would be
        refused.
        """
        again = self.rates.wait(session, connection.peer) if self.rates.on else 0.0
        if again:
            message.origin = connection
            why = TooFast(again)
            self._ingress.refused(message, session, why)
            raise why

    @property
    def draining(self) -> bool:
        """
        Is the node about to stop?
        """
        return self.sessions.draining

    @property
    def takes_no_clients(self) -> bool:
        """
        Are new clients refused for a while, because the node is about to stop or an operator drains it?
        """
        return self.draining or self.turned_away is not None

    def disk_failure(self) -> str:
        """
        The reason why nothing can be written to disk now; empty if there is none.
        """
        failing = self.message_log.failing
        return self.session_store.failing or failing or ""

    def cluster_degraded_reason(self) -> str:
        """
        The reason why other nodes of the domain are not reached; empty if there is none.
        """
        return self.cluster_status.why_degraded if self.cluster_status is not None else ""

    def degraded_reason(self) -> str:
        """
        The reason why no new data is written to disk; empty if there is none.
        """
        return self.disk_failure() or self.watermark.why
