"""
Incoming messages: what other domains send to addresses here, and what they publish to subscribers here.
"""

from collections.abc import Callable, Iterator
from copy import copy
from time import time_ns
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.bus.receipts import RECEIPT, is_awaited, wants_answer
from msgnode.links.exchange.allocations import Allocations, make_void, own_address
from msgnode.links.exchange.counts import ExchangeCounts
from msgnode.links.exchange.deliveries import Deliveries
from msgnode.links.exchange.domains import HomeDomains
from msgnode.links.exchange.envelopes import check_identity
from msgnode.links.exchange.node_parts import NodeParts
from msgnode.links.exchange.node_sessions import Arrival, NodeSessions, peer_of
from msgnode.links.exchange.passing.origins import Origins
from msgnode.links.exchange.passing.sender_check import SenderCheck
from msgnode.links.exchange.rates import DomainRates
from msgnode.links.exchange.status import UNCONFIRMED
from msgnode.links.stream.streams import Envelope
from msgnode.links.wire.node_name import domain_of, is_name
from msgnode.policy.enforcement.points import IN
from msgnode.protocol.address import Domain
from msgnode.protocol.body_edit import set_auth_flag
from msgnode.protocol.errors import FAILED, Blocked, IllTyped, Malformed, NoRoute, Rejected, failure_code
from msgnode.protocol.message import NO_TOKEN, Message, compose, decode, recall
from msgnode.protocol.token_redaction import may_hold_token, redacted, without_secrets
from msgnode.sessions.session import Session
from msgnode.sessions.session_table import TrafficRecorder
from msgnode.structures.log_limits import FailureLog, StrangerLog, printable
from msgnode.transport.cork import corked

log = Logger()

MARKS = (True, False)  # what policies may put into `body.auth`


def _counted_with_others() -> None:
    """
    The `done` of a message that is counted with others.
    """


class Incoming:
    """
    The entry point of messages of other nodes.

    A message of a peer is refused, and counted by reason, where a client's would close its connection.
    """

    def __init__(
        self,
        node: NodeParts,
        traffic_recorder: TrafficRecorder,
        homes: HomeDomains,
        nodes: NodeSessions,
        origins: Origins,
        deliveries: Deliveries,
        allocations: Allocations,
        answered: Callable[[Message], bool],
        rates: DomainRates,
        seconds: Callable[[], float],
        counts: ExchangeCounts,
    ) -> None:
        self._node = node
        self._traffic_recorder = traffic_recorder
        self._homes = homes
        self._nodes = nodes
        self._origins = origins
        self._senders = SenderCheck(homes, nodes, origins)
        self._deliveries = deliveries
        self._allocations = allocations
        self._answered = answered
        self._rates = rates
        self._counts = counts
        self._domain = Domain(node.config.domain)
        self._failures = FailureLog(log)
        self._strangers = StrangerLog(log, seconds)

    def receive(
        self,
        source: str,
        envelope: Envelope,
        payload: bytes,
        path: tuple[tuple[str, int], ...],
        done: Callable[[], None],
    ) -> None:
        """
        Receives one message of the node; calls `done` when it is in the journal, was answered or was refused.
        """
        session = self._nodes.find(source)
        if session is None:
            self._drop(source, "limit")
            done()
            return
        arrival = self._arrival(source, session, envelope, path)
        hops = envelope.origin.hops if envelope.origin is not None else []
        arrival.is_passed_on = bool(hops) and hops[-1].home == self._homes.own
        try:
            message = self._read(payload, arrival, envelope, session)
        except Malformed as why:
            self._drop(source, why.reason)
            done()
            return
        if message.receipt:
            self._deliveries.note_path(message, path)
        later = self._take(message, arrival, source, envelope, payload)
        if later is None:
            self._finished(message, arrival, done)
        else:
            later.addBoth(lambda over: self._finished(message, arrival, done))

    def receive_several(
        self,
        source: str,
        envelope: Envelope,
        payloads: Iterator[bytes],
        path: tuple[tuple[str, int], ...],
        keep: Callable[[], Callable[[], None]],
    ) -> None:
        """
        Receives several messages of the node that are one in the journal; those that take more than one turn
        are kept. What is known of the first is known of all with the same addresses.
        """
        session = self._nodes.find(source)
        if session is None:
            self._drop(source, "limit")
            return
        arrival, known = None, None
        for payload in payloads:
            if arrival is None:
                arrival, known = self._arrival(source, session, envelope, path), None
            try:
                message = self._read(payload, arrival, envelope, session)
            except Malformed as why:
                self._drop(source, why.reason)
                continue
            if message.receipt:
                self._deliveries.note_path(message, path)
            addresses = message.from_, message.to
            later = self._take(message, arrival, source, envelope, payload, addresses == known)
            if later is None:
                known = None if message.outcome == "refused" else addresses
                self._finished(message, arrival, _counted_with_others)
                continue
            later.addBoth(self._kept_finished, message, arrival, keep())
            arrival = None  # it is not of this turn any more

    def _kept_finished(
        self, over: object, message: Message, arrival: Arrival, done: Callable[[], None]
    ) -> None:
        self._finished(message, arrival, done)

    def _arrival(
        self, source: str, session: Session, envelope: Envelope, path: tuple[tuple[str, int], ...]
    ) -> Arrival:
        far = peer_of(source, max(1, len(path)), envelope.identity)
        return Arrival(far, session, envelope.id, self._deliveries.carry_error)

    def _take(
        self,
        message: Message,
        arrival: Arrival,
        source: str,
        envelope: Envelope,
        payload: bytes,
        is_checked: bool = False,
    ) -> Deferred[Any] | None:
        """
        Routes the message, and answers a refusal; a Deferred, without a failure, if it takes more than one
        turn.
        """
        try:
            later = self._route(message, arrival, source, envelope, payload, is_checked)
        except Rejected as why:
            self._refuse(why, message, source)
        except Exception:
            self._fail(Failure(), message, source)
        else:
            return None if later is None else later.addErrback(self._failed_later, message, source)
        return None

    def _read(self, payload: bytes, arrival: Arrival, envelope: Envelope, session: Session) -> Message:
        message = decode(payload, arrival)
        if envelope.origin is not None and envelope.origin.hops:
            hop = envelope.origin.hops[-1]
            message = message.copy_to(hop.to)
            message.receipt = message.receipt and not hop.forwarded  # it was delivered before
        message.received_at = time_ns()
        if may_hold_token(message.data) or message.token is not NO_TOKEN:
            self._counts.note(session.runtime, "token")
            message = redacted(message)
        stamp = self._node.ingress.stamp_identity
        if stamp is not None:
            again = stamp(message, session)
            if again is not message.data:
                received_at, message = message.received_at, decode(again, arrival)
                message.received_at = received_at
        message.priority = min(9, max(0, envelope.priority))
        message.log = message.log and envelope.log
        left = max(0, envelope.ttl_millis) / 1000
        message.ttl = left if message.ttl is None else min(message.ttl, left)
        return message

    # -- checks ------------------------------------------------------------------------

    def _route(
        self,
        message: Message,
        arrival: Arrival,
        source: str,
        envelope: Envelope,
        payload: bytes,
        is_checked: bool,
    ) -> Deferred[Any] | None:
        """
        Routes the message, and carries the answer of this node; a Deferred if it takes more than one turn.

        `is_checked`: another one with the same addresses was checked, and came with it.
        """
        domain = domain_of(source)
        if not self._rates.acquire(domain, len(payload)):
            raise Rejected(f"{domain} sends more than this node accepts from it", 429, "rate")
        if not is_checked:
            check_identity(envelope.identity)
            self._senders.check(message, arrival, source, envelope, payload)
        if arrival.is_proven and self._origins.is_repeated(envelope, message.from_, payload, source):
            self._counts.note(source, "repeated")
            return None
        if arrival.is_passed_on and message.receipt:
            self._deliveries.note_relay(message, source)
        if arrival.is_publication:
            message.receipt = False  # its home domain gives the receipt
        elif message.to == own_address(self._domain):
            self._allocations.answered_node(message)
            return None
        elif not self._answered(message):
            self._counts.note(source, "old-answer")
            self._allocations.refuse(message)
            return None
        else:
            void = self._allocations.answered(message)
            if void is not None:
                is_late = void.reason == UNCONFIRMED.reason
                self._counts.note(source, "old-answer" if is_late else void.reason)
                make_void(message, void)
            self._check_service(message, arrival.session)
            self._remember(message, envelope, payload)
        check_record = self._node.ingress.check_record
        if message.record is not None and check_record is not None:
            check_record(message, arrival.session)
        identify = self._node.ingress.identify
        wait = identify(message) if identify is not None else None
        if wait is not None:
            wait = corked(self._node.ingress.together, wait)
            return wait.addCallback(lambda done: self._pass(message, arrival))
        return self._pass(message, arrival)

    def _pass(self, message: Message, arrival: Arrival) -> Deferred[Any] | None:
        reply = self._node.router.route(message, arrival.session)
        if isinstance(reply, Deferred):
            reply = corked(self._node.ingress.together, reply)
            return reply.addCallback(self._carry, message, arrival)
        self._carry(reply, message, arrival)
        return None

    def _carry(self, reply: Any, message: Message, arrival: Arrival) -> None:
        filtered = self._node.ingress.filter_reply
        if isinstance(reply, Message) and filtered is not None:
            reply = filtered(reply, arrival.session)
        if isinstance(reply, Message):
            self._deliveries.carry(arrival.far.node, reply.data)

    def _check_service(self, message: Message, session: Session) -> None:
        """
        Without a rule that names it, no service of this node is open to other domains, but for reading the
        registry.
        """
        to = message.to
        if not isinstance(to, str):
            if any(address.lower().startswith("domain://") for address in to):
                raise Blocked("a list with a service in it is not open to other domains")
            return
        if not to.lower().startswith("domain://"):
            return
        host = to[9:].partition("/")[0].lower()
        if host == f"registry.{self._homes.own}" and message.type.lower() == "read":
            return
        if not self._node.enforcement.names(IN, message, session, "domain://"):
            raise Blocked("this service is not open to other domains")

    def _remember(self, message: Message, envelope: Envelope, payload: bytes) -> None:
        """
        Remembers a signed message in each form in which it may be passed on. What is not proven must come
        straight from a node of the sender's domain.
        """
        origin, arrival = envelope.origin, message.origin
        if origin is None:
            return
        if not arrival.is_proven:
            is_direct = is_name(origin.node) and domain_of(origin.node) == self._homes.home(message.from_)
            if not is_direct or origin.hops:
                self._counts.note(arrival.session.runtime, "peer")
                return
        forms = {bytes(message.body)}
        if message.data is not payload:  # which may be marked or redacted
            forms.add(bytes(decode(payload).body))
        if self._node.config.policy.mark_auth and self._node.router.policy is not None:
            for permits in MARKS:
                marked = decode(message.data)
                set_auth_flag(marked, permits)
                forms.add(bytes(marked.body))
        self._origins.remember(envelope, payload, message, forms)

    # -- outcomes ------------------------------------------------------------------------

    def _finished(self, message: Message, arrival: Arrival, done: Callable[[], None]) -> None:
        if message.outcome:
            message.handling_us = (time_ns() - message.received_at) // 1000
            self._traffic_recorder.message(message, arrival.session)
        self._counts.note(arrival.session.runtime, "received")
        done()  # in the same batch of the journal as what the message caused

    def _drop(self, source: str, reason: str) -> None:
        self._counts.note(source, reason)
        self._strangers.note("a message of {node} was dropped: {reason}", node=source, reason=reason)

    def _failed_later(self, why: Failure, message: Message, source: str) -> None:
        if isinstance(why.value, Rejected):
            self._refuse(why.value, message, source)
        else:
            self._fail(why, message, source)

    def _fail(self, why: Failure, message: Message, source: str) -> None:
        self._failures.note("a message of another domain could not be routed", why)
        self._refuse(Rejected(FAILED, failure_code(message.to), "failed"), message, source)

    def _refuse(self, why: Rejected, message: Message, source: str) -> None:
        """
        Counts a refusal, and tells the sender that waits for an answer or asked for a receipt.
        """
        arrival = message.origin
        without_secrets(message)
        message.code, message.reason = why.code, why.reason
        if isinstance(why, IllTyped):
            message.slot = why.slot_name
        message.outcome = "no-route" if isinstance(why, NoRoute) else "refused"
        self._node.counts.refuse(why.code, why.reason)
        self._counts.note(source, why.reason)
        if why.reason == "peer":
            self._strangers.note(
                "{node} may not send this: {why}", node=arrival.far.node, why=printable(str(why))
            )
        for to in [message.to] if isinstance(message.to, str) else message.to:
            if arrival.is_passed_on and arrival.far.node == source:
                self._deliveries.receipt(source, _receipt(why, message, to))  # and that node tells the sender
            else:
                self._tell(why, message, to, arrival)

    def _tell(self, why: Rejected, message: Message, to: str, arrival: Arrival) -> None:
        """
        Sends the receipt and the answer for one address; for one of another domain, the node answers.
        """
        if message.receipt and not isinstance(why, NoRoute):  # which has its receipt
            self._deliveries.receipt(arrival.far.node, _receipt(why, message, to))
        about = copy(message)
        about.to = to
        if is_awaited(about) or wants_answer(about):
            is_own = self._homes.home(to) == self._homes.own and not to.startswith("mn:")
            from_ = to if is_own else self._domain.node
            arrival.send(about.reply({**why.body(), "reason": why.reason}, from_).data)


def _receipt(why: Rejected, message: Message, to: str) -> Message:
    """
    The final receipt for a message that is refused.
    """
    body = {"code": why.code, "description": str(why), "reason": why.reason, "to": to}
    return recall(compose(message.id, "receipt", RECEIPT, message.from_, body, message.transaction).data)
