"""
The exchange between domains: a listener to streams, and what the bus knows of other domains.
"""

import time
from collections.abc import Callable, Iterator, Set
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.links.exchange.allocations import Allocations
from msgnode.links.exchange.counts import ExchangeCounts
from msgnode.links.exchange.deliveries import Deliveries
from msgnode.links.exchange.domains import Gateways, HomeDomains
from msgnode.links.exchange.envelopes import ASKED, MessageIds, envelope_of
from msgnode.links.exchange.incoming import Incoming
from msgnode.links.exchange.node_parts import ExchangeOptions, NodeParts
from msgnode.links.exchange.node_sessions import Arrival, NodeConnection, NodeSessions
from msgnode.links.exchange.outgoing import Outgoing
from msgnode.links.exchange.passing.origins import REDIRECTS, Origins, Signer
from msgnode.links.exchange.rates import DomainRates
from msgnode.links.exchange.receipts import AskedReceipts, RemoteReceipt
from msgnode.links.exchange.status import ACKNOWLEDGED, DELIVERED, said
from msgnode.links.exchange.subscriptions.entries import (
    Answer,
    AnyEntry,
    Ask,
    BeginDomain,
    EndDomain,
    Missed,
    Permit,
    Release,
    Revoke,
    decode,
)
from msgnode.links.exchange.subscriptions.grants import Grants
from msgnode.links.exchange.subscriptions.member_subscribers import MemberSubscribers
from msgnode.links.exchange.subscriptions.upstream import Upstream
from msgnode.links.overlay.network import Network
from msgnode.links.stream.streams import Envelope, NoRoom, Outcome, Streams
from msgnode.links.wire.node_name import domain_of
from msgnode.policy.decision.addresses import split
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.routing import ALLOCATED
from msgnode.sessions.session import Session
from msgnode.sessions.session_table import TrafficRecorder
from msgnode.structures.log_limits import FailureLog
from msgnode.transport.cork import Cork

log = Logger()

SUBSCRIPTION_PRIORITY = 7  # one lane, so that entries arrive in their order
ANSWER_PRIORITY = 9  # before what is published then
_receipt = msgspec.msgpack.Decoder(RemoteReceipt)
_MANAGER = "domain://msg-node."
_OVER = object()  # the end of an iterator


class Members(Protocol):
    """
    The other nodes of this domain, to which the exchange passes what comes from them, or goes there.
    """

    def received(
        self,
        source: str,
        envelope: Envelope,
        payload: bytes,
        path: tuple[tuple[str, int], ...],
        done: Callable[[], None],
    ) -> None:
        """
        As StreamListener.received, within the cork.
        """

    def received_several(
        self,
        source: str,
        envelope: Envelope,
        payloads: Iterator[bytes],
        path: tuple[tuple[str, int], ...],
        keep: Callable[[], Callable[[], None]],
    ) -> None:
        """
        As StreamListener.received_several, within the cork.
        """

    def send_out(self, message: Message, session: Session, domain: str) -> None:
        """
        Sends a message for another domain to the member that reaches it. Raises Rejected.
        """

    def carry(self, node: str, data: bytes) -> None:
        """
        Sends what the bus has delivered to the session of a node of this domain.
        """


class Exchange:
    """
    The exchange (StreamListener, ForeignDomains).

    `counts` counts what crossed, and what was refused or lost, by reason. `signer` proves to third domains
    what clients here publish; without one they get only what clients of the home domain publish.
    """

    def __init__(
        self,
        node: NodeParts,
        streams: Streams,
        network: Network,
        ids: MessageIds,
        clock: IReactorTime,
        traffic_recorder: TrafficRecorder,
        options: ExchangeOptions | None = None,
        signer: Signer | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.options = options = options or ExchangeOptions()
        self.counts = ExchangeCounts(clock.seconds)
        self.rates = DomainRates(options, clock.seconds)
        self.own_host = f"{node.config.domain}/"
        self.members: Members | None = None
        self._node = node
        self._network = network
        self._streams = streams
        self._ids = ids
        self._failures = FailureLog(log)
        self.homes = homes = HomeDomains(
            node.config.domain, network, node.owners, node.routes.resolve, options
        )
        self.nodes = NodeSessions(node.sessions, self._carry, network.has_route, clock.seconds, options)
        self.gateways = Gateways(network, self.nodes, streams, clock, self.counts)
        self.receipts = AskedReceipts(node.routes, clock.seconds)
        self.origins = origins = Origins(network.node, signer, self._asks_for_signatures, wall)
        self._make_messages(node, network, clock, traffic_recorder, origins)
        self.grants = Grants(node, homes, self.nodes, ids, self._answer, clock, options, self.counts)
        self.upstream = Upstream(
            node, homes, self.gateways, ids, self._ask, self._answer, clock, options, self.counts
        )
        self.member_subscribers = MemberSubscribers(
            self.upstream, homes, node.slices, self._answer, clock, options
        )
        self.gateways.lost = self._routes_lost
        self.gateways.replaced = self.upstream.restarted  # the other gateway is asked for all subscriptions
        self.apply()

    def _make_messages(
        self,
        node: NodeParts,
        network: Network,
        clock: IReactorTime,
        traffic_recorder: TrafficRecorder,
        origins: Origins,
    ) -> None:
        options, streams, homes = self.options, self._streams, self.homes
        self.allocations = Allocations(node, homes, self._send_own, clock, self.counts)
        self._deliveries = Deliveries(
            streams,
            homes,
            self._ids,
            origins,
            node.owners,
            options,
            lambda: node.config.policy.expose_reason,
            self.counts,
            network.node,
        )
        self.outgoing = Outgoing(
            streams,
            network,
            node.router,
            node.routes,
            homes,
            self.nodes,
            self.gateways,
            self._ids,
            origins,
            self.receipts,
            self.allocations,
            self._deliveries,
            lambda: node.ingress.together,
            self.is_collecting,
            node.sessions.journal.before_write,
            options,
            self.counts,
            clock,
        )
        self._deliveries.answer_lost = self.outgoing.answer_lost
        self._incoming = Incoming(
            node,
            traffic_recorder,
            homes,
            self.nodes,
            origins,
            self._deliveries,
            self.allocations,
            self.outgoing.awaited.answered,
            self.rates,
            clock.seconds,
            self.counts,
        )

    def apply(self) -> None:
        """
        Applies options that have changed.
        """
        self.rates.apply()

    def start(self, federates: bool = True) -> None:
        """
        Connects to the bus, when the sessions of before a restart are there. A node that does not federate
        reaches no other domain by itself; another member of its cluster may.
        """
        self.homes.is_linked = federates
        self.upstream.is_member = self.members is not None
        restored = [session for session in self._node.sessions if not session.is_node]
        self.receipts.start(restored, self.options.max_wait_seconds)
        self.nodes.start()
        if federates or self.members is not None:
            self._node.federate(self)
        self.gateways.start()
        self.outgoing.start()
        self.allocations.start()
        self.grants.start()
        self.upstream.start()
        self.member_subscribers.start()

    def stop(self) -> None:
        self.gateways.stop()
        self.outgoing.stop()
        self.allocations.stop()
        self.grants.stop()
        self.upstream.stop()
        self.member_subscribers.stop()

    def forget(self, domain: str) -> None:
        """
        Ends what the nodes of a domain hold here, because it is no longer a peer.
        """
        for node in self.nodes.nodes_of(domain):
            self.forget_node(node)

    def forget_node(self, node: str) -> None:
        """
        Ends what a node holds here.
        """
        self.grants.forget(node)
        self.nodes.end(node)

    # -- StreamListener ------------------------------------------------------------------

    def received(
        self,
        source: str,
        envelope: Envelope,
        payload: bytes,
        path: tuple[tuple[str, int], ...],
        done: Callable[[], None],
    ) -> None:
        """
        Takes a message, a receipt or an entry about subscriptions; never raises.

        All output to clients here leaves after the journal is written.
        """
        if self.members is not None and domain_of(source) == self.homes.own:
            with self._node.ingress.together:
                self.members.received(source, envelope, payload, path, done)
            return
        if envelope.identity and self._is_own_user(envelope.identity):
            self.counts.note(source, "identity")
            envelope.identity = {}
        with self._node.ingress.together:
            self._receive(source, envelope, payload, path, done)

    def received_several(
        self,
        source: str,
        envelope: Envelope,
        payloads: Iterator[bytes],
        path: tuple[tuple[str, int], ...],
        keep: Callable[[], Callable[[], None]],
    ) -> None:
        """
        Takes several messages with one envelope; never raises.
        """
        if self.members is not None and domain_of(source) == self.homes.own:
            with self._node.ingress.together:
                self.members.received_several(source, envelope, payloads, path, keep)
            return
        if envelope.identity and self._is_own_user(envelope.identity):
            self.counts.note(source, "identity")
            envelope.identity = {}
        with self._node.ingress.together:
            self._incoming.receive_several(source, envelope, payloads, path, keep)

    def is_collecting(self) -> bool:
        """
        Is the output of this turn collected, so that the journal is written at its end?
        """
        together = self._node.ingress.together
        return isinstance(together, Cork) and together.is_open

    def _is_own_user(self, identity: dict[str, str]) -> bool:
        """
        Does another domain say that its client is a user of this domain, or of a provider of this domain?
        """
        hosts = [identity.get("idp", "")]
        for user in (identity.get("user", ""), identity.get("subject", "")):
            hosts += [user.rpartition("@")[2], split(user)[1]]
        return any(
            self.homes.domain_of_host(host.strip().casefold()) == self.homes.own for host in hosts if host
        )

    def _receive(
        self,
        source: str,
        envelope: Envelope,
        payload: bytes,
        path: tuple[tuple[str, int], ...],
        done: Callable[[], None],
    ) -> None:
        try:
            if envelope.kind == "message":
                self._incoming.receive(source, envelope, payload, path, done)
                return
            self.rates.count(domain_of(source), len(payload))
            if envelope.kind == "subscription":
                self.subscription(source, envelope, payload, done)
                return
            if envelope.kind == "receipt":
                self._receipt(source, envelope, payload)
            else:
                self.counts.note(source, "malformed")
        except ValueError:  # also msgspec.DecodeError
            self.counts.note(source, "malformed")
        except Exception:
            self.counts.note(source, "failed")
            self._failures.note("what {node} sent could not be taken", Failure(), node=source)
        done()

    def ended(self, destination: str, envelope: Envelope, payload: bytes, outcome: Outcome) -> None:
        """
        Tells the sender of a message from before a restart what became of it.
        """
        if envelope.kind in ("message", ASKED):
            with self._node.ingress.together:
                self.outgoing.ended(destination, envelope, payload, outcome)

    def restarted(self, source: str) -> None:
        self.outgoing.awaited.restarted(source)
        self.upstream.restarted(source)

    def _receipt(self, source: str, envelope: Envelope, payload: bytes) -> None:
        receipt = _receipt.decode(payload)
        if envelope.code not in DELIVERED and not 400 <= envelope.code <= 599:
            raise ValueError(f"{envelope.code} is no code of a final receipt")
        envelope.text, envelope.reason = said(envelope.text, envelope.reason)
        if self.homes.home(receipt.to) != domain_of(source):
            self.counts.note(source, "peer")
            return
        if not self.outgoing.passed_on(receipt, envelope) and not self.receipts.receive(envelope, receipt):
            self.counts.note(source, "unasked")

    def subscription(self, source: str, envelope: Envelope, payload: bytes, done: Callable[[], None]) -> None:
        """
        Takes an entry about subscriptions. Raises ValueError if it is none that this node may send.
        """
        entry = decode(payload)
        is_member = domain_of(source) == self.homes.own
        if isinstance(entry, Answer):
            self.upstream.answer(source, entry)
        elif isinstance(entry, Revoke):
            self.upstream.revoke(source, entry)
        elif isinstance(entry, Permit | Missed) and is_member:
            if isinstance(entry, Permit):
                self.upstream.permit(source, entry)
            else:
                self.upstream.missed(source, entry)
        elif isinstance(entry, Ask | Release | BeginDomain | EndDomain) and is_member:
            self.member_subscribers.receive(source, entry, envelope.identity)
        elif isinstance(entry, Permit | Missed | BeginDomain | EndDomain) or is_member:
            raise ValueError(f"{source} may not send {type(entry).__name__}")
        else:
            self.grants.receive(source, entry, envelope.identity, done)
            return
        done()

    # -- ForeignDomains ------------------------------------------------------------------

    def home(self, address: str) -> str:
        return self.homes.home(address)

    def decides(self, address: str, session: Session, message: Message | None = None) -> bool:
        arrival = message.origin if message is not None else None
        is_redirected = False
        if isinstance(arrival, NodeConnection):
            if arrival.is_from_home:
                return False  # it has decided
            is_redirected = isinstance(arrival, Arrival) and not arrival.is_publication
        return self.homes.decides(address, session, is_redirected)

    def same_here(self, address: str) -> str:
        """
        Subscribing at the node of another domain is the same as subscribing at this one.
        """
        if address.startswith(_MANAGER) and address.endswith("/sm"):
            home = self.homes.home(address)
            if address == f"{_MANAGER}{home}/sm":
                return f"{_MANAGER}{self._node.config.domain}/sm"
        return ""

    def is_held_elsewhere(self, address: str, session: Session) -> bool:
        return self.homes.is_held_elsewhere(address, session)

    def permitted(
        self, message: Message, found: tuple[Session, ...], session: Session
    ) -> tuple[Session, ...]:
        """
        For what another domain publishes, the subscribers that it has permitted, without the sender itself.
        If it has given the address to a session here, this node decides: all that are bound to it.
        """
        to, origin = message.to, message.origin
        is_from_home = getattr(origin, "is_from_home", False)
        if not isinstance(to, str) or not (is_from_home or self.homes.home(to) == domain_of(session.runtime)):
            return found
        is_held = any(each.bindings.get(to, 0) & ALLOCATED for each in found)
        permitted = found if is_held else self.upstream.permitted(to, found)
        sender = self.origins.sender(origin.id) if isinstance(origin, Arrival) else 0
        if sender:
            permitted = tuple(each for each in permitted if each.sid != sender)
        return permitted

    def permitted_members(self, message: Message, nodes: tuple[str, ...]) -> tuple[str, ...]:
        if not getattr(message.origin, "is_publication", False) or not isinstance(message.to, str):
            return nodes
        if not self.homes.by_member(self.homes.home(message.to)):
            return nodes  # all members ask by this node, and know who is permitted there
        members = self.upstream.members(message.to)  # the rest gets it from another gateway
        return tuple(node for node in nodes if node in members)

    def adopt(self, session: Session) -> None:
        self._node.slices.work(self.upstream.adopt(session))

    def send(self, message: Message, session: Session) -> None:
        try:
            if self.members is not None:
                domain = self.homes.home(str(message.to))
                if not self.homes.is_reached(domain):
                    self.members.send_out(message, session, domain)
                    return
            self.outgoing.send(message, session)
        except Rejected as why:
            why.has_reason_in_reply = True
            raise

    def together(self) -> AbstractContextManager[None]:
        return self.outgoing.together()

    def subscribe(self, message: Message, addresses: list[str], session: Session) -> Deferred[None] | None:
        return self.upstream.subscribe(message, addresses, session)

    def unbound(self, address: str, session: Session) -> None:
        if not session.is_node:
            self.upstream.unbound(address, session)
            self.allocations.unbound(address, session)

    def _routes_lost(self, nodes: Set[str]) -> None:
        self._node.slices.work(self._tell_that_they_wait(nodes))

    def _tell_that_they_wait(self, nodes: Set[str]) -> Iterator[None]:
        steps, together = self.receipts.routes_lost(nodes), self._node.ingress.together
        is_over = False
        while not is_over:
            with together:
                is_over = next(steps, _OVER) is _OVER
            yield

    def _asks_for_signatures(self, gateway: str) -> bool:
        """
        Does the gateway redirect, or another node of its domain, which may take its place?
        """
        network = self._network
        nodes = {gateway, *network.nodes_of(domain_of(gateway))}
        return any((keys := network.keys(node)) is not None and REDIRECTS in keys.features for node in nodes)

    # -- to streams ----------------------------------------------------------------------

    def _carry(self, node: str, data: bytes) -> None:
        if self.members is not None and domain_of(node) == self.homes.own:
            self.members.carry(node, data)
        else:
            self._deliveries.carry(node, data)

    def _send_own(self, message: Message, lost: Callable[[], None]) -> bool:
        """
        Sends a message of the node itself; `lost` is called if the other domain has not got it. False if it
        cannot be sent now.
        """

        def done(envelope: Envelope, outcome: Outcome) -> None:
            if outcome.reason != ACKNOWLEDGED:
                self.counts.note(node, outcome.reason)
                lost()

        domain = self.homes.home(str(message.to))
        node = self.gateways.choose(domain)
        if not node:
            return not domain  # after a restart, a domain may be known before any node of it
        envelope = envelope_of(message, self._ids.next(), self.options)
        try:
            # Addresses are given back while the domain is drained, too.
            self._streams.send(node, envelope, message.data, done, if_replaced="move", is_answer=True)
        except NoRoom:
            return False
        except Rejected as why:
            self.counts.note(node, why.reason)
        return True

    def _answer(self, node: str, entry: Answer | Revoke | Permit | Missed) -> None:
        try:
            self._streams.send(node, self._envelope(ANSWER_PRIORITY), msgspec.msgpack.encode(entry))
        except NoRoom:
            self.counts.note(node, "overflow")  # the other node asks again

    def _ask(self, node: str, entry: AnyEntry, identity: dict[str, str], lost: Callable[[], None]) -> None:
        def done(envelope: Envelope, outcome: Outcome) -> None:
            if outcome.reason != ACKNOWLEDGED:
                lost()

        envelope = self._envelope(SUBSCRIPTION_PRIORITY)
        envelope.identity = identity
        self._streams.send(node, envelope, msgspec.msgpack.encode(entry), done, if_replaced="end")

    def _envelope(self, priority: int) -> Envelope:
        millis = int(1000 * self.options.max_wait_seconds)
        return Envelope("subscription", self._ids.next(), millis, priority)
