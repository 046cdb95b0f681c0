"""
Egress policy: the policies decide about each recipient before a message is delivered to it.
"""

from collections.abc import Iterator
from copy import copy

from twisted.internet.defer import Deferred

from msgnode.bus.delivery import Delivery
from msgnode.bus.fanout import DECISION_COST, Batch, Fanout, PlannedDelivery
from msgnode.bus.receipts import Receipts
from msgnode.policy.enforcement.points import OUT, Policy
from msgnode.protocol.errors import Blocked
from msgnode.protocol.message import Message
from msgnode.sessions.counters import Counters
from msgnode.sessions.session import Session


class Egress:
    """
    The delivery of messages to the recipients that the policies permit.
    """

    def __init__(self, delivery: Delivery, fanout: Fanout, receipts: Receipts, counts: Counters) -> None:
        self._delivery = delivery
        self._fanout = fanout
        self._receipts = receipts
        self._counts = counts

    def deliver(
        self, policy: Policy, message: Message, session: Session | None, recipients: tuple[Session, ...]
    ) -> Deferred[None] | None:
        """
        Delivers now, or in slices to very many recipients; raises Blocked if the policies permit none.
        """
        if self._fanout.gathering is None:
            if len(recipients) == 1:
                policy.check(OUT, message, recipients[0])
                self._delivery.deliver(message, session, recipients)
                return None
            if len(recipients) <= self._fanout.decided_at_once:
                self._deliver_to_each(policy, message, session, recipients)
                return None
        return self._deliver_in_slices(policy, message, session, recipients)

    def _deliver_to_each(
        self, policy: Policy, message: Message, session: Session | None, recipients: tuple[Session, ...]
    ) -> None:
        delivered = waiting = 0
        refusal: Blocked | None = None
        for recipient in recipients:
            mine = _copy_for_one(message)
            try:
                policy.check(OUT, mine, recipient)
            except Blocked as why:
                refusal = why
                continue
            self._delivery.deliver(mine, session, recipient.as_tuple)
            delivered, waiting = delivered + mine.recipients, waiting + mine.waiting
        if refusal is not None and not delivered and not waiting:
            raise refusal
        self._fanout.spend(message.origin, DECISION_COST * len(recipients))
        self._report(message, session, delivered, waiting)

    def _deliver_in_slices(
        self, policy: Policy, message: Message, session: Session | None, recipients: tuple[Session, ...]
    ) -> Deferred[None]:
        """
        Decides about all recipients, in slices, before the first one gets the message.
        """
        fanout = self._fanout
        gathering = fanout.gathering
        batch = gathering or Batch(message.origin)
        decisions = _Decisions(policy, message, recipients)

        def plan() -> None:
            self._counts.echoes += decisions.plan(batch, session)

        def report(done: None) -> None:
            self._report(message, session, *decisions.reached())

        reply = fanout.decide(batch, decisions.decide(fanout.decided_at_once), plan).addCallback(report)
        if gathering is None:
            fanout.finish(batch)
        return reply

    def _report(self, message: Message, session: Session | None, delivered: int, waiting: int) -> None:
        """
        Notes the outcome in the message, and sends the receipt for all its recipients.
        """
        message.recipients, message.waiting = delivered, waiting
        message.outcome = "delivered" if delivered else "waiting" if waiting else "dropped"
        if session is not None:
            self._receipts.give(message, 202, session, delivered + waiting)


class _Decisions:
    """
    The decisions about one message to many recipients: which get it unchanged, and which get it changed.
    """

    def __init__(self, policy: Policy, message: Message, recipients: tuple[Session, ...]) -> None:
        self._policy = policy
        self._message = message
        self._data = message.data
        self._recipients = recipients
        self._unchanged: list[Session] = []
        self._changed: list[tuple[Message, Session]] = []
        self._refusal: Blocked | None = None
        self._planned: list[Message] = []

    def decide(self, slice_size: int) -> Iterator[None]:
        for number, recipient in enumerate(self._recipients, 1):
            mine = _copy_for_one(self._message)
            try:
                self._policy.check(OUT, mine, recipient)
            except Blocked as why:
                self._refusal = why
            else:
                if mine.data is self._data:
                    self._unchanged.append(recipient)
                else:
                    self._changed.append((mine, recipient))
            if number % slice_size == 0:
                yield

    def plan(self, batch: Batch, session: Session | None) -> int:
        """
        Adds the permitted deliveries to the batch; returns how often the sender itself was left out.
        """
        if self._refusal is not None and not self._unchanged and not self._changed:
            raise self._refusal
        plans: list[PlannedDelivery] = [(mine, recipient.as_tuple) for mine, recipient in self._changed]
        if self._unchanged:
            plans.append((copy(self._message), tuple(self._unchanged)))
        self._planned = [one for one, _ in plans]
        return sum(batch.add(one, session, recipients) for one, recipients in plans)

    def reached(self) -> tuple[int, int]:
        """
        The number of recipients that got the message, and the number for which it is queued.
        """
        return sum(one.recipients for one in self._planned), sum(one.waiting for one in self._planned)


def _copy_for_one(message: Message) -> Message:
    """
    A copy for one recipient: a policy's change applies to it only, and the receipt is sent for all.
    """
    mine = copy(message)
    mine.receipt = False
    return mine
