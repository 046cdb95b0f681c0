"""
Fan-out: one message to more recipients than one turn of the event loop can serve.

The recipients and their bytes are fixed, and written to the journal as a whole, before the first byte is
sent. The message is sent in slices: each recipient is paused until its slice. A message that arrives for it
meanwhile is queued behind, or makes its slice come early. A session that closes, re-opens or is restored
between two slices finds the message in its queue. The sender's later messages wait until every recipient was
served.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from msgnode.config.schema import Limits
from msgnode.protocol.message import Message
from msgnode.sessions.counters import Counters
from msgnode.sessions.input_order import InputOrder, Work
from msgnode.sessions.journal import DeliveryJournal
from msgnode.sessions.queue import OVERHEAD_BYTES, Payload
from msgnode.sessions.session import Connection, Session
from msgnode.structures.time_slices import Slices
from msgnode.transport.cork import corked

log = Logger()

SLICES = 5  # slices of a message with exactly as many recipients as are served at once
DECISIONS = 10  # a decision about one recipient takes as long as sending to this many
PART_BYTES = 16 * 1024  # bytes that take as long to send as one more recipient
MAX_PARTS = 8  # parts of one recipient; a transport accepts no more at once
MANY_RECIPIENTS = 10  # sending to fewer costs little more than reading the message
JOURNAL_COST = 12  # the cost of one journal record, in recipients that do not acknowledge
DECISION_COST = 30  # the cost of one decision, in the same unit
TURN_COST = 32  # the cost of all messages in one turn, in `at_once`

PlannedDelivery = tuple[Message, Sequence[Session]]


class Batch:
    """
    The copies made of one message, and the recipients of each copy.

    `pending` counts the decisions that are not made yet.
    """

    def __init__(self, origin: Connection | None) -> None:
        self.origin = origin
        self.plan: list[PlannedDelivery] = []
        self.pending = 0
        self.work: Work | None = None
        self.committed: Deferred[None] | None = None

    def add(self, message: Message, session: Session | None, recipients: Sequence[Session]) -> int:
        """
        Plans this delivery, and notes its outcome in the message; 1 if the sender itself is left out, else 0.
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
    The sender of messages to very many recipients in slices, `slice` recipients in one turn.

    A message to at most `at_once` recipients is not sent in slices; if policies decide about each recipient,
    to at most `decided_at_once`. While a batch is gathered, every message goes into it. `together` collects
    the output of one slice, so that each connection is written to once, and that of a batch that waited for
    decisions. Many messages, each to fewer than `at_once`, are as much work: if a sender's messages cost more
    than `most` in one turn, its next ones are processed in a later turn. The cost of sending to one recipient
    is 1.
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
        self.decides = False  # do policies decide at egress?
        self.at_once = self.slice = self.decided_at_once = self.most = 0
        self._limits = limits
        self._input_order = input_order
        self._slices = slices
        self._counts = counts
        self._journal = journal
        self._is_there = is_there
        self._clock = clock
        self._cost = 0  # the cost of this turn
        self._last_batch = 0
        self._undecided: dict[int, None] = {}  # the numbers of batches that wait for decisions, oldest first
        self._waiting: deque[tuple[int, Deferred[None]]] = deque()  # for all up to that number
        self.apply()

    def hold(self, connection: Connection) -> Work:
        """
        Has the later messages of a sender wait until `release`.
        """
        return self._input_order.hold(connection)

    def release(self, work: Work, result: Any) -> Any:
        """
        Has the sender's later messages processed; returns `result`.
        """
        self._input_order.release(work)
        return result

    @property
    def most_now(self) -> int:
        """
        The number of recipients up to which a message is sent without slices.
        """
        return self.decided_at_once if self.decides else self.at_once

    def apply(self) -> None:
        """
        Applies the configuration, which may have changed.
        """
        self.at_once = self._limits.recipients_at_once
        self.slice = max(1, self.at_once // SLICES)
        self.decided_at_once = max(1, self.at_once // DECISIONS)
        self.most = self.at_once * TURN_COST

    # -- many messages -------------------------------------------------------------

    @property
    def bytes_in_memory(self) -> int:
        """
        The bytes of undelivered messages in memory, from which `sent` computes how many were journaled.
        """
        return self._journal.bytes_in_memory

    def sent(self, message: Message, waiting: int, before: int) -> None:
        """
        Charges a message to many recipients: `waiting` did not get it at once; `before` is the memory used
        before it.
        """
        size = OVERHEAD_BYTES + len(message.data)
        counted = max(0, self._journal.bytes_in_memory - before) // size
        self.spend(message.origin, message.recipients + JOURNAL_COST * max(waiting, counted))

    def spend(self, origin: Connection | None, cost: int) -> None:
        """
        Charges a message to this sender; beyond the limit of the turn, its next messages wait.
        """
        if not self._cost:
            self._clock.callLater(0, self._new_turn)
        self._cost += cost
        if self._cost > self.most and origin is not None and self._is_there(origin):
            work = self._input_order.hold(origin)
            self._slices.work(iter(())).addCallback(lambda done: self._continue(work))

    def _new_turn(self) -> None:
        self._cost = 0

    def _continue(self, work: Work) -> None:
        self._cost = 0
        self._input_order.release(work)

    # -- one message to very many ----------------------------------------------------

    def deliver(self, message: Message, session: Session | None, recipients: Sequence[Session]) -> None:
        """
        Delivers to all of these, in the batch that is being gathered or in a batch of its own.
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
        Collects all deliveries made meanwhile in one batch, which `finish` sends.
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
        Makes decisions in slices, and then plans what they permit; the batch waits for it.
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
        Writes the batch to the journal and sends it; a Deferred if decisions are pending.
        """
        if not batch.pending:
            self._commit(batch)
            return None
        batch.committed = Deferred()
        self._last_batch += 1
        self._undecided[self._last_batch] = None
        committed = corked(self.together, batch.committed).addCallback(lambda done: self._commit(batch))
        return committed.addBoth(self._forget, self._last_batch)

    def decided(self) -> Deferred[None]:
        """
        Fires when each batch that waits for decisions now is queued for its recipients.
        """
        if not self._undecided:
            return succeed(None)
        done: Deferred[None] = Deferred()
        self._waiting.append((self._last_batch, done))
        return done

    def _forget(self, result: Any, number: int) -> Any:
        del self._undecided[number]
        oldest = next(iter(self._undecided), self._last_batch + 1)
        while self._waiting and self._waiting[0][0] < oldest:
            _, done = self._waiting.popleft()
            done.callback(None)
        return result

    def _commit(self, batch: Batch) -> None:
        """
        Queues and journals the whole batch, then starts to send it.
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
                message.waiting -= not recipient.append(message)
            if not message.recipients and not message.waiting:
                message.outcome = "dropped"
        batch.plan = []
        self._counts.waited -= len(due)
        self.spend(batch.origin, JOURNAL_COST * number)
        if not due:
            self._release(batch)
            return
        self._hold(batch)
        sent = self._slices.work(self._send(due))
        sent.addErrback(partial(log.failure, "a message to many recipients could not be sent"))
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
                    cost += 1 + min(recipient.mailbox.queued_bytes // PART_BYTES, MAX_PARTS)
                    recipient.catch_up()
            yield

    def _hold(self, batch: Batch) -> None:
        if batch.work is None and batch.origin is not None and self._is_there(batch.origin):
            batch.work = self._input_order.hold(batch.origin)

    def _release(self, batch: Batch) -> None:
        if batch.work is not None:
            self._input_order.release(batch.work)
