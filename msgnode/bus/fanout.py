"""
Fan-out: one message to more than can be sent to in one turn of the event loop.

Who gets it, and what, is fixed and written down as a whole before its first
byte leaves.  It is sent in slices: each recipient is paused until its turn, and
what others send it meanwhile comes behind, or brings its turn forward.  What
closes, opens again or is killed between two slices finds it where all that
waits is.  The sender's later frames wait until everybody had a turn.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from msgnode.config.schema import Limits
from msgnode.protocol.message import Message
from msgnode.sessions.counters import Counters
from msgnode.sessions.input_order import InputOrder, Work
from msgnode.sessions.journal import DeliveryJournal
from msgnode.sessions.queue import OVERHEAD, Payload
from msgnode.sessions.session import Connection, Session
from msgnode.structures.time_slices import Slices

log = Logger()

SLICES = 5  # what is sent without slices would be so many
DECISIONS = 10  # decisions take as long as sending to so many more recipients
PART = 16 * 1024  # bytes to send that take as long as one more recipient
MAX_PARTS = 8  # of one recipient; a transport takes no more at once
MANY = 10  # recipients; what is sent to fewer costs about what its own bytes do
KEPT = 12  # to write down what is owed to one takes as long as sending to so many that do not acknowledge
DECIDED = 30  # and to decide on one
TURNS = 32  # what all messages of a turn may cost, in `at_once`

Delivery = tuple[Message, Sequence[Session]]


class Batch:
    """
    The copies that one message of a sender comes to, and who gets each.

    `pending` counts the decisions that are not made yet.
    """

    def __init__(self, origin: Connection | None) -> None:
        self.origin = origin
        self.plan: list[Delivery] = []
        self.pending = 0
        self.work: Work | None = None
        self.committed: Deferred[None] | None = None

    def add(self, message: Message, session: Session | None, recipients: Sequence[Session]) -> int:
        """
        Plan this delivery, and say in the message what comes of it; how many are its own sender.
        """
        echoes = 0
        if session in recipients and message.has_via:
            echoes, recipients = 1, [each for each in recipients if each is not session]
        ready = sum(each.ready is not None for each in recipients)
        message.recipients, message.waiting = ready, len(recipients) - ready
        message.outcome = "delivered" if ready else "waiting" if recipients else "dropped"
        self.plan.append((message, recipients))
        return echoes


class Fanout:
    """
    Sends messages with very many recipients in slices.

    `at_once` recipients are sent to without all this, and decided on `decided_at_once`; while a
    batch is gathered all goes there.  In one turn it sends to `slice` of them.

    `settle` writes down what is owed; `together` lets what is sent in one slice leave at once.
    Many messages, each to fewer than `at_once`, are as much work: a sender whose messages cost more than
    `most` in one turn goes on in a later one.  The cost of sending to one is 1.
    """

    def __init__(
        self,
        limits: Limits,
        input_order: InputOrder,
        slices: Slices,
        counts: Counters,
        journal: DeliveryJournal,
        is_there: Callable[[Any], bool],
        clock: IReactorTime,
    ) -> None:
        self.together: AbstractContextManager[Any] = nullcontext()
        self.gathering: Batch | None = None
        self.decides = False  # have policies a say in what goes out?
        self.at_once = self.slice = self.decided_at_once = self.most = 0
        self._limits = limits
        self._input_order = input_order
        self._slices = slices
        self._counts = counts
        self._journal = journal
        self._is_there = is_there
        self._clock = clock
        self._cost = 0  # of this turn
        self.apply()

    @property
    def most_now(self) -> int:
        """
        To how many a message is sent without all this.
        """
        return self.decided_at_once if self.decides else self.at_once

    def apply(self) -> None:
        """
        The configuration may have changed.
        """
        self.at_once = self._limits.recipients_at_once
        self.slice = max(1, self.at_once // SLICES)
        self.decided_at_once = max(1, self.at_once // DECISIONS)
        self.most = self.at_once * TURNS

    # -- many messages -------------------------------------------------------------

    @property
    def held(self) -> int:
        """
        The memory of what is owed: by it `sent` sees what had to be written down.
        """
        return self._journal.held

    def sent(self, message: Message, waiting: int, held: int) -> None:
        """
        This message went to many: so many must wait for it, and so much was owed before.
        """
        size = OVERHEAD + len(message.data)
        counted = max(0, self._journal.held - held) // size
        self.spend(message.origin, message.recipients + KEPT * max(waiting, counted))

    def spend(self, origin: Connection | None, cost: int) -> None:
        """
        A message of this sender cost so much; if the turn has cost enough, its next ones wait.
        """
        if not self._cost:
            self._clock.callLater(0, self._new_turn)
        self._cost += cost
        if self._cost > self.most and origin is not None and self._is_there(origin):
            work = self._input_order.hold(origin)
            self._slices.work(iter(())).addCallback(lambda done: self._go_on(work))

    def _new_turn(self) -> None:
        self._cost = 0

    def _go_on(self, work: Work) -> None:
        self._cost = 0
        self._input_order.release(work)

    # -- one message to very many ----------------------------------------------------

    def deliver(self, message: Message, session: Session | None, recipients: Sequence[Session]) -> None:
        """
        Deliver to all of these, with the batch that is gathered or alone.
        """
        batch = self.gathering
        if batch is not None:
            self._counts.echoes += batch.add(message, session, recipients)
            return
        batch = Batch(message.origin)
        self._counts.echoes += batch.add(message, session, recipients)
        self.finish(batch)

    @contextmanager
    def gather(self, origin: Connection | None) -> Iterator[Batch]:
        """
        All that is delivered meanwhile is one batch, which `finish` sends.
        """
        batch = self.gathering = Batch(origin)
        self.at_once = -1
        try:
            yield batch
        finally:
            self.gathering = None
            self.apply()

    def decide(self, batch: Batch, steps: Iterator[None], plan: Callable[[], None]) -> Deferred[None]:
        """
        Make decisions in slices, and then plan what they come to; the batch has to wait for it.
        """
        self._hold(batch)
        batch.pending += 1
        return self._slices.work(steps).addCallback(lambda done: plan()).addBoth(self._decided, batch)

    @staticmethod
    def _decided(result: Any, batch: Batch) -> Any:
        batch.pending -= 1
        if batch.committed is not None and not batch.pending:
            committed, batch.committed = batch.committed, None
            committed.callback(None)
        return result

    def finish(self, batch: Batch) -> Deferred[None] | None:
        """
        Write the batch down and send it; fires when it is written, if decisions are still to be made.
        """
        if not batch.pending:
            self._commit(batch)
            return None
        batch.committed = Deferred()
        return batch.committed.addCallback(lambda done: self._commit(batch))

    def _commit(self, batch: Batch) -> None:
        """
        Owe everything at once.
        """
        due: list[Session] = []
        number = 0
        for message, recipients in batch.plan:
            number += len(recipients)
            message.data = Payload(message.data)
            for recipient in recipients:
                if recipient.ready is not None:
                    recipient.stand_by()
                    due.append(recipient)
                message.waiting -= not recipient.owe(message)
            if not message.recipients and not message.waiting:
                message.outcome = "dropped"
        batch.plan = []
        self._counts.waited -= len(due)
        self.spend(batch.origin, KEPT * number)
        if not due:
            self._release(batch)
            return
        self._hold(batch)
        sent = self._slices.work(self._send(due))
        sent.addErrback(partial(log.failure, "sending to many"))
        sent.addBoth(lambda done: self._release(batch))

    def _send(self, due: list[Session]) -> Iterator[None]:
        self._journal.settle()
        at = 0
        while at < len(due):
            with self.together:
                cost = 0
                while at < len(due) and cost < self.slice:
                    recipient = due[at]
                    at += 1
                    cost += 1 + min(recipient.waiting_bytes // PART, MAX_PARTS)
                    recipient.catch_up()
            yield

    def _hold(self, batch: Batch) -> None:
        if batch.work is None and batch.origin is not None and self._is_there(batch.origin):
            batch.work = self._input_order.hold(batch.origin)

    def _release(self, batch: Batch) -> None:
        if batch.work is not None:
            self._input_order.release(batch.work)
