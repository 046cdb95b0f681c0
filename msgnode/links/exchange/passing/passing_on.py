"""
Passing on: a message of another domain that a policy redirects, or a client forwards, to a third domain.

The third domain gets it as the sender's node has signed it, and answers that node directly. What the third
domain refuses unproven, and what never gets there, this node tells the sender.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from msgnode.bus.receipts import RECEIPT, is_awaited
from msgnode.links.exchange.counts import ExchangeCounts
from msgnode.links.exchange.deliveries import Deliveries
from msgnode.links.exchange.envelopes import envelope_of
from msgnode.links.exchange.node_parts import ExchangeOptions
from msgnode.links.exchange.passing.origins import MAX_HOPS, Origins, Passed
from msgnode.links.exchange.receipts import RemoteReceipt, digest_of, units_of
from msgnode.links.exchange.status import ACKNOWLEDGED, GRACE_SECONDS, UNCONFIRMED, response_body, text_of
from msgnode.links.stream.streams import Envelope, Origin, Outcome, Streams
from msgnode.links.wire.node_name import domain_of
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message, compose, recall
from msgnode.sessions.session import Session
from msgnode.structures.deadlines import Deadlines
from msgnode.structures.fair_table import FairTable

MAX_RELAYS = 10_000  # messages that were passed on, and may be refused; fewer with long names


class Relay:
    """
    The node of a sender in another domain, which learns what became of its message, and the header of the
    message, with the address that it was sent to. It learns that once.
    """

    __slots__ = ("header", "is_notified", "node")

    def __init__(self, node: str, header: Message) -> None:
        self.node = node
        self.header = header
        self.is_notified = False

    @classmethod
    def of(cls, origin: Origin, payload: bytes) -> "Relay":
        message = recall(payload)
        to = message.to if isinstance(message.to, str) else message.to[0]
        if len(origin.hops) > 1:
            to = origin.hops[-2].to
        header = Message(message.id, message.type, to, message.from_, transaction=message.transaction)
        header.receipt = message.receipt and not origin.hops[-1].forwarded  # else it was given before
        return cls(origin.node, header)


class PassingOn:
    """
    The sender of other domains' messages to third domains.
    """

    def __init__(
        self,
        node: str,
        streams: Streams,
        origins: Origins,
        deliveries: Deliveries,
        fail: Callable[[Message, Outcome], None],
        cork: Callable[[], AbstractContextManager[Any]],
        options: ExchangeOptions,
        counts: ExchangeCounts,
        seconds: Callable[[], float],
    ) -> None:
        self._seconds = seconds
        self._node = node
        self._streams = streams
        self._origins = origins
        self._deliveries = deliveries
        self._fail = fail
        self._cork = cork
        self._options = options
        self._counts = counts
        self._relays: FairTable[bytes, Relay] = FairTable(MAX_RELAYS)
        self._unconfirmed: FairTable[bytes, Relay] = FairTable(MAX_RELAYS)
        self._deadlines: Deadlines[bytes] = Deadlines()

    def find(self, message: Message, session: Session) -> Passed:
        """
        The message that goes on, as it is remembered. Rejected if the sender's node has not signed it.
        """
        passed = self._origins.passed(message) if session.is_node else self._origins.forwarded(message)
        if passed is None:
            text = "a message goes on to another domain only as the node of its sender has signed it"
            raise Rejected(text, 403, "peer")
        if len(passed.origin.hops) >= MAX_HOPS:
            raise Rejected(f"the message was redirected {MAX_HOPS} times already", 403, "peer")
        return passed

    def send(self, passed: Passed, message: Message, session: Session, domain: str, gateway: str) -> None:
        """
        Sends the message to another domain. Raises Rejected if there is no room.
        """
        envelope = envelope_of(message, passed.id, self._options)
        envelope.origin = origin = self._origins.redirect(passed, message, domain, not session.is_node)
        relay = Relay.of(origin, passed.payload)
        key = message.from_, message.id, str(message.to)
        digest = digest_of(key)
        try:
            done = partial(self._done, digest, relay)
            self._streams.send(gateway, envelope, passed.payload, done, session.runtime, "move")
        except Rejected as why:
            self._counts.note(domain, why.reason)
            raise
        share = domain_of(relay.node), relay.node, units_of(key)
        self._relays.put(digest, relay, *share)
        due = self._seconds() + envelope.ttl_millis / 1000 + GRACE_SECONDS
        evicted = self._unconfirmed.put(digest, relay, *share)
        self._deadlines.set(digest, due)
        for each, _ in evicted:
            self._deadlines.discard(each)
        self._counts.note(domain, "passed-on")
        message.receipt = False  # the other node gives it
        message.outcome, message.recipients = "delivered", 1

    def _done(self, digest: bytes, relay: Relay, envelope: Envelope, outcome: Outcome) -> None:
        self._unconfirmed.pop(digest)
        self._deadlines.discard(digest)
        if outcome.reason != ACKNOWLEDGED:
            self._relays.pop(digest)
            with self._cork():
                self._tell(relay, outcome)

    @property
    def is_due(self) -> bool:
        """
        Is there more to end now?
        """
        return self._deadlines.is_due(self._seconds())

    def end_overdue(self) -> None:
        """
        Tells the senders of messages that the third domain has not acknowledged in time. It looks at a
        bounded number.
        """
        for digest in self._deadlines.take(self._seconds()):
            relay = self._unconfirmed.pop(digest)
            if relay is not None:
                self._tell(relay, UNCONFIRMED)

    def ended(self, origin: Origin, payload: bytes, outcome: Outcome) -> None:
        """
        Tells the sender of a message that was passed on before a restart that it was lost.
        """
        self._tell(Relay.of(origin, payload), outcome)

    def receive(self, receipt: RemoteReceipt, envelope: Envelope) -> bool:
        """
        Tells the sender what the third domain says of its message; False if it was not passed on here.
        """
        relay = self._relays.pop(digest_of((receipt.from_, receipt.id, receipt.to)))
        if relay is not None:
            self._tell(relay, Outcome(envelope.code, envelope.reason, envelope.text))
        return relay is not None

    def _tell(self, relay: Relay, outcome: Outcome) -> None:
        """
        Gives the receipt, and the answer for a failure, from the address that the message was sent to.
        """
        if relay.is_notified:
            return
        relay.is_notified = True
        node, header = relay.node, relay.header
        code, reason, text = outcome.code, outcome.reason, text_of(outcome)
        if node == self._node:
            if code >= 400:
                self._fail(header, outcome)  # which counts it
            return
        if code >= 400:
            self._counts.note(node, reason or "refused")
        if header.receipt:
            body = {"code": code, "description": text, "to": header.to} | (
                {"reason": reason} if reason else {}
            )
            receipt = compose(header.id, "receipt", RECEIPT, header.from_, body, header.transaction)
            self._deliveries.receipt(node, recall(receipt.data))
        if code >= 400 and is_awaited(header):
            self._deliveries.carry(node, header.reply(response_body(code, text, reason)).data)
