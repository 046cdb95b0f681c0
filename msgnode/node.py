"""
The node without its connectors: the six nouns, put together.

The tap gives it a clock and a journal; connectors give it connections.  Tests
give it a Clock and talk to it in memory.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from copy import copy
from pathlib import Path
from typing import Protocol

from twisted.internet.interfaces import IReactorTime

from msgnode.backends.registry.registrations import Registrations
from msgnode.bus.allocation import Allocation
from msgnode.bus.bindings import Binder, Requests
from msgnode.bus.components import BackEnd, ComponentResponder, Components
from msgnode.bus.fanout import Fanout
from msgnode.bus.forwarding import Forwards
from msgnode.bus.handshake import Handshake
from msgnode.bus.ingress import Ingress
from msgnode.bus.responder import Responder
from msgnode.bus.router import Router
from msgnode.bus.routing_table import RoutingTable
from msgnode.bus.session_merge import SessionMerge
from msgnode.bus.subscriptions import Subscription
from msgnode.config.schema import Config
from msgnode.policy.enforcement.enforcement import PolicyEnforcement
from msgnode.policy.enforcement.points import IN, SUBSCRIBE
from msgnode.protocol.address import Domain
from msgnode.protocol.errors import TooFast
from msgnode.protocol.message import Message
from msgnode.sessions.access.address_ownership import AddressOwnership
from msgnode.sessions.access.asserted_identity import with_asserted_identity
from msgnode.sessions.access.authentication import Authenticator
from msgnode.sessions.access.identity_expiry import IdentityExpiry
from msgnode.sessions.access.message_tokens import MessageIdentity
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
from msgnode.structures.time_slices import Slices


class Offer(Responder, Protocol):
    """
    A responder that knows its addresses.
    """

    @property
    def addresses(self) -> Iterable[str]: ...


class Node:
    """
    The core of the node.  A connector needs `receive(data, connection)`, `settle`, `sessions`, `handshake`
    and `slices`.

    `session_store` and `message_log` are where sessions and messages survive a restart;
    `validator` looks at the tokens that sessions are opened with.
    """

    # Bound methods, set once: a message pays for one call less on its way.
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
    ) -> None:
        self.config = config
        self.counts = Counters()
        self.registry_counts = RegistryCounts()
        self.connection_limits = ConnectionLimits(config)
        self.rates = RateLimiter(config, clock.seconds)
        self.budget = Budget(config, clock.seconds)
        self.partial_input = PartialInput(config, self.budget, clock)
        self.inflation = Inflation(config, clock.seconds)
        self.slices = Slices(clock)
        self.session_store = session_store = session_store or NullSessionStore()
        state = Path(config.state) if config.state != "none" else None
        self.watermark = Watermark(state, lambda: config.storage.reserve_bytes)
        self.message_log = message_log = message_log or NullMessageLog()
        self.routes = RoutingTable(session_store, self.slices)
        self.sessions = Sessions(
            config,
            self.routes,
            traffic_recorder,
            self.counts,
            clock,
            session_store,
            message_log,
            self.connection_limits,
            self.budget,
            wall,
            chance,
        )
        self._domain = domain = Domain(config.domain)
        self._takeover = takeover = Takeover(config.session, self.routes, clock.seconds)
        self.input_order = InputOrder(
            self.sessions.part, self.sessions.connections.__contains__, clock, self.partial_input
        )
        self.owners = owners = AddressOwnership(config.session, self.routes, clock.seconds)
        self.identity_expiry, self.authenticator = self._watch(validator, clock, wall)
        self.message_identity = None
        if validator is not None:
            self.message_identity = MessageIdentity(config.identity, validator, clock)
        self.registered = Registrations(
            session_store, self.sessions.get, config.limits.bindings_per_session, self.budget
        )
        self.sessions.farewell = self.registered.forget
        session_merge = SessionMerge(
            self.sessions,
            self.routes,
            self.registered,
            session_store,
            self.budget,
            config.limits,
            self.slices,
            self.input_order,
        )
        self.handshake = Handshake(
            self.sessions, domain, takeover, owners, self.authenticator, self.budget, session_merge
        )
        binder = Binder(domain, self.routes, owners, config.limits, self.budget)
        requests = Requests(self.slices, self.input_order, session_store)
        allocation = Allocation(config, domain, self.routes, binder, requests, session_store)
        self._subscription = subscription = Subscription(domain, self.routes, binder, requests, config.limits)
        self.components = components = Components(self._connections)
        components.offer("subscription manager", subscription, [subscription.address])
        components.offer("allocation", allocation, allocation.addresses)
        is_there = self.sessions.connections.__contains__
        self.fanout = Fanout(
            config.limits, self.input_order, self.slices, self.counts, self.sessions.journal, is_there, clock
        )
        self.forwards = Forwards(clock.seconds, domain.owns)
        self._router = router = Router(
            config,
            domain,
            self.routes,
            components,
            traffic_recorder,
            self.counts,
            session_store,
            owners,
            self.budget,
            self.fanout,
            self.forwards,
        )
        self.sessions.sent_late = self.forwards.delivered_late
        self.sessions.watermark = router.watermark = self.watermark
        if config.state != "none":
            storage = config.storage
            self.sessions.shares = Shares(
                lambda: storage.max_spool_bytes_per_sender, lambda: config.trusted_proxies
            )
        self.sessions.receipt = router.receipts.give_late
        self.publish = router.publish
        self.awaited = router.awaited
        self._ingress = ingress = Ingress(
            self.handshake,
            router.route,
            self.sessions.tell,
            traffic_recorder,
            self.counts,
            router.receipts,
            self.input_order,
        )
        self.authenticator.receive = self.input_order.receive = ingress.receive
        self.receive = ingress.receive
        self.reject_undecodable = ingress.reject_undecodable
        self.settle = self.sessions.journal.settle
        self.enforcement = PolicyEnforcement(
            config,
            clock,
            self._ask_policies,
            owners,
            who=self.authenticator.who,
            partial_input=self.partial_input,
        )
        subscription.may_serve = self._may_serve
        listing = ComponentResponder(domain, components, self._may_list)
        components.offer("connectors", listing, [listing.address])
        self.apply()

    def _watch(
        self, validator: TokenValidator | None, clock: IReactorTime, wall: Callable[[], float]
    ) -> tuple[IdentityExpiry, Authenticator]:
        """
        Who may come in, and until when.
        """
        options, sessions = self.config.identity, self.sessions
        believed = validator.still_holds if validator is not None else lambda proof: True
        identity_expiry = IdentityExpiry(options, clock, wall, sessions.park, self.session_store, believed)
        find, is_there = self.routes.runtime, sessions.connections.__contains__
        authenticator = Authenticator(
            options,
            validator,
            identity_expiry,
            find,
            sessions.part,
            is_there,
            self.input_order,
            clock.seconds,
        )
        return identity_expiry, authenticator

    def apply(self) -> None:
        """
        The configuration has changed: take over what is not read where it is used.
        """
        self.rates.apply()
        self.inflation.apply()
        self.fanout.apply()
        options = self.config.session
        self.sessions.journal.most = options.max_memory_bytes
        self.sessions.journal.limit_disk(self.config.storage.max_spool_bytes)
        strict = self.rates.on or options.message_token != "off"
        self._ingress.check = self._check if strict else None
        identity = self.config.identity
        self._ingress.vouch = None if identity.auth == "none" else with_asserted_identity
        looks = self.message_identity
        if looks is not None:
            looks.forget()
            self._ingress.identify = None if identity.message_identity == "ignore" else looks.look
        self.enforcement.apply()

    def _ask_policies(self) -> None:
        """
        There are policies now, others, or none any more.
        """
        enforcement = self.enforcement if self.enforcement.is_on else None
        self._router.policy = self.handshake.policy = self._subscription.policy = enforcement
        self._ingress.leaving = enforcement.leaving if enforcement is not None else None
        self._router.several.leaving = self._ingress.leaving
        self.fanout.decides = enforcement is not None and enforcement.outward

    @property
    def responders(self) -> dict[str, Responder]:
        return self.components.responders

    @property
    def back_ends(self) -> list[BackEnd]:
        return self.components.back_ends

    def _connections(self) -> Counter[str]:
        return Counter(connection.connector for connection in self.sessions.connections)

    def _may_list(self, message: Message, session: Session) -> bool:
        """
        Does a rule name the list of what the node is made of?
        """
        return self.enforcement.names(IN, message, session, f"{self._domain.node}/")

    def _may_serve(self, address: str, message: Message, session: Session) -> bool:
        """
        May a client's session answer at this address of the node's, because a rule names it?
        """
        if not self._is_free(address):
            return False
        topic = copy(message)
        topic.to = address
        return self.enforcement.names(SUBSCRIBE, topic, session, "domain://")

    def is_reserved(self, address: str) -> bool:
        """
        Is it the node's own by now, whoever served it before a restart?
        """
        return address.startswith("domain://") and self._domain.owns(address) and not self._is_free(address)

    def _is_free(self, address: str) -> bool:
        """
        Is it a node address that a session may serve where the node itself does not?
        """
        registry = f"domain://registry.{self._domain.name}"
        return self.config.registry.url == "none" and address in (registry, f"{registry}/")

    def offer(self, name: str, responder: Offer) -> None:
        """
        Let it answer at its addresses.
        """
        self.components.offer(name, responder, responder.addresses)
        self._domain.also |= {a for a in responder.addresses if not self._domain.owns(a)}

    def _check(self, data: bytes, session: Session, connection: Connection) -> None:
        if self.rates.on and not self.rates.take(session, connection.peer, len(data)):
            self.sessions.too_fast(connection)
            raise TooFast()
        if self.config.session.message_token != "off":
            self._takeover.check_token(data, session, connection)

    def check_rate(self, message: Message, session: Session, connection: Connection) -> None:
        """
        For who can be told at once, whatever it sends: TooFast, if it would not be carried.
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

    def trouble(self) -> str:
        """
        Why nothing can be written to disk now; empty while all is well.
        """
        failing = self.message_log.failing
        return self.session_store.failing or (str(failing) if failing is not None else "")

    def strain(self) -> str:
        """
        Why nothing new is written to disk; empty while all is well.
        """
        return self.trouble() or self.watermark.why
