"""
The copies that are still to come to a session by themselves, after its earlier holder has handed over the
others.
"""

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from msgnode.sessions.session import Session

log = Logger()

AGAIN_SECONDS = 1.0  # until members are asked again that have not sent all


class ComingCopies:
    """
    The sessions whose copies are waited for. Their clients do not wait: they have the copies that came with
    the sessions. `arrived` fires when all that members have sent to this node has come, with True if some of
    it is late; `expects` says whether a session waits for a copy, and `ended` is called when it does not.
    """

    def __init__(
        self,
        clock: IReactorTime,
        arrived: Callable[[], Deferred[bool]],
        expects: Callable[[Session], bool],
        ended: Callable[[Session], None],
    ) -> None:
        self._clock = clock
        self._arrived = arrived
        self._expects = expects
        self._ended = ended
        self._next: dict[Session, None] = {}
        self._is_asking = False

    def wait(self, session: Session) -> None:
        """
        Ends the wait of this session later, if no member has sent it a copy that is not here.
        """
        self._next[session] = None
        if not self._is_asking:
            self._is_asking = True
            self._ask()

    def _ask(self) -> None:
        sessions, self._next = self._next, {}
        self._arrived().addCallback(self._have_come, sessions)

    def _have_come(self, is_late: bool, sessions: dict[Session, None]) -> None:
        for session in sessions:
            if session in self._next:
                continue  # it waits for more than what has come
            if is_late and self._expects(session):
                self._next[session] = None
                continue
            try:
                self._ended(session)
            except Exception:
                log.failure("the messages of {name} could not be sent", name=session.runtime)
        self._is_asking = bool(self._next)
        if self._next:
            self._clock.callLater(AGAIN_SECONDS if is_late else 0, self._ask)
