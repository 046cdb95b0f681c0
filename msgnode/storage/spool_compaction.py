"""
The spool's broom: its oldest segment is emptied in the background and deleted.

What is still owed is written again at the end of the spool, a few sessions in
a turn, until nothing in the oldest segment is needed.  After a disk was full
for so long that the spool gave up what it held back, everything is written
again in the same way.
"""

from collections.abc import Callable, Iterator

from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Cooperator, LoopingCall, SchedulerStopped
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.sessions.session_table import Sessions
from msgnode.storage.spool import SEGMENT, Spool, segment_of

log = Logger()

EVERY = 2.0  # seconds
MAX_FILES = 8  # that are not full: each start begins a new one
SLACK = 128 * 1024 * 1024  # bytes of the spool that may be dead, beside as many as are alive


class SpoolCompactor(Service):
    """
    Sweeps when more than half of the spool, and `slack` bytes, are dead, or its files are many.
    """

    def __init__(self, spool: Spool, sessions: Sessions, clock: IReactorTime, slack: int = SLACK) -> None:
        self._spool = spool
        self._sessions = sessions
        self._slack = slack
        self._sweeping = False
        self._failing = False
        self._cooperator = Cooperator(scheduler=lambda call: clock.callLater(0, call), started=False)
        self._looking = LoopingCall(self.look)
        self._looking.clock = clock

    def startService(self) -> None:
        super().startService()
        self._cooperator.start()
        self._looking.start(EVERY, now=False)

    def stopService(self) -> None:
        super().stopService()
        if self._looking.running:
            self._looking.stop()
        self._cooperator.stop()
        spool = self._spool
        if spool.anew or (spool.overrun and spool.start_over()):
            for _ in self._sweep(lambda place: True):  # there is no later
                pass

    def look(self) -> None:
        """
        Is it time?  Try again, too, what could not be written.
        """
        spool = self._spool
        self._sessions.journal.settle()
        self._tell_of_failure()
        if self._sweeping:
            return
        if spool.overrun and not spool.start_over():
            return
        if spool.anew:
            self._begin(lambda place: True)
        elif spool.oldest() is not None and (
            spool.size > 2 * spool.live + self._allowed() or spool.files > MAX_FILES + spool.size // SEGMENT
        ):
            oldest = spool.oldest()
            self._begin(lambda place: bool(place) and segment_of(place) == oldest)

    def _allowed(self) -> int:
        """
        How many bytes may be dead; none, where the disk has no room for them.
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
        for session in list(self._sessions):
            session.rewrite(is_old)
            journal.settle(now=True)
            if self._spool.wrong is not None:
                return  # all of it is looked at again once the disk takes something
            yield
        journal.settle(now=True)
        if self._spool.wrong is not None or (self._spool.anew and not self._spool.finish_over()):
            return
        journal.move(True)
        journal.settle(now=True)
        self._spool.drop_oldest()

    def _swept(self, done: object) -> None:
        self._sweeping = False

    def _tell_of_failure(self) -> None:
        failing = self._spool.failing
        if failing is not None and not self._failing:
            log.error("the spool cannot be written: {why}", why=str(failing))
        elif failing is None and self._failing:
            log.info("the spool is written again")
        self._failing = failing is not None


def _interrupted(why: Failure) -> None:
    if not why.check(SchedulerStopped):  # the node stops
        log.failure("sweeping the spool", why)
