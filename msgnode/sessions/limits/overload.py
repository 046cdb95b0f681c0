"""
Overload: what all sessions do when writes to disk fail, or memory or the spool is full.

The journal detects it and calls this module.
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

MEMORY_TARGET = 0.9  # fraction of the memory limit that is left in use after eviction
SPOOL_TARGET = 0.99  # the same for the spool
LARGEST = 32  # queues that are evicted from at a time,
MAX_SHED = 4096  # and messages
LARGEST_IN_MEMORY = 1024  # the same for memory, which fills faster: as many as one turn can add
MAX_SHED_FROM_MEMORY = 16_384
MAX_RESUMED = 500  # messages sent in one turn after writes succeed again, unless one queue has more
MAX_PAGED = 65_536  # messages and queues examined in one turn for paging out


class Detaching(Protocol):
    """
    All connections, as this module uses them: connections.Connections.
    """

    def detach(self, connection: Connection) -> None: ...


class SessionSet(Protocol):
    """
    All sessions, as seen by Overload (session_table.Sessions).
    """

    counts: Counters
    journal: DeliveryJournal

    @property
    def connections(self) -> Detaching: ...

    def __iter__(self) -> Iterator[Session]: ...


class Overload:
    """
    The behaviour of all sessions under overload: suspension while the disk fails, paging out, eviction.
    """

    def __init__(self, sessions: SessionSet, clock: IReactorTime) -> None:
        # Collects the output of a turn into one write.
        self.together: AbstractContextManager[None] = nullcontext()
        self._all = sessions
        self._clock = clock
        self._paused: deque[Session] = deque()  # resumed in later turns, after writes succeed again
        self._resume_scheduled = False
        self._to_page: list[Session] = []  # sessions with messages that may be paged out

    def suspend(self, leaving: set[int]) -> None:
        """
        Writes fail: pauses what must be written first, and closes the connections that were about to be sent
        unwritten messages.
        """
        self._paused.clear()
        for session in list(self._all):
            if session.mailbox.outbox is not None:
                session.pause()
                connection = session.connection
                if session.sid in leaving and connection is not None:
                    self._all.connections.detach(connection)
                    connection.abort()

    def resume_all(self) -> None:
        """
        Writes succeed again: resumes all sessions, a limited number of messages in each turn.

        A session stays paused until its turn, and its new messages are queued.
        """
        self._paused = deque(session for session in self._all if session.mailbox.outbox is not None)
        if self._paused and not self._resume_scheduled:
            self._resume_scheduled = True
            self._clock.callLater(0, self._resume_some)

    def _resume_some(self) -> None:
        self._resume_scheduled = False
        resumed = 0
        with self.together:
            while self._paused:
                session = self._paused.popleft()
                if session.mailbox.outbox is None:
                    continue
                before, resumed = resumed, resumed + session.mailbox.queued + len(session.mailbox.outbox.sent)
                if before and resumed > MAX_RESUMED:
                    self._paused.appendleft(session)
                    break
                self._resume(session)
        if self._paused and not self._resume_scheduled:
            self._resume_scheduled = True
            self._clock.callLater(0, self._resume_some)

    @staticmethod
    def _resume(session: Session) -> None:
        if session.mailbox.outbox is not None and session.mailbox.outbox.redelivery_incomplete:
            session.redeliver()
        else:
            session.flush()
        if session.connection is not None and session.connection.acks_by_request:
            session.connection.outbox_ready()

    def make_room(self) -> None:
        """
        Memory is full: pages out what is also on disk, then evicts from the largest queues; a limited number
        in each turn.
        """
        journal, counts = self._all.journal, self._all.counts
        enough, shed = int(journal.most * MEMORY_TARGET), counts.shed
        if self._page_some(enough) and journal.bytes_in_memory <= journal.most + (journal.most >> 3):
            return  # continued with the next message
        last = shed + MAX_SHED_FROM_MEMORY
        if journal.bytes_in_memory > enough:
            for session in nlargest(LARGEST_IN_MEMORY, self._all, key=_size):
                session.mailbox.shed(lambda: journal.bytes_in_memory <= enough or counts.shed >= last)
                if journal.bytes_in_memory <= enough or counts.shed >= last:
                    break
        if self._all.counts.shed != shed:
            log.warn(
                "{shed} queued messages were evicted: they took more than {most} bytes",
                shed=self._all.counts.shed - shed,
                most=journal.most,
            )

    def _page_some(self, enough: int) -> bool:
        """
        Pages out some messages that are also on disk. Returns whether more can be done that helps.
        """
        journal = self._all.journal
        if not self._to_page and journal.unpaged:
            journal.unpaged = False
            self._to_page = list(self._all)
        before, looked = journal.bytes_in_memory, 0
        while self._to_page and journal.bytes_in_memory > enough:
            if looked > MAX_PAGED:
                return journal.bytes_in_memory < before
            undelivered = self._to_page.pop().mailbox.undelivered()
            looked += 1 + len(undelivered)
            for kept in undelivered:
                journal.page_out(kept)
        return journal.bytes_in_memory <= enough

    def make_room_on_disk(self) -> None:
        """
        The spool is full: evicts from the largest queues, a limited number of messages in each turn.
        """
        journal, counts = self._all.journal, self._all.counts
        shed, most = counts.shed, journal.most_on_disk
        enough = int(most * SPOOL_TARGET)
        last = shed + MAX_SHED
        for session in nlargest(LARGEST, self._all, key=_waiting):
            session.mailbox.shed_queue(lambda: journal.bytes_on_disk <= enough or counts.shed >= last)
            if journal.bytes_on_disk <= enough:
                break
        if counts.shed != shed:
            log.warn(
                "{shed} queued messages were evicted: they took more than {most} bytes in the spool",
                shed=counts.shed - shed,
                most=most,
            )


def _waiting(session: Session) -> int:
    return session.mailbox.queued_bytes


def _size(session: Session) -> int:
    sent = session.mailbox.outbox.sent_bytes if session.mailbox.outbox is not None else 0
    return session.mailbox.queued_bytes + sent
