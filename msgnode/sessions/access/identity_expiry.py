"""
Who a session is, as its token proved, and for how long.

A token is looked at when a session opens and when it is renewed, never for a
message.  What it proved belongs to the session: its client is warned before
it ends, may renew it without losing anything, and has a grace period.  Then
the session is parked: its connection is closed, and it waits for its owner.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec import structs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from msgnode.config.schema import IdentityOptions
from msgnode.protocol.address import SESSION
from msgnode.protocol.close_codes import TOKEN_REJECTED, Closing
from msgnode.protocol.message import compose
from msgnode.sessions.persistence import SessionStore
from msgnode.sessions.principal import Principal
from msgnode.sessions.session import Session

log = Logger()

DAY = 86400.0  # seconds; no timer waits longer without looking again


class IdentityExpiry:
    """
    The proofs of all sessions, each with its timer; `park` closes a session's connections.

    `believed`: does the operator still believe whoever vouched for a proof?
    """

    def __init__(
        self,
        options: IdentityOptions,
        clock: IReactorTime,
        wall: Callable[[], float],
        park: Callable[[Session, Closing], None],
        session_store: SessionStore,
        believed: Callable[[Principal], bool] = lambda proof: True,
    ) -> None:
        self._options = options
        self._clock = clock
        self._wall = wall
        self._park = park
        self._session_store = session_store
        self._believed = believed

    def holds(self, proof: Principal) -> bool:
        """
        Is the proof good, or its grace not over, and whoever vouched still believed?
        """
        if not self._believed(proof):
            return False
        return proof.until is None or self._wall() < proof.until + self._options.grace_seconds

    def from_now(self, proof: Principal) -> Principal:
        """
        A token at the very edge of what is taken is good now, and leaves its bearer time to renew it.
        """
        if proof.until is None or proof.until >= self._wall():
            return proof
        return structs.replace(proof, until=self._wall())

    def prove(self, session: Session, proof: Principal, asked: bool = False) -> None:
        """
        The session is this user's from now on; `asked`: its client knows that it must show newer tokens.
        """
        session.proof, session.identity = proof, proof.user
        self._follow(session, proof, asked)
        self._session_store.changed(session)
        session.note()

    def go_on(self, session: Session) -> None:
        """
        The session is entered without a new token, or is there again after a restart: does its proof hold?
        """
        proof = session.proof
        if proof is None:
            return
        if self._options.auth == "none":
            # Nobody looks any longer: what was shown once says nothing of who comes now.
            self._stop(session)
            session.proof = None
            session.identity = "" if session.identity == proof.user else session.identity
        elif self.holds(proof):
            session.identity = proof.user
            self._follow(session, proof)
        elif session.identity == proof.user:
            session.identity = ""

    def end(self, session: Session) -> None:
        """
        Nothing holds any longer.  Whose session it is stays known, so that nobody else takes it.
        """
        proof = session.proof
        assert proof is not None
        self._stop(session)
        session.identity = ""
        self._session_store.changed(session)
        session.note()
        log.info("{runtime}: the identity of {user} has ended", runtime=session.runtime, user=proof.user)
        self._park(session, TOKEN_REJECTED)

    def review(self, sessions: Iterable[Session]) -> None:
        """
        Whom the operator believes has changed: who is not believed any longer is parked.

        Where nobody looks any longer, nobody is warned or parked.
        """
        for session in list(sessions):
            proof = session.proof
            if self._options.auth == "none":
                self.go_on(session)
            elif proof is not None and session.identity == proof.user and not self._believed(proof):
                self.end(session)

    # -- time ----------------------------------------------------------------

    def _follow(self, session: Session, proof: Principal, asked: bool = False) -> None:
        self._stop(session)
        if proof.until is None:
            return
        now = self._clock.seconds()
        left = proof.until - self._wall()
        ends = now + max(left, 0.0)
        warning = self._options.expiry_warning_seconds
        marks = [ends - warning, ends] if warning else [ends]
        # Told at once, a client whose tokens are all about to end would show them without a pause.
        passed = [] if asked else [mark for mark in marks if mark <= now]
        coming = [mark for mark in marks if mark > now]
        self._wait(session, ends, [*passed[-1:], *coming, ends + self._options.grace_seconds])

    def _wait(self, session: Session, ends: float, marks: Sequence[float]) -> None:
        now = self._clock.seconds()
        delay = min(max(0.0, marks[0] - now), DAY)
        session.identity_timer = self._clock.callLater(delay, self._reached, session, ends, marks)

    def _reached(self, session: Session, ends: float, marks: Sequence[float]) -> None:
        session.identity_timer = None
        now = self._clock.seconds()
        if marks[0] > now:  # a day is over
            self._wait(session, ends, marks)
        elif len(marks) > 1:
            self._warn(session, max(0, round(ends - now)))
            self._wait(session, ends, marks[1:])
        else:
            self.end(session)

    def _stop(self, session: Session) -> None:
        if session.identity_timer is not None and session.identity_timer.active():
            session.identity_timer.cancel()
        session.identity_timer = None

    def _warn(self, session: Session, left: int) -> None:
        connection = session.connection
        if connection is not None:
            body = {"attribute": "token", "value": left}
            session.say(connection, compose(0, "update", SESSION, session.runtime, body).data)
