"""
Who may open a session: whether a token is wanted, what it proves, whose session it is.

A token whose provider must first be asked for its keys keeps its client
waiting; what the client sends behind `open` waits too, and is taken when the
answer is there.
"""

from collections.abc import Callable
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

PATIENCE = 2.5  # seconds; the stubs of today give up after three
LAPSED = "the identity of this session has ended; open it again with a new token"

Verdict = Principal | Rejected


class Authenticator:
    """
    Authenticates connections by their tokens when a session opens.

    `find` is the session at or above a runtimeURL; `part` closes a connection; `is_there`: is it still open?

    `receive` is set by the node: an `open` that waited is received as if it came now.
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
        # Who a connection showed itself to be, for as long as it is there.
        self._shown: WeakKeyDictionary[Connection, Principal] = WeakKeyDictionary()
        # What became of a token that had to wait, for the message that is taken again.
        self._verdicts: WeakKeyDictionary[Connection, tuple[str, Verdict]] = WeakKeyDictionary()

    @property
    def is_open(self) -> bool:
        """
        Does nobody look at tokens here?
        """
        return self._options.auth == "none" or self._validator is None

    # -- tokens ----------------------------------------------------------------

    def ask(self, token: str, connection: Connection) -> Verdict | Deferred[Verdict]:
        """
        What the token proves, or why nothing.
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
        self._failures.note("looking at a token", why)
        return Rejected("the node failed over this token; its log says why", 503, "failed")

    def later(
        self, verdict: Deferred[Verdict], token: str, connection: Connection, again: Callable[[], object]
    ) -> None:
        """
        Call `again` once the verdict is there; `ask` then has it at once.
        """

        def found(verdict: Verdict) -> None:
            if self._is_there(connection):
                self._verdicts[connection] = token, verdict
                again()

        verdict.addCallback(found)
        verdict.addErrback(partial(log.failure, "going on after a token was looked at"))

    def admit(self, token: object, connection: Connection, again: Callable[[], object]) -> Closing | bool:
        """
        Look at the token a client opens with.  True: it may go on; False: it waits; a Closing: it may not.

        `again` opens once more, when the wait is over.
        """
        if self.is_open or token is None or token == "":
            return True
        if not isinstance(token, str):
            return TOKEN_REJECTED
        verdict = self.ask(token, connection)
        if isinstance(verdict, Deferred):
            work = self._input_order.hold(connection, partial(self._give_up, connection), PATIENCE)
            self.later(verdict, token, connection, partial(self._input_order.release, work, again))
            return False
        if isinstance(verdict, Principal):
            self._shown[connection] = verdict
            connection.bearer = ""  # it has done its work
            return True
        self._strangers.note("{peer}: its token is refused: {why}", peer=connection.peer, why=str(verdict))
        return TOKEN_LATER if verdict.code >= 500 else TOKEN_REJECTED

    # -- whose session it is -----------------------------------------------------

    def owns(self, runtime: str, session: Session | None, connection: Connection) -> bool:
        """
        Has this connection shown that the session, or the one above it, is its user's?
        """
        shown, owner = self.who(connection), session or self._find(runtime)
        return shown is not None and _is_of(owner, shown)

    def refuses(self, runtime: str, session: Session | None, connection: Connection, secret: str) -> bool:
        """
        May this connection not have the session?  `secret` is the session's token, if the client has it.
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
        The connection has the session's token, which shows what the session has shown.
        """
        if not self.is_open and self.who(connection) is None and session.proof is not None:
            self._shown[connection] = session.proof

    def kept(self, session: Session) -> str:
        """
        The name in the certificate that opened the session: it stays its owner's.
        """
        return "" if self.is_open or session.proof is not None else session.identity

    def lapsed(self, session: Session) -> bool:
        """
        Does it take a new token to come back to this session?
        """
        if self.is_open:
            return False
        return session.proof is not None and not self._identity_expiry.holds(session.proof)

    def entered(self, session: Session, connection: Connection) -> None:
        """
        The connection has the session now.
        """
        shown = self.who(connection)
        if shown is not None:
            self._identity_expiry.prove(session, shown)
            return
        self._identity_expiry.go_on(session)
        if session.identity and session.proof is not None:
            self._shown[connection] = session.proof  # by the session's own token

    def show(self, connection: Connection, proof: Principal) -> None:
        """
        The connection has shown this, though it opens no session.
        """
        self._shown[connection] = proof

    def who(self, connection: Connection) -> Principal | None:
        """
        Whom the connection has shown itself to be, if that still holds.
        """
        shown = None if self.is_open else self._shown.get(connection)
        return shown if shown is not None and self._identity_expiry.holds(shown) else None

    def renew(self, session: Session, connection: Connection, proof: Principal) -> None:
        """
        The session's client has a newer token.
        """
        owner = session.proof
        if owner is not None and owner.user != proof.user:
            raise Rejected(f"this session is {owner.user}'s; the token is {proof.user}'s", 403, "identity")
        self._shown[connection] = proof
        self._identity_expiry.prove(session, proof, asked=True)

    def _give_up(self, connection: Connection) -> None:
        self._strangers.note("{peer}: its token could not be looked at in time", peer=connection.peer)
        if self._is_there(connection):
            self._part(connection, TOKEN_LATER)


def _is_of(session: Session | None, proof: Principal) -> bool:
    return session is not None and session.proof is not None and session.proof.user == proof.user
