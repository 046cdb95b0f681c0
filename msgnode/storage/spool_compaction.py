"""
Compaction of the spool, in the background: the oldest segment is emptied and deleted.

Its undelivered messages are appended again at the end of the spool, a few sessions in each turn of the event
loop. After the spool dropped its buffer because the disk failed for too long, all messages are appended
again.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Cooperator, LoopingCall, SchedulerStopped
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.sessions.session_table import Sessions
from msgnode.storage.spool import SEGMENT_BYTES, Spool, segment_of

log = Logger()

CHECK_SECONDS = 2.0
MAX_FILES = 8  # segments that are not full; each start begins a new one
SLACK_BYTES = 128 * 1024 * 1024  # dead bytes that are always allowed


class Spooled(Protocol):
    """
    A part of the node, other than sessions, that has messages in the spool.
    """

    def rewrite(self, is_old: Callable[[int], bool]) -> Iterator[None]:
        """
        Append again all messages whose place is old, a bounded number in each step. OSError if one cannot be
        read.
        """

    def move(self) -> None:
        """
        The whole spool was rewritten, and the places before count no more.
        """


class SpoolCompactor(Service):
    """
    The compactor of the spool. It runs when the dead bytes exceed the live ones by `slack`, or segments are
    many. `others` are the parts in addition to the sessions that have messages in the spool.
    """

    def __init__(
        self,
        spool: Spool,
        sessions: Sessions,
        clock: IReactorTime,
        slack: int = SLACK_BYTES,
        others: Sequence[Spooled] = (),
    ) -> None:
        self._spool = spool
        self._sessions = sessions
        self._slack = slack
        self._others = others
        self._sweeping = False
        self._failing = False
        self._cooperator = Cooperator(scheduler=lambda call: clock.callLater(0, call), started=False)
        self._looking = LoopingCall(self.look)
        self._looking.clock = clock

    def startService(self) -> None:
        super().startService()
        self._cooperator.start()
        self._looking.start(CHECK_SECONDS, now=False)

    def stopService(self) -> None:
        super().stopService()
        if self._looking.running:
            self._looking.stop()
        self._cooperator.stop()
        spool = self._spool
        if spool.rewriting or (spool.overrun and spool.start_over()):
            for _ in self._sweep(lambda place: True):  # it cannot be done later
                pass

    def look(self) -> None:
        """
        Check whether compaction is due. Also repeat writes that failed.
        """
        spool = self._spool
        self._sessions.journal.settle()
        self._tell_of_failure()
        if self._sweeping:
            return
        if spool.overrun and not spool.start_over():
            return
        if spool.rewriting:
            self._begin(lambda place: True)
        elif spool.oldest() is not None and (
            spool.size > 2 * spool.live + self._allowed()
            or spool.files > MAX_FILES + spool.size // SEGMENT_BYTES
        ):
            oldest = spool.oldest()
            self._begin(lambda place: bool(place) and segment_of(place) == oldest)

    def _allowed(self) -> int:
        """
        The number of dead bytes allowed. It is 0 when the disk is low.
        """
        watermark = self._sessions.watermark
        return 0 if watermark is not None and watermark.low else self._slack

    def _begin(self, is_old: Callable[[int], bool]) -> None:
        self._sweeping = True
        done = self._cooperator.cooperate(self._sweep(is_old)).whenDone()
        done.addErrback(_interrupted)
        done.addBoth(self._swept)

    def _sweep(self, is_old: Callable[[int], bool]) -> Iterator[None]:
        journal = self._sessions.journal
        journal.move(False)
        for session in [*self._sessions, *self._sessions.released.values()]:
            session.mailbox.rewrite(is_old)
            journal.settle(now=True)
            if self._spool.wrong is not None:
                return  # everything is checked again once writes succeed
            yield
        for other in self._others:
            for _ in other.rewrite(is_old):
                journal.settle(now=True)
                if self._spool.wrong is not None:
                    return
                yield
        journal.settle(now=True)
        if self._spool.wrong is not None or (self._spool.rewriting and not self._spool.finish_over()):
            return
        journal.move(True)
        for other in self._others:
            other.move()
        journal.settle(now=True)
        self._spool.drop_oldest()

    def _swept(self, done: object) -> None:
        self._sweeping = False

    def _tell_of_failure(self) -> None:
        failing = self._spool.failing
        if failing is not None and not self._failing:
            log.error("the spool cannot be written: {why}", why=failing)
        elif failing is None and self._failing:
            log.info("the spool can be written again")
        self._failing = failing is not None


def _interrupted(why: Failure) -> None:
    if not why.check(SchedulerStopped):  # the node is stopping
        log.failure("compaction of the spool failed", why)
