"""
Receiving from members: messages for sessions here, which they have routed, and receipts.
"""

from collections.abc import Callable, Iterator
from functools import partial
from time import time_ns
from typing import Any

import msgspec
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.bus.receipts import RECEIPT, is_awaited, wants_answer
from msgnode.cluster.exchange.arrival import MemberArrival
from msgnode.cluster.exchange.sending import MemberSending
from msgnode.links.exchange.envelopes import ASKED, COPY, COPY_OF_PUBLICATION, IN_PLACE, PUBLICATION
from msgnode.links.exchange.exchange import Exchange
from msgnode.links.exchange.node_parts import NodeParts
from msgnode.links.exchange.receipts import RemoteReceipt
from msgnode.links.exchange.status import DELIVERED
from msgnode.links.stream.streams import Envelope
from msgnode.protocol.errors import FAILED, Malformed, NoRoute, Rejected, failure_code
from msgnode.protocol.message import Message, compose, decode, recall
from msgnode.sessions.session import Session
from msgnode.sessions.session_table import TrafficRecorder
from msgnode.structures.log_limits import FailureLog, StrangerLog, printable
from msgnode.transport.cork import corked

log = Logger()
_receipt = msgspec.msgpack.Decoder(RemoteReceipt)


class MemberReceiving:
    """
    The receiver of what members send.
    """

    def __init__(
        self,
        node: NodeParts,
        exchange: Exchange,
        sending: MemberSending,
        traffic_recorder: TrafficRecorder,
        seconds: Callable[[], float],
    ) -> None:
        self._node = node
        self._exchange = exchange
        self._sending = sending
        self._marks = sending.marks
        self._counts = exchange.counts
        self._traffic_recorder = traffic_recorder
        self._failures = FailureLog(log)
        self._strangers = StrangerLog(log, seconds)

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
                later = self._receive(source, envelope, payload, envelope.id)
            elif envelope.kind == "receipt":
                self._receive_receipt(source, envelope, payload)
            elif envelope.kind == "subscription":
                self._exchange.subscription(source, envelope, payload, done)
                return
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
        instance, first = envelope.id
        for index, payload in enumerate(payloads):
            try:
                later = self._receive(source, envelope, payload, (instance, first + index))
            except Malformed:
                self._drop(source, "malformed")
                continue
            if later is not None:
                later.addBoth(partial(_done, keep()))

    def _receive_receipt(self, source: str, envelope: Envelope, payload: bytes) -> None:
        receipt = _receipt.decode(payload)
        if envelope.code not in DELIVERED and not 400 <= envelope.code <= 599:
            raise ValueError(f"{envelope.code} is no code of a final receipt")
        cluster = self._node.router.cluster
        has_moved = cluster is not None and cluster.is_held_elsewhere(receipt.from_)
        if not has_moved:  # or it has come here from another member, perhaps since it asked here
            has_moved = any(session.is_moved for session in self._node.routes.resolve(receipt.from_))
        if not self._exchange.receipts.receive(envelope, receipt, has_moved):
            self._counts.note(source, "unasked")

    def _receive(
        self, source: str, envelope: Envelope, payload: bytes, id: tuple[bytes, int]
    ) -> Deferred[Any] | None:
        """
        Delivers one message to sessions here; a Deferred, without a failure, if it takes more than one turn.
        """
        session = self._exchange.nodes.find(source)
        if session is None:
            self._drop(source, "limit")
            return None
        arrival = MemberArrival(source, session, envelope.identity, id)
        arrival.hops = envelope.code
        arrival.is_copy = envelope.reason in (COPY, COPY_OF_PUBLICATION)
        arrival.is_from_home = envelope.reason in (PUBLICATION, COPY_OF_PUBLICATION)
        message = decode(payload, arrival)
        message.received_at = time_ns()
        message.receipt = envelope.kind == ASKED
        message.priority = min(9, max(0, envelope.priority))
        if arrival.is_copy:
            self._marks.note(id, message.priority)
        message.log = message.log and envelope.log
        left = max(0, envelope.ttl_millis) / 1000
        message.ttl = left if message.ttl is None else min(message.ttl, left)
        in_place = envelope.reason == IN_PLACE
        asker = self._node.routes.resolve(str(message.to)) if in_place else ()
        sid = asker[0].sid if asker else 0
        if not self._exchange.outgoing.awaited.answered(message, in_place, sid):
            self._counts.note(source, "old-answer")
            return None
        if message.from_ == RECEIPT and message.type == "receipt":
            self._give(message, session)
            return None
        try:
            later = self._node.router.deliver_here(message, session)
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

    def _give(self, receipt: Message, session: Session) -> None:
        """
        Gives a final receipt to a client that has moved here, or follows it further.
        """
        assert isinstance(receipt.to, str)
        recipients = self._node.routes.resolve(receipt.to)
        if recipients:
            recipients[0].deliver(receipt)
        else:
            cluster = self._node.router.cluster
            if cluster is None or not cluster.forward(receipt, session, None):
                self._counts.note(session.runtime, "no-route")

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
            self._sending.send_receipt(source, recall(made.data))
        if is_awaited(message) or wants_answer(message):
            reply = message.reply({**why.body(), "reason": printable(why.reason)})
            self._sending.carry(source, reply.data)


def _done(done: Callable[[], None], over: object) -> None:
    done()
