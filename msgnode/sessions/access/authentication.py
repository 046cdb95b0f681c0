"""
Authentication when a session opens: whether a token is required, whose it is, and who may open the session.

If the provider's keys must be fetched first, the client waits, and what it sends after `open` is buffered
until then.
"""

from collections.abc import Callable
from enum import Enum
from functools import partial
from weakref import WeakKeyDictionary

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.config.schema import IdentityOptions
from msgnode.protocol.close_codes import TOKEN_LATER, TOKEN_REJECTED, Closing
from msgnode.protocol.errors import Rejected
from msgnode.sessions.access.identity_expiry import IdentityExpiry
from msgnode.sessions.input_order import InputOrder
from msgnode.sessions.principal import Principal, TokenValidator, VerifiedToken
from msgnode.sessions.session import Connection, Session
from msgnode.structures.log_limits import FailureLog, StrangerLog

log = Logger()

TOKEN_TIMEOUT_SECONDS = 2.5  # the deployed protostubs give up after three
LAPSED = "the authentication of this session has expired; open it again with a new token"

Verdict = Principal | Rejected


class Admission(Enum):
    """
    The answer to a client that opens a session, unless it is refused (Closing).
    """

    GRANTED = "the session may open"
    PENDING = "its token is being validated; its `open` is received again when that is done"


class Authenticator:
    """
    The authenticator: it validates the tokens of connections when a session opens.

    `find` returns the session at or above a runtimeURL; `part` closes a connection; `is_there` says if a
    connection is still open.

    The node sets `receive`: an `open` that waited is received again through it.
    """

    receive: Callable[[bytes, Connection], None]

    def __init__(
        self,
        options: IdentityOptions,
        validator: TokenValidator | None,
        identity_expiry: IdentityExpiry,
        find: Callable[[str], Session | None],
        part: Callable[[Connection, Closing], None],
        is_there: Callable[[Connection], bool],
        input_order: InputOrder,
        seconds: Callable[[], float],
    ) -> None:
        self._strangers = StrangerLog(log, seconds)
        self._options = options
        self._validator = validator
        self._identity_expiry = identity_expiry
        self._find = find
        self._part = part
        self._is_there = is_there
        self._input_order = input_order
        self._failures = FailureLog(log)
        # The principal of each authenticated connection.
        self._shown: WeakKeyDictionary[Connection, Principal] = WeakKeyDictionary()
        # The result for a token that had to wait, until its message is received again.
        self._verdicts: WeakKeyDictionary[Connection, tuple[str, Verdict]] = WeakKeyDictionary()

    @property
    def is_open(self) -> bool:
        """
        Is authentication disabled?
        """
        return self._options.auth == "none" or self._validator is None

    # -- tokens ----------------------------------------------------------------

    def ask(self, token: str, connection: Connection) -> Verdict | Deferred[Verdict]:
        """
        Validates a token; the result is the principal or the error.
        """
        known = self._verdicts.pop(connection, None)
        if known is not None and known[0] == token:
            return known[1]
        assert self._validator is not None
        try:
            found = self._validator.validate(token)
        except Exception:
            return self._refused(Failure())
        if isinstance(found, VerifiedToken):
            return self._proved(found)
        return found.addCallbacks(self._proved, self._refused)

    def _proved(self, claim: VerifiedToken) -> Verdict:
        return self._identity_expiry.from_now(claim.proof)

    def _refused(self, why: Failure) -> Verdict:
        if isinstance(why.value, Rejected):
            return why.value
        self._failures.note("the validation of a token failed unexpectedly", why)
        return Rejected(
            "internal error while validating the token; the node's log has the details", 503, "failed"
        )

    def later(
        self, verdict: Deferred[Verdict], token: str, connection: Connection, again: Callable[[], object]
    ) -> None:
        """
        Call `again` after the validation; `ask` then returns the verdict at once.
        """

        def found(verdict: Verdict) -> None:
            if self._is_there(connection):
                self._verdicts[connection] = token, verdict
                again()

        verdict.addCallback(found)
        verdict.addErrback(
            partial(log.failure, "an open could not be continued after its token was validated")
        )

    def admit(
        self, token: object, connection: Connection, again: Callable[[], object]
    ) -> Admission | Closing:
        """
        Validates the token that a client opens with; a Closing says why the client is refused.

        `again` is called when a token that was PENDING has been validated.
        """
        if self.is_open or token is None or token == "":
            return Admission.GRANTED
        if not isinstance(token, str):
            return TOKEN_REJECTED
        verdict = self.ask(token, connection)
        if isinstance(verdict, Deferred):
            work = self._input_order.hold(
                connection, partial(self._time_out, connection), TOKEN_TIMEOUT_SECONDS
            )
            self.later(verdict, token, connection, partial(self._input_order.release, work, again))
            return Admission.PENDING
        if isinstance(verdict, Principal):
            self._shown[connection] = verdict
            connection.bearer = ""  # not needed any more
            return Admission.GRANTED
        self._strangers.note("the token of {peer} is refused: {why}", peer=connection.peer, why=str(verdict))
        return TOKEN_LATER if verdict.code >= 500 else TOKEN_REJECTED

    # -- sessions ------------------------------------------------------------------

    def owns(self, runtime: str, session: Session | None, connection: Connection) -> bool:
        """
        Is this connection authenticated as the user of the session, or of the session above it?
        """
        shown, owner = self.who(connection), session or self._find(runtime)
        return shown is not None and _is_of(owner, shown)

    def refuses(
        self, runtime: str, session: Session | None, connection: Connection, secret: str | bytes
    ) -> bool:
        """
        Is this connection refused for the session? `secret` is the session token, if the client has it, or
        its hash.
        """
        if self.is_open:
            return False
        required = self._options.auth == "required"
        shown = self.who(connection)
        owner = session or self._find(runtime)
        if owner is not None and owner.proof is None and owner.identity:
            mine = connection.identity == owner.identity or connection.session is owner
            return not mine and not (owner is session and owner.has_token(secret))
        if owner is None or owner.proof is None:
            return required and shown is None and not connection.identity
        if shown is not None:
            return not _is_of(owner, shown)
        if owner is session and (owner.has_token(secret) or connection.session is owner):
            return not self._identity_expiry.holds(owner.proof)
        return True

    def speak_for(self, session: Session, connection: Connection) -> None:
        """
        Authenticates a connection that has the session token as the session's user.
        """
        if not self.is_open and self.who(connection) is None and session.proof is not None:
            self._shown[connection] = session.proof

    def certificate_identity(self, session: Session) -> str:
        """
        The name in the client certificate that opened the session, if it is the session's identity.
        """
        return "" if self.is_open or session.proof is not None else session.identity

    def lapsed(self, session: Session) -> bool:
        """
        Has the session's authentication expired, so that a new token is needed?
        """
        if self.is_open:
            return False
        return session.proof is not None and not self._identity_expiry.holds(session.proof)

    def attached(self, session: Session, connection: Connection) -> None:
        """
        The connection was attached to the session: the timers of its identity start.
        """
        shown = self.who(connection)
        if shown is not None:
            self._identity_expiry.prove(session, shown)
            return
        self._identity_expiry.resume(session)
        if session.identity and session.proof is not None:
            self._shown[connection] = session.proof  # authenticated by the session token

    def show(self, connection: Connection, proof: Principal) -> None:
        """
        Notes that the connection is authenticated, although it opens no session.
        """
        self._shown[connection] = proof

    def who(self, connection: Connection) -> Principal | None:
        """
        The principal of the connection, if its authentication has not expired.
        """
        shown = None if self.is_open else self._shown.get(connection)
        return shown if shown is not None and self._identity_expiry.holds(shown) else None

    def renew(self, session: Session, connection: Connection, proof: Principal) -> None:
        """
        Renews the session's authentication with a newer token of its client.
        """
        owner = session.proof
        if owner is not None and owner.user != proof.user:
            raise Rejected(
                f"this session belongs to {owner.user}; the token is for {proof.user}", 403, "identity"
            )
        self._shown[connection] = proof
        self._identity_expiry.prove(session, proof, asked=True)

    def _time_out(self, connection: Connection) -> None:
        self._strangers.note("the token of {peer} could not be validated in time", peer=connection.peer)
        if self._is_there(connection):
            self._part(connection, TOKEN_LATER)


def _is_of(session: Session | None, proof: Principal) -> bool:
    return session is not None and session.proof is not None and session.proof.user == proof.user
