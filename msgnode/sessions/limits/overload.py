"""
When the disk takes nothing, or memory is short: what every session does about it.

The journal sees it first.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from heapq import nlargest
from typing import Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from msgnode.sessions.counters import Counters
from msgnode.sessions.journal import DeliveryJournal
from msgnode.sessions.session import Connection, Session

log = Logger()

ROOMY = 0.9  # of the memory allowed is left in use after some was shed
SPARED = 0.99  # of the spool, likewise
LARGEST = 32  # queues that give way at a time,
MAX_SHED = 4096  # and messages
LARGEST_IN_MEMORY = 1024  # the same for memory, which fills faster: what one turn can bring
MAX_SHED_FROM_MEMORY = 16_384
MAX_WOKEN = (
    500  # messages that leave in one turn once the disk takes something again, unless one queue has more
)
MAX_PAGED = 65_536  # messages and queues that are looked at in one turn, whether they are in memory


class SessionSet(Protocol):
    """
    All sessions: sessions.Sessions.
    """

    counts: Counters
    journal: DeliveryJournal

    def __iter__(self) -> Iterator[Session]: ...
    def leave(self, connection: Connection) -> None: ...


class Overload:
    """
    The behaviour of all sessions when disk or memory is short; the journal calls it.
    """

    def __init__(self, sessions: SessionSet, clock: IReactorTime) -> None:
        self.together: AbstractContextManager[None] = nullcontext()  # what leaves in a turn leaves as one
        self._all = sessions
        self._clock = clock
        self._asleep: deque[Session] = deque()  # go on in later turns, once the disk takes something again
        self._waking = False
        self._to_page: list[Session] = []  # of whom more may be in memory than has to be

    def hold(self, leaving: set[int]) -> None:
        """
        The disk takes nothing: what has to be on disk before does not leave; what was about to is stopped.
        """
        self._asleep.clear()
        for session in list(self._all):
            if session.outbox is not None:
                session.pause()
                connection = session.connection
                if session.sid in leaving and connection is not None:
                    self._all.leave(connection)
                    connection.drop()

    def go_on(self) -> None:
        """
        The disk takes something again: what waited leaves, so many messages in a turn.

        Until its turn a session is paused as before, and what comes for it waits behind.
        """
        self._asleep = deque(session for session in self._all if session.outbox is not None)
        if self._asleep and not self._waking:
            self._waking = True
            self._clock.callLater(0, self._wake)

    def _wake(self) -> None:
        self._waking = False
        woken = 0
        with self.together:
            while self._asleep:
                session = self._asleep.popleft()
                if session.outbox is None:
                    continue
                before, woken = woken, woken + session.waiting + len(session.outbox.sent)
                if before and woken > MAX_WOKEN:
                    self._asleep.appendleft(session)
                    break
                self._go_on(session)
        if self._asleep and not self._waking:
            self._waking = True
            self._clock.callLater(0, self._wake)

    @staticmethod
    def _go_on(session: Session) -> None:
        if session.outbox is not None and session.outbox.behind:
            session.go_on()
        else:
            session.resume()
        if session.connection is not None and session.connection.counted:
            session.connection.fetch()

    def make_room(self) -> None:
        """
        More is kept than the node has memory for: what is on disk stays there only, then the largest queues
        give way; so much of both in a turn.
        """
        journal, counts = self._all.journal, self._all.counts
        enough, shed = int(journal.most * ROOMY), counts.shed
        if self._page_some(enough) and journal.held <= journal.most + (journal.most >> 3):
            return  # the rest with what comes next
        last = shed + MAX_SHED_FROM_MEMORY
        if journal.held > enough:
            for session in nlargest(LARGEST_IN_MEMORY, self._all, key=_size):
                session.shed(lambda: journal.held <= enough or counts.shed >= last)
                if journal.held <= enough or counts.shed >= last:
                    break
        if self._all.counts.shed != shed:
            log.warn(
                "{shed} messages that waited were dropped: more than {most} bytes",
                shed=self._all.counts.shed - shed,
                most=journal.most,
            )

    def _page_some(self, enough: int) -> bool:
        """
        Keep some of what is on disk there only; is there more to do, and was it of use?
        """
        journal = self._all.journal
        if not self._to_page and journal.unpaged:
            journal.unpaged = False
            self._to_page = list(self._all)
        before, looked = journal.held, 0
        while self._to_page and journal.held > enough:
            if looked > MAX_PAGED:
                return journal.held < before
            owed = self._to_page.pop().owed()
            looked += 1 + len(owed)
            for kept in owed:
                journal.page_out(kept)
        return journal.held <= enough

    def make_room_on_disk(self) -> None:
        """
        More is owed than the spool may have: the largest queues give way first, so many messages in a turn.
        """
        journal, counts = self._all.journal, self._all.counts
        shed, most = counts.shed, journal.most_on_disk
        enough = int(most * SPARED)
        last = shed + MAX_SHED
        for session in nlargest(LARGEST, self._all, key=_waiting):
            session.shed_waiting(lambda: journal.message_log.live <= enough or counts.shed >= last)
            if journal.message_log.live <= enough:
                break
        if counts.shed != shed:
            log.warn(
                "{shed} messages that waited were dropped: more than {most} bytes in the spool",
                shed=counts.shed - shed,
                most=most,
            )


def _waiting(session: Session) -> int:
    return session.waiting_bytes


def _size(session: Session) -> int:
    sent = session.outbox.sent_bytes if session.outbox is not None else 0
    return session.waiting_bytes + sent
