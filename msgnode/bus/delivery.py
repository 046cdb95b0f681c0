"""
Delivery: a message is sent to each session bound to its address, or queued for it.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Protocol

from msgnode.bus.fanout import MANY_RECIPIENTS, Fanout
from msgnode.bus.forwarding import Forwards
from msgnode.bus.receipts import Receipts
from msgnode.policy.enforcement.points import OUT, Policy
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message
from msgnode.sessions.counters import Counters
from msgnode.sessions.session import Session
from msgnode.transport.data_plane import NO_DATA_PLANE


class DeliveryObserver(Protocol):
    """
    An observer of deliveries, for operators' traces.
    """

    def delivering(self, message: Message, recipients: tuple[Session, ...]) -> None:
        """
        The message is about to be sent to those of the recipients that are ready, and queued for the others.
        """

    def observes(self, message: Message, session: Session, recipients: tuple[Session, ...]) -> bool:
        """
        Must Python route every such message, because this observer wants to know of it?
        """

    def sent_late(self, data: bytes, session: Session) -> None:
        """
        A message that was queued for the session is sent.
        """


class Delivery:
    """
    The delivery of messages, with its outcome noted in each message.

    `deliver` sends in the same turn. A message with a receipt goes through `_deliver_with_receipt`, one with
    very many recipients through Fanout.deliver, which sends in slices.

    `observer` is None while no trace is on.
    """

    def __init__(self, fanout: Fanout, forwards: Forwards, receipts: Receipts, counts: Counters) -> None:
        self.observer: DeliveryObserver | None = None
        self._fanout = fanout
        self._forwards = forwards
        self._receipts = receipts
        self._counts = counts

    def deliver(self, message: Message, session: Session | None, recipients: tuple[Session, ...]) -> None:
        """
        Delivers to all of these; `session` is the sender's, None for a message of the node's own.
        """
        if message.receipt and session is not None:
            self._deliver_with_receipt(message, session, recipients)
            return
        if self.observer is not None:
            self.observer.delivering(message, recipients)
        if len(recipients) > self._fanout.at_once:
            self._fanout.deliver(message, session, recipients)
            return
        if message.forward:
            self._forwards.delivered(message, recipients, session)
        data = message.data
        size = len(data)
        before = self._fanout.bytes_in_memory if len(recipients) > MANY_RECIPIENTS else 0
        delivered = waiting = 0
        for recipient in recipients:
            ready = recipient.ready
            if recipient is session and message.has_via:
                self._counts.echoes += 1  # the sender's own stub would drop it
            elif ready is not None:
                ready.send(data)
                delivered += 1
                recipient.out_messages += 1
                recipient.out_bytes += size
            else:
                waiting += recipient.enqueue(message, self._asker(message, session, recipients))
        counts = self._counts
        counts.sent += delivered
        counts.sent_bytes += delivered * size
        message.recipients, message.waiting = delivered, waiting
        message.outcome = "delivered" if delivered else "waiting" if waiting else "dropped"
        if len(recipients) > MANY_RECIPIENTS:
            self._fanout.sent(message, len(recipients) - delivered, before)

    def _asker(self, message: Message, session: Session | None, recipients: tuple[Session, ...]) -> int:
        """
        The sid of the session that gets an error if the message is never delivered; 0: none gets one.
        """
        if session is None or len(recipients) > 1 or not self._receipts.answered(message, session):
            return 0
        return session.sid

    def _deliver_with_receipt(
        self, message: Message, session: Session, recipients: tuple[Session, ...]
    ) -> None:
        """
        Delivers the message, and sends the sender the receipt that is known now.
        """
        if len(recipients) > 1:  # one receipt for all of them
            message.receipt = False
            self.deliver(message, session, recipients)
            message.receipt = True
            self._receipts.give(message, 202, session, message.recipients + message.waiting)
            return
        if self.observer is not None:
            self.observer.delivering(message, recipients)
        recipient = recipients[0]
        if message.forward:
            self._forwards.delivered(message, recipients, session)
        if recipient is session and message.has_via:
            self._counts.echoes += 1
            message.outcome = "dropped"
            self._receipts.give(message, 404, session, 0)
        elif recipient.deliver(message, session.sid):
            message.outcome, message.recipients = "delivered", 1
            if recipient.mailbox.outbox is None:
                self._receipts.give(message, 202, session)
        elif message.code == 507:
            message.outcome = "dropped"
        else:
            message.outcome, message.waiting = "waiting", 1


class ExpectedResponses:
    """
    The responses that connectors expect outside of all sessions, for example REST's requests.

    `waiting` maps the address and the id of a request to the session that it was sent for, and to the
    function that takes the response.
    """

    def __init__(self) -> None:
        self.data_plane = NO_DATA_PLANE
        self.waiting: dict[tuple[str, int | str], tuple[Session, Callable[[Message], None]]] = {}
        self._senders: Counter[str] = Counter()

    def expect(
        self, request: Message, session: Session, take: Callable[[Message], None]
    ) -> Callable[[], object]:
        """
        Passes the response to this request to `take`, until the returned function is called.

        Raises Rejected (409) if the response is already expected.
        """
        key = request.from_, request.id
        if key in self.waiting:
            raise Rejected(f"{request.from_} already waits for a response to {request.id!r}"[:300], 409)
        self.waiting[key] = session, take
        self._senders[request.from_] += 1
        self.data_plane.expect_response(*key)
        return partial(self._forget, key)

    def _forget(self, key: tuple[str, int | str]) -> None:
        if self.waiting.pop(key, None) is not None:
            self.data_plane.forget_response(*key)
            self._senders[key[0]] -= 1
            if not self._senders[key[0]]:
                del self._senders[key[0]]

    def is_sender(self, address: str) -> bool:
        """
        Is a response to a request from this address expected?
        """
        return address in self._senders

    def awaits(self, request: Message) -> bool:
        """
        Is the response to this request, which has one recipient, expected?
        """
        return isinstance(request.to, str) and (request.from_, request.id) in self.waiting

    def deliver(self, message: Message, policy: Policy | None) -> bool:
        """
        Delivers the message if it is an expected response; False if it is not.
        """
        to = message.to
        if not isinstance(to, str) or message.type.lower() != "response":
            return False
        expected = self.waiting.get((to, message.id))
        if expected is None:
            return False
        session, take = expected
        if policy is not None and policy.outward:
            policy.check(OUT, message, session)
        message.outcome, message.recipients = "delivered", 1
        take(message)
        return True
