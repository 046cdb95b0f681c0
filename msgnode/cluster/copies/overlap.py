"""
The copies of messages that two members hold of one session, while it moves from one to the other.

Both are bound to its addresses then, so that no publication is lost, and most come to both. All copies of a
message have one id. The copy that came to the new holder by itself counts, for its order among the other
messages of its sender is right there.

The same holds while the earlier holder of a session is away, where copies wait for it at their senders.

The ids are in the spool, so that a copy comes once although one of both members is killed.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from typing import Protocol
from weakref import ref

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.cluster.copies.copy_marks import Marks
from msgnode.protocol.message import Message
from msgnode.sessions.mailbox import Mailbox
from msgnode.sessions.queue import QueuedMessage
from msgnode.storage.spool_records import MAX_COPIES as MAX_COPIES_OF_ONE

AWAITED_SECONDS = 1.0
MAX_COPIES = 500_000  # whose ids are remembered, for all sessions together
MAX_MOVED = 20_000  # ids that move on with a session

CopyId = tuple[bytes, int]
Copies = list[tuple[bytes, list[int]]]  # numbers by instance


class CopiesSince(Protocol):
    """
    The beginning of a session, by which copies are from before (session_beginnings.py).
    """

    def unheard(self) -> Iterator[str]: ...
    def is_since(self, node: str, id: CopyId) -> bool | None: ...


class CopyBudget:
    """
    The bound of the ids that are remembered for all sessions together. Beyond it, sessions that have more
    than an equal share forget their oldest ones: such a publication may come twice.
    """

    def __init__(self, most: int = MAX_COPIES) -> None:
        self.most = most
        self.remembered = 0
        self.forgotten = 0
        self._counts: dict[ref[SessionOverlap], int] = {}

    def resized(self, overlap: "SessionOverlap") -> None:
        """
        Count the ids of a session again, and keep the bound.
        """
        self._count(overlap)
        if len(overlap) > MAX_COPIES_OF_ONE:
            self._shorten(overlap, MAX_COPIES_OF_ONE)
        if self.remembered <= self.most:
            return
        share = max(1, self.most // len(self._counts))
        if len(overlap) > share:
            self._shorten(overlap, max(share, len(overlap) - (self.remembered - self.most)))
        if self.remembered <= self.most:
            return
        for each in list(self._counts):
            other = each()
            if other is not None and len(other) > share:
                self._shorten(other, share)

    def _shorten(self, overlap: "SessionOverlap", most: int) -> None:
        self.forgotten += overlap.shorten(most)
        self._count(overlap)

    def _count(self, overlap: "SessionOverlap") -> None:
        key = ref(overlap, self._forget)
        self.remembered += len(overlap) - self._counts.pop(key, 0)
        self._counts[key] = len(overlap)

    def _forget(self, key: "ref[SessionOverlap]") -> None:
        self.remembered -= self._counts.pop(key)


class SessionOverlap:
    """
    The copies of one session's messages at one member (sessions/mailbox.py, Overlap). `id_of` gives the id of
    a message's copies; `collected` is called when there is a message more. `budget` bounds the ids that are
    remembered.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        id_of: Callable[[Message], CopyId | None],
        collected: Callable[[], None],
        budget: CopyBudget,
    ) -> None:
        # Of messages with higher keys the new holder gets a copy by itself, too.
        self.awaited_above: int | None = None
        self.is_double = False  # did both members hold the session at the same time?
        self._mailbox = mailbox
        self._id_of = id_of
        self._collected = collected
        self._budget = budget
        # Copies up to these are not for it, if they come by themselves: an earlier holder has got them.
        self.marks: Marks = {}
        self.beginning: CopiesSince | None = None
        self.waits_for_member: Callable[[str], None] = lambda node: None
        # Called with a copy from before the session, and with its message, or with what is kept of that.
        self.is_from_before: Callable[[Message | QueuedMessage], None] = lambda copy: None
        self._undecided: dict[str, list[QueuedMessage]] = {}  # by member that has not heard of it yet
        self._undecided_member = ""  # the member of a copy that is being queued
        self._here: dict[CopyId, int] = {}  # the keys of their messages
        self._late: dict[CopyId, QueuedMessage] = {}  # that came by the other member
        self._first: dict[bytes, int] = {}  # by instance, of the copies that came by themselves
        self._awaited: set[CopyId] = set()  # those of them of which another copy will come
        self._coming: set[CopyId] = set()  # of those that the other member has sent, the ones that may come
        self._waiters: list[Deferred[None]] = []
        self._timer: IDelayedCall | None = None

    def __len__(self) -> int:
        return len(self._here)

    def admits(self, message: Message) -> bool:
        self._undecided_member = ""
        id = self._id_of(message)
        if id is None:
            return True
        if self.beginning is not None and not self._is_since(self.beginning, message, id):
            return False
        instance, number = id
        self._coming.discard(id)
        if number <= self.marks.get((instance, message.effective_priority), 0) and id not in self._late:
            return False
        self._first[instance] = min(number, self._first.get(instance, number))
        late = self._late.pop(id, None)
        if late is not None:
            if not self._mailbox.withdraw(late):
                self.note_early(late)  # the client has not waited for this copy
            self._awaited.discard(id)
            if not self._awaited and self._timer is not None:
                self._timer.reset(0)  # not at once: this message is being queued
        if id in self._here:
            return False
        if self._undecided_member:
            self._mailbox.begin_arrival()
            if self._undecided_member not in self._undecided:
                self._undecided[self._undecided_member] = []
                self.waits_for_member(self._undecided_member)
        return True

    def _is_since(self, beginning: CopiesSince, message: Message, id: CopyId) -> bool:
        node = getattr(message.origin, "peer", "")
        is_since = beginning.is_since(node, id)
        self._undecided_member = node if is_since is None else ""
        if is_since is False:
            self.is_from_before(message)
        return is_since is not False

    def decide(self, node: str) -> bool:
        """
        The member says which of its copies are from before the session, or they wait for that no longer.
        Returns whether some have waited, and none waits now.
        """
        undecided, beginning = self._undecided.pop(node, None), self.beginning
        if undecided is None:
            return False
        for kept in undecided:
            if kept.copy is None or beginning is None or beginning.is_since(node, kept.copy) is not False:
                continue
            if self._mailbox.take_out(kept):
                self._here.pop(kept.copy, None)
                self.is_from_before(kept)
        return not self._undecided

    @property
    def holds(self) -> bool:
        """
        Do messages wait for what a member says about its copies?
        """
        return bool(self._undecided)

    def follows(self, kept: QueuedMessage) -> bool:
        if kept.copy not in self._late:
            return False
        instance, number = kept.copy
        return number > self._first.get(instance, number)

    def note(self, kept: QueuedMessage) -> None:
        self.note_early(kept)
        if self._undecided_member:
            self._undecided[self._undecided_member].append(kept)
            self._undecided_member = ""
        self._collected()

    def restore(self, copies: Mapping[int, CopyId]) -> None:
        """
        Notes the copies of before a restart, by key.
        """
        self._here |= {id: key for key, id in copies.items()}
        self._limit()

    def delivered(self) -> Copies:
        """
        The ids of copies that are not queued any more, the newest ones: those that the client has had.
        """
        waiting = {kept.copy for kept in self._mailbox.waiting_messages()}
        # Those that came by the other member and were sent are not among those that are here by themselves.
        newest = islice(chain(reversed(self._here), reversed(self._late)), MAX_MOVED)
        had = [id for id in newest if id not in waiting]
        found: dict[bytes, list[int]] = {}
        for instance, number in reversed(had):
            found.setdefault(instance, []).append(number)
        return list(found.items())

    def adopt(self, copies: Copies) -> None:
        """
        Notes what the client has had at another node, from which its session comes.
        """
        mailbox = self._mailbox
        for instance, numbers in copies:
            keyed: list[tuple[int, int]] = []
            for number in numbers:
                if (instance, number) not in self._here:
                    mailbox.last_key += 1
                    keyed.append((mailbox.last_key, number))
                    self._here[instance, number] = mailbox.last_key
            if keyed:
                mailbox.journal.copies(mailbox.sid, instance, keyed)
        self._limit()

    def note_early(self, kept: QueuedMessage) -> None:
        """
        Notes a message by the id of its copies; it may have come by the other member.
        """
        if kept.copy is not None:
            self._here[kept.copy] = kept.key
            self._limit()

    def _limit(self) -> None:
        self._budget.resized(self)

    def shorten(self, most: int) -> int:
        """
        Forget the oldest ids beyond so many. Returns how many.
        """
        oldest = list(islice(self._here, max(0, len(self._here) - most)))
        for id in oldest:
            del self._here[id]
        return len(oldest)

    def rewrite(self) -> None:
        by_instance: dict[bytes, list[tuple[int, int]]] = {}
        for (instance, number), key in self._here.items():
            by_instance.setdefault(instance, []).append((key, number))
        for instance, copies in by_instance.items():
            self._mailbox.journal.copies(self._mailbox.sid, instance, copies)

    def is_new(self, id: CopyId) -> bool:
        """
        Is this message of the other member not here yet?
        """
        return id not in self._here and id not in self._late

    def may_come(self, id: CopyId) -> None:
        """
        Notes that a copy which the other member has sent may come here by itself.
        """
        if id not in self._here and len(self._coming) < self._budget.most:
            self._coming.add(id)

    def forget_arrived(self, may_come: Callable[[bytes], bool]) -> None:
        """
        Forgets the copies that came, or never will: those with ids of which none may come.
        """
        self.marks = {place: number for place, number in self.marks.items() if may_come(place[0])}
        coming = {instance: may_come(instance) for instance in {id[0] for id in self._coming}}
        if not all(coming.values()):
            self._coming = {id for id in self._coming if coming[id[0]]}

    @property
    def expects(self) -> bool:
        """
        May a copy come here by itself that the session has had?
        """
        return bool(self._coming or self.marks)

    def note_late(self, id: CopyId, kept: QueuedMessage, is_awaited: bool = False) -> None:
        """
        Notes a message that came by the other member, and to that after it had released the session. If it
        `is_awaited`, another copy will come, and only then the message has its place in its sender's order.
        """
        self._late[id] = kept
        if is_awaited:
            self._awaited.add(id)
        if len(self._late) > MAX_MOVED:
            self.note_early(self._late.pop(next(iter(self._late))))

    def all_came(self, clock: IReactorTime) -> Deferred[None] | None:
        """
        Fires when all awaited copies have come, or after AWAITED_SECONDS; None if none is awaited.
        """
        if not self._awaited:
            return None
        if self._timer is None:
            self._timer = clock.callLater(AWAITED_SECONDS, self._end_wait)
        self._waiters.append(Deferred())
        return self._waiters[-1]

    def _end_wait(self) -> None:
        self._awaited.clear()
        self._timer = None
        waiters, self._waiters = self._waiters, []
        for done in waiters:
            done.callback(None)
