"""
Open checks: may this connection open, or take over, the session that it names?
"""

from msgnode.protocol.address import Domain
from msgnode.protocol.close_codes import OVER_CAPACITY, REFUSED, SLOW, TOKEN_REJECTED, Closing
from msgnode.protocol.message import Message
from msgnode.sessions.access.address_ownership import AddressOwnership
from msgnode.sessions.access.authentication import Authenticator
from msgnode.sessions.access.takeover import Takeover
from msgnode.sessions.limits.memory_budget import Budget
from msgnode.sessions.principal import Principal
from msgnode.sessions.session import Connection, Session
from msgnode.sessions.session_table import Sessions


class OpenRequest:
    """
    A request to open a session.

    `runtime` is the runtimeURL that it names, or ""; `token` the session token that it brought, or "".
    `session` is the session of that name, or without a name the session of the connection. `anonymous` is the
    session without a name of its own that the token opens, if its client gives its name only now.
    """

    __slots__ = ("anonymous", "connection", "message", "runtime", "session", "token")

    def __init__(self, message: Message, runtime: str, token: str, connection: Connection) -> None:
        self.message = message
        self.runtime = runtime
        self.token = token
        self.connection = connection
        self.session: Session | None = None
        self.anonymous: Session | None = None

    @property
    def found(self) -> Session | None:
        """
        The existing session that the request continues; None: a new one must be made.
        """
        return self.session or self.anonymous


class OpenChecks:
    """
    The checks that a request to open a session must pass: ownership, takeover, tokens and limits.
    """

    def __init__(
        self,
        sessions: Sessions,
        domain: Domain,
        takeover: Takeover,
        owners: AddressOwnership,
        authenticator: Authenticator,
        budget: Budget,
    ) -> None:
        self._sessions = sessions
        self._domain = domain
        self._takeover = takeover
        self._owners = owners
        self._authenticator = authenticator
        self._budget = budget

    def look_up(self, message: Message, runtime: str, token: str, connection: Connection) -> OpenRequest:
        """
        The request with the sessions that it may refer to.
        """
        request = OpenRequest(message, runtime, token, connection)
        request.session = self._sessions.get(runtime) if runtime else connection.session
        anonymous = self._find_anonymous(request)
        if request.session is None and anonymous is not None:
            self._authenticator.speak_for(anonymous, connection)
            user = self.user(connection)
            if user and not may_belong_to(anonymous, user):
                anonymous = None
        request.anonymous = anonymous
        return request

    def _find_anonymous(self, request: OpenRequest) -> Session | None:
        """
        The anonymous session that the token opens, if its client comes back under the name it got later.

        The Vertx stubs open without a name after their `disconnect`, and put their runtimeURL before the
        token.
        """
        session = self._sessions.by_token(request.token) if request.token else None
        if session is None or not session.anonymous or session.runtime == request.runtime:
            return None
        refuses = self._authenticator.refuses
        return None if refuses(session.runtime, session, request.connection, request.token) else session

    def obstacle(self, request: OpenRequest) -> Closing | None:
        """
        The reason why the request is refused; None: it is accepted.
        """
        session, connection = request.session, request.connection
        obstacle = self._limit(request)
        if obstacle is None and not self._authenticator.owns(request.runtime, session, connection):
            obstacle = self._takeover.refuses(request.runtime, session, connection, request.token)
        if obstacle is None and self._authenticator.refuses(
            request.runtime, session, connection, request.token
        ):
            obstacle = TOKEN_REJECTED
        return obstacle

    def shown(self, connection: Connection) -> Principal | None:
        """
        The principal that the connection has authenticated as.
        """
        return self._authenticator.who(connection)

    def claimed(
        self, session: Session, claimant: Connection, proof: Principal | None, token_hash: bytes
    ) -> Closing | None:
        """
        The reason why a client at another node of the domain may not have this session; None: it may.
        """
        if proof is not None:
            self._authenticator.show(claimant, proof)
        obstacle = None
        if not self._authenticator.owns(session.runtime, session, claimant):
            obstacle = self._takeover.refuses(session.runtime, session, claimant, token_hash)
        if obstacle is None and self._authenticator.refuses(session.runtime, session, claimant, token_hash):
            obstacle = TOKEN_REJECTED
        return obstacle

    def _limit(self, request: OpenRequest) -> Closing | None:
        runtime, connection, anonymous = request.runtime, request.connection, request.anonymous
        if connection.write_paused and connection.session is not None:
            return SLOW  # it opens repeatedly without reading the answers
        if request.session is not None:
            return None
        if runtime and (not self._domain.can_open(runtime) or self._owners.is_taken(runtime, anonymous)):
            return REFUSED
        if anonymous is not None:
            return None if self._budget.may_rename(anonymous, runtime) else OVER_CAPACITY
        watermark = self._sessions.watermark
        if watermark is not None and watermark.low:
            watermark.refused += 1
            request.message.reason = "disk"
            return OVER_CAPACITY
        user = self.user(connection)
        may_open = self._budget.may_open(runtime, user, self._budget.host(connection))
        return None if may_open else OVER_CAPACITY

    def user(self, connection: Connection) -> str:
        """
        The user that the connection has authenticated as, or "".
        """
        shown = self._authenticator.who(connection)
        return shown.user if shown is not None else connection.identity


def may_belong_to(anonymous: Session, user: str) -> bool:
    """
    Does the anonymous session have no user, or this user? The session of one user never becomes another
    user's.
    """
    owner = anonymous.proof.user if anonymous.proof is not None else anonymous.identity
    return not owner or owner == user
