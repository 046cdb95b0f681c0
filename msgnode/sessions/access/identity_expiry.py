"""
Expiry of authentication: how long the identity of a session is valid.

A token is validated when a session opens and when it is renewed, never for a message. Before it expires, the
client is warned and can renew it without a break; after it there is a grace period. Then the session is
suspended: its connection is closed, and the session waits for its user.
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

DAY_SECONDS = 86400.0  # the longest timer


class IdentityExpiry:
    """
    The expiry timers of all authenticated sessions. `park` closes a session's connections.

    `believed`: is the source of a principal, its provider or device, still configured?
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
        Is the principal within its validity or grace period, and its source still configured?
        """
        if not self._believed(proof):
            return False
        return proof.until is None or self._wall() < proof.until + self._options.grace_seconds

    def from_now(self, proof: Principal) -> Principal:
        """
        The principal of a token that was accepted within the leeway: it is valid until now, so that its
        client can renew it.
        """
        if proof.until is None or proof.until >= self._wall():
            return proof
        return structs.replace(proof, until=self._wall())

    def prove(self, session: Session, proof: Principal, asked: bool = False) -> None:
        """
        Authenticates the session as a user. `asked`: its client is already renewing its token.
        """
        session.proof, session.identity = proof, proof.user
        self._follow(session, proof, asked)
        self._session_store.changed(session)
        session.write_state()

    def resume(self, session: Session) -> None:
        """
        Resumes the timers of a session that was opened without a new token, or restored after a restart.
        """
        proof = session.proof
        if proof is None:
            return
        if self._options.auth == "none":
            # Authentication was disabled: the identity shown earlier says nothing about the client now.
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
        The authentication has expired. The session keeps its user, so that no other user can take it.
        """
        proof = session.proof
        assert proof is not None
        self._stop(session)
        session.identity = ""
        self._session_store.changed(session)
        session.write_state()
        log.info(
            "the authentication of {runtime} as {user} has expired", runtime=session.runtime, user=proof.user
        )
        self._park(session, TOKEN_REJECTED)

    def review(self, sessions: Iterable[Session]) -> None:
        """
        Applies a changed configuration: suspends the sessions whose provider or device was removed.

        If authentication was disabled, no session is warned or suspended.
        """
        for session in list(sessions):
            proof = session.proof
            if self._options.auth == "none":
                self.resume(session)
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
        # A client that renews may have only tokens that are about to expire; a warning at once would make a
        # loop.
        passed = [] if asked else [mark for mark in marks if mark <= now]
        coming = [mark for mark in marks if mark > now]
        self._wait(session, ends, [*passed[-1:], *coming, ends + self._options.grace_seconds])

    def _wait(self, session: Session, ends: float, marks: Sequence[float]) -> None:
        now = self._clock.seconds()
        delay = min(max(0.0, marks[0] - now), DAY_SECONDS)
        session.identity_timer = self._clock.callLater(delay, self._reached, session, ends, marks)

    def _reached(self, session: Session, ends: float, marks: Sequence[float]) -> None:
        session.identity_timer = None
        now = self._clock.seconds()
        if marks[0] > now:  # only a day has passed
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
            session.send_uncounted(connection, compose(0, "update", SESSION, session.runtime, body).data)
