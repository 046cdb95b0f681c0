"""
The exchange with the other members: what the bus sends to them, and what they send to sessions here.

The member where a client is routes its message: policies at `in` are asked there, and each member that holds
the address gets one copy. A member that gets one delivers it to sessions of its own only, after the policies
at `out`, so that no message goes in circles.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import time_ns
from typing import Any, Protocol

import msgspec
from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.bus.receipts import RECEIPT, is_awaited, wants_answer
from msgnode.bus.router import Router
from msgnode.cluster.directory_view import MemberDirectory
from msgnode.cluster.exchange.arrival import MemberArrival
from msgnode.links.exchange.counts import ExchangeCounts
from msgnode.links.exchange.envelopes import MessageIds, envelope_of, identity_of
from msgnode.links.exchange.exchange import Exchange
from msgnode.links.exchange.gathering import Gathering
from msgnode.links.exchange.node_parts import ExchangeOptions, NodeParts
from msgnode.links.exchange.receipts import RemoteReceipt, to_remote
from msgnode.links.exchange.status import DELIVERED
from msgnode.links.overlay.network import Network
from msgnode.links.stream.streams import Envelope, NoRoom, Outcome, Streams
from msgnode.policy.decision.addresses import split
from msgnode.protocol.address import is_multicast
from msgnode.protocol.errors import FAILED, Malformed, NoRoute, Rejected, failure_code
from msgnode.protocol.message import Message, compose, decode, recall
from msgnode.sessions.routing import RUNTIMES
from msgnode.sessions.session import Session
from msgnode.sessions.session_table import TrafficRecorder
from msgnode.structures.bounded_cache import BoundedCache
from msgnode.structures.log_limits import FailureLog, StrangerLog, printable
from msgnode.transport.cork import corked

ASKED = "asked"  # the kind of a message whose sender wants a receipt of the member that delivers it
UNKNOWN_SECONDS = 1.0  # for which members are not asked again for an address that none of them holds
MAX_UNKNOWN = 10_000
GATEWAY_SECONDS = 30.0  # for which a member is known to reach another domain

log = Logger()
_receipt = msgspec.msgpack.Decoder(RemoteReceipt)


class MemberParts(NodeParts, Protocol):
    """
    The node, as the exchange between members sees it.
    """

    def join_cluster(self, members: "MemberExchange") -> None: ...


class MemberExchange:
    """
    The exchange with the other members (ClusterMembers of the bus, Members of the exchange between domains).
    """

    def __init__(
        self,
        node: MemberParts,
        streams: Streams,
        network: Network,
        exchange: Exchange,
        directory: MemberDirectory,
        ids: MessageIds,
        traffic_recorder: TrafficRecorder,
        seconds: Callable[[], float],
    ) -> None:
        self.changes = 0
        self._node = node
        self._streams = streams
        self._exchange = exchange
        self._directory = directory
        self._network = network
        self._gatherings: dict[str, Gathering] = {}  # by member
        self._ids = ids
        self._traffic_recorder = traffic_recorder
        self._seconds = seconds
        self._unknown: BoundedCache[str, float] = BoundedCache(MAX_UNKNOWN)
        self._gateways: BoundedCache[str, tuple[str, float]] = BoundedCache(MAX_UNKNOWN)  # by host
        self.federates = False  # does this node reach other domains by itself?
        self._own = exchange.homes.own
        self._last = ""  # the address that was changed last
        self._failures = FailureLog(log)
        self._strangers = StrangerLog(log, seconds)
        exchange.members = self

    @property
    def _router(self) -> Router:
        return self._node.router

    @property
    def _counts(self) -> ExchangeCounts:
        return self._exchange.counts

    @property
    def _options(self) -> ExchangeOptions:
        return self._exchange.options

    def start(self, federates: bool = False) -> None:
        """
        Connects to the bus, when the sessions of before a restart are there. A node that `federates` sends
        what members have for other domains.
        """
        self.federates = federates
        self._node.join_cluster(self)

    # -- ClusterMembers: what this node holds ----------------------------------------------

    def bound(self, address: str) -> None:
        if not address.startswith("mn:"):
            self._changed(address)
            self._directory.bound(address)

    def unbound(self, address: str) -> None:
        if not address.startswith("mn:"):
            self._changed(address)
            self._directory.unbound(address)

    def opened(self, runtime: str) -> None:
        if not runtime.startswith("mn:"):
            session = self._node.routes.runtime(runtime)
            self._changed(runtime)
            self._directory.session_bound(runtime, _token_hash(session), 0)

    def closed(self, runtime: str) -> None:
        if not runtime.startswith("mn:"):
            self._changed(runtime)
            self._directory.session_unbound(runtime)

    def _changed(self, address: str) -> None:
        self.changes += 1
        self._last = address

    def settled(self) -> Deferred[None]:
        return self._directory.settled(self._last)

    # -- ClusterMembers: what others hold ----------------------------------------------------

    def holders(self, address: str, is_held_here: bool) -> tuple[str, ...]:
        if is_held_here:
            # A session here that has it as part of its runtimeURL is the only one.
            return () if address.startswith(RUNTIMES) else self._directory.shared(address)
        if address.startswith("mn:"):
            return ()
        found = self._directory.holders(address)
        if found or not self._gateways or self.is_own(address):
            return found
        return self._gateway(split(address)[1])

    def _gateway(self, host: str) -> tuple[str, ...]:
        """
        The member that reaches the domain of this host, as it has said lately.
        """
        gateway, until = self._gateways.get(host) or ("", 0.0)
        return (gateway,) if gateway and self._seconds() < until else ()

    def is_own(self, address: str) -> bool:
        """
        Is it an address of this domain?
        """
        host = split(address)[1]
        return host == self._own or host.endswith(f".{self._own}")

    def is_held(self, address: str) -> bool:
        """
        Does this node hold the address, or reach its domain? What it answers when a member asks.
        """
        if self._node.routes.resolve(address):
            return True
        return self.federates and self._exchange.homes.home(address) not in ("", self._own)

    def ask(self, address: str) -> Deferred[tuple[str, ...]] | None:
        if is_multicast(address) and self.is_own(address):
            return None  # every subscriber's member has told it
        now = self._seconds()
        unknown_since = self._unknown.get(address)
        if unknown_since is not None and now < unknown_since + UNKNOWN_SECONDS:
            return None
        return self._directory.ask(address).addCallback(self._asked, address)

    def subscribe(self, message: Message, addresses: list[str], session: Session) -> Deferred[None] | None:
        """
        Refuses subscriptions in domains that another member reaches, for nothing published there would come.
        """
        by_host = {split(address)[1]: address for address in addresses if not self.is_own(address)}
        if not by_host:
            return None
        asked = [self._directory.ask(address) for address in by_host.values()]
        return gatherResults(asked).addCallback(_check_unreached)

    def _asked(self, nodes: tuple[str, ...], address: str) -> tuple[str, ...]:
        if not nodes:
            self._unknown.put(address, self._seconds())
        elif not self.is_own(address):
            nodes = nodes[:1]
            self._gateways.put(split(address)[1], (nodes[0], self._seconds() + GATEWAY_SECONDS))
        return nodes

    # -- ClusterMembers: sending -------------------------------------------------------------

    def send(self, message: Message, session: Session, node: str) -> None:
        gathering = self._gathering(node)
        if not gathering.join(message, session) and not gathering.begin(message, session, node, None):
            self.send_alone(message, session, node)

    def _gathering(self, node: str) -> Gathering:
        """
        The short messages to a member that leave together at the end of this turn.
        """
        found = self._gatherings.get(node)
        if found is None:
            found = self._gatherings[node] = Gathering(
                self,
                self._streams,
                self._network,
                self._router,
                self._own,
                _may_gather,
                self._ids,
                self._exchange.is_collecting,
                self._node.sessions.journal.before_write,
                self._options,
                self._counts,
            )
        return found

    # -- Sending, of what is gathered -----------------------------------------------------------

    def send_alone(self, message: Message, session: Session, node: str) -> None:
        """
        Sends one message, after those that are gathered. Raises Rejected.
        """
        self._gathering(node).leave()
        envelope = self._envelope(message, session)
        if message.receipt:
            envelope.kind = ASKED
        self._exchange.outgoing.send_to(message, session, node, envelope, message.data, "wait")

    def refused(self, message: Message, sid: int, why: Rejected) -> None:
        self._exchange.outgoing.refused(message, sid, why)

    def lost(self, message: Message, sid: int, outcome: Outcome) -> None:
        self._exchange.outgoing.lost(message, sid, outcome)

    # -- copies ------------------------------------------------------------------------------

    def send_copies(self, message: Message, session: Session, nodes: Iterable[str]) -> int:
        reached = 0
        for node in nodes:
            gathering = self._gathering(node)
            try:
                if not gathering.join(message, session) and not gathering.begin(message, session, node, None):
                    self._send_copy(message, session, node)
            except Rejected as why:  # NoRoom
                self._counts.note(node, why.reason)
            else:
                reached += 1
        message.outcome, message.recipients = "", 0  # which the router adds up
        return reached

    def _send_copy(self, message: Message, session: Session, node: str) -> None:
        self._gathering(node).leave()
        envelope = self._envelope(message, session)
        self._streams.send(node, envelope, message.data, partial(self._lost, node), session.runtime)
        self._counts.note(node, "sent")

    def _envelope(self, message: Message, session: Session) -> Envelope:
        envelope = envelope_of(message, self._ids.next(), self._options)
        envelope.identity = identity_of(session, self._own)
        return envelope

    def _lost(self, node: str, envelope: Envelope, outcome: Outcome) -> None:
        """
        Counts a copy that did not get to its member. The sender is not notified of one of several.
        """
        if outcome.reason != "acknowledged":
            self._counts.note(node, outcome.reason)

    # -- Members of the exchange: what the bus delivers to a member's session -------------------

    def carry(self, node: str, data: bytes) -> None:
        """
        Sends a receipt or an answer of this node to the member where its asker is. Never raises.
        """
        try:
            message = recall(data)
            if message.type.lower() == "receipt" and message.from_ == RECEIPT:
                self._send_receipt(node, message)
            else:
                envelope = envelope_of(message, self._ids.next(), self._options)
                self._streams.send(node, envelope, message.data, is_answer=True)
        except Rejected as why:
            self._counts.note(node, why.reason)
        except Exception:
            self._counts.note(node, "failed")
            self._failures.note("a message for {node} could not be sent", Failure(), node=node)

    def _send_receipt(self, node: str, receipt: Message) -> None:
        """
        Sends a final receipt to the member where its asker is.
        """
        envelope, payload = to_remote(receipt, self._ids.next(), True)
        envelope.ttl_millis = int(1000 * self._options.max_wait_seconds)
        try:
            self._streams.send(node, envelope, payload)
        except NoRoom:
            self._counts.note(node, "overflow")

    # -- Members of the exchange: receiving ------------------------------------------------------

    def received(
        self,
        source: str,
        envelope: Envelope,
        payload: bytes,
        path: tuple[tuple[str, int], ...],
        done: Callable[[], None],
    ) -> None:
        later = None
        try:
            if envelope.kind in ("message", ASKED):
                later = self._receive(source, envelope, payload)
            elif envelope.kind == "receipt":
                self._receive_receipt(source, envelope, payload)
            else:
                self._drop(source, "malformed")
        except (Malformed, ValueError):  # also msgspec.DecodeError
            self._drop(source, "malformed")
        except Exception:
            self._counts.note(source, "failed")
            self._failures.note("what {node} sent could not be taken", Failure(), node=source)
        if later is None:
            done()
        else:
            later.addBoth(lambda over: done())

    def received_several(
        self,
        source: str,
        envelope: Envelope,
        payloads: Iterator[bytes],
        path: tuple[tuple[str, int], ...],
        keep: Callable[[], Callable[[], None]],
    ) -> None:
        for payload in payloads:
            try:
                later = self._receive(source, envelope, payload)
            except Malformed:
                self._drop(source, "malformed")
                continue
            if later is not None:
                later.addBoth(partial(_done, keep()))

    def _receive_receipt(self, source: str, envelope: Envelope, payload: bytes) -> None:
        receipt = _receipt.decode(payload)
        if envelope.code not in DELIVERED and not 400 <= envelope.code <= 599:
            raise ValueError(f"{envelope.code} is no code of a final receipt")
        if not self._exchange.receipts.receive(envelope, receipt):
            self._counts.note(source, "unasked")

    def _receive(self, source: str, envelope: Envelope, payload: bytes) -> Deferred[Any] | None:
        """
        Delivers one message to sessions here; a Deferred, without a failure, if it takes more than one turn.
        """
        session = self._exchange.nodes.find(source)
        if session is None:
            self._drop(source, "limit")
            return None
        message = decode(payload, MemberArrival(source, session, envelope.identity))
        message.received_at = time_ns()
        message.receipt = envelope.kind == ASKED
        message.priority = min(9, max(0, envelope.priority))
        message.log = message.log and envelope.log
        left = max(0, envelope.ttl_millis) / 1000
        message.ttl = left if message.ttl is None else min(message.ttl, left)
        if not self._exchange.outgoing.awaited.answered(message):
            self._counts.note(source, "old-answer")
            return None
        try:
            later = self._router.deliver_here(message, session)
        except Rejected as why:
            self._refuse(why, message, source)
        except Exception:
            self._fail(Failure(), message, source)
        else:
            if isinstance(later, Deferred):
                later = corked(self._node.ingress.together, later)
                later.addErrback(self._failed_later, message, source)
                return later.addCallback(lambda done: self._finished(message, session))
        self._finished(message, session)
        return None

    # -- outcomes ----------------------------------------------------------------------------

    def _finished(self, message: Message, session: Session) -> None:
        if message.outcome:
            message.handling_us = (time_ns() - message.received_at) // 1000
            self._traffic_recorder.message(message, session)
        self._counts.note(session.runtime, "received")

    def _drop(self, source: str, reason: str) -> None:
        self._counts.note(source, reason)
        self._strangers.note("a message of {node} was dropped: {reason}", node=source, reason=reason)

    def _failed_later(self, why: Failure, message: Message, source: str) -> None:
        if isinstance(why.value, Rejected):
            self._refuse(why.value, message, source)
        else:
            self._fail(why, message, source)

    def _fail(self, why: Failure, message: Message, source: str) -> None:
        self._failures.note("a message of {node} could not be delivered", why, node=source)
        self._refuse(Rejected(FAILED, failure_code(message.to), "failed"), message, source)

    def _refuse(self, why: Rejected, message: Message, source: str) -> None:
        """
        Counts a refusal, and tells the sender that waits for an answer or asked for a receipt.
        """
        message.code, message.reason = why.code, why.reason
        message.outcome = "no-route" if isinstance(why, NoRoute) else "refused"
        self._node.counts.refuse(why.code, why.reason)
        if message.receipt and not isinstance(why, NoRoute):  # which has its receipt
            body = {"code": why.code, "description": str(why), "reason": why.reason, "to": message.to}
            made = compose(message.id, "receipt", RECEIPT, message.from_, body, message.transaction)
            self._send_receipt(source, recall(made.data))
        if is_awaited(message) or wants_answer(message):
            reply = message.reply({**why.body(), "reason": printable(why.reason)})
            self.carry(source, reply.data)


def _check_unreached(found: list[tuple[str, ...]]) -> None:
    for nodes in found:
        if nodes:
            raise Rejected(f"subscribe at {nodes[0]}, which has links to that domain", 502, "no-path")


def _may_gather(message: Message, node: str) -> bool:
    return True


def _done(done: Callable[[], None], over: object) -> None:
    done()


def _token_hash(session: Session | None) -> bytes:
    """
    The part of the hash of a session's token that the directory holds.
    """
    return session.token_hash[:16].ljust(16, b"\0") if session is not None else bytes(16)
