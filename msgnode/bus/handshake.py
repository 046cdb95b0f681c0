"""
mn:/session: a runtime opens its session, comes back to it, closes it.

What each deployed stub says here, and what it makes of the answer, is in
docs/protocol.md, "Opening a session".  A stub that gets any code but 200 never
speaks to the node again, so nothing here answers anything else to `open` and
`re-open`: a name that cannot be borne closes the connection instead.
"""

from functools import partial
from secrets import token_hex
from time import time_ns
from typing import Any

from twisted.internet.defer import Deferred

from msgnode.bus.session_merge import SessionMerge
from msgnode.policy.enforcement.points import CONNECT, Policy
from msgnode.protocol.address import SESSION, Domain, split_token
from msgnode.protocol.close_codes import (
    CLOSED,
    DISK,
    FAILED,
    OVER_CAPACITY,
    POLICY_UNAVAILABLE,
    RATE,
    REFUSED,
    SLOW,
    TOKEN_REJECTED,
    Closing,
)
from msgnode.protocol.errors import Blocked, NoSession, NotOffered, Rejected
from msgnode.protocol.message import Message, compose
from msgnode.protocol.token_redaction import without_secrets
from msgnode.sessions.access.address_ownership import AddressOwnership
from msgnode.sessions.access.authentication import Authenticator
from msgnode.sessions.access.takeover import Takeover
from msgnode.sessions.limits.memory_budget import Budget
from msgnode.sessions.resume import ResumeRequest, must_wait, negotiate, resume_request
from msgnode.sessions.session import Connection, Session
from msgnode.sessions.session_table import Sessions

# What the log and the metrics call a refusal.
_REFUSALS = {
    REFUSED.code: 403,
    OVER_CAPACITY.code: 503,
    SLOW.code: 429,
    TOKEN_REJECTED.code: 401,
    RATE.code: 429,
}
# And why, where nothing else says so.
_REASONS = {
    REFUSED.word: "reserved-address",
    OVER_CAPACITY.word: "limit",
    SLOW.word: "overflow",
    TOKEN_REJECTED.word: "token",
    RATE.word: "rate",
    DISK.word: "disk",
    POLICY_UNAVAILABLE.word: "policy",
}
CLOSINGS = {429: RATE, 500: POLICY_UNAVAILABLE, 503: POLICY_UNAVAILABLE}  # by what a policy would answer
DELAY = 5.0  # seconds before such a close: the stubs of today come back at once
DELAYED = {why.word for why in (TOKEN_REJECTED, OVER_CAPACITY, RATE, POLICY_UNAVAILABLE, FAILED)}


class Handshake:
    """
    Answers for mn:/session, on the connection that asks and before anything else is read from it.
    """

    def __init__(
        self,
        sessions: Sessions,
        domain: Domain,
        takeover: Takeover,
        owners: AddressOwnership,
        authenticator: Authenticator,
        budget: Budget,
        session_merge: SessionMerge,
    ) -> None:
        self._authenticator = authenticator
        self._session_merge = session_merge
        self._budget = budget
        self._sessions = sessions
        self._domain = domain
        self._takeover = takeover
        self._owners = owners
        self.policy: Policy | None = None

    def respond(self, message: Message, connection: Connection) -> Session | None:
        """
        The session that the message concerned.  Raises Rejected for a type that is none of ours.
        """
        kind = message.type.lower()
        if kind in ("open", "re-open"):
            return self.open(message, connection, kind) if self._may(message, connection) else None
        if kind == "ack":
            return self.acknowledge(message, connection)
        message.outcome, message.code = "answered", 200
        if kind == "close":
            return self.close(connection)
        if kind == "ping":
            return self.ping(message, connection)
        if kind == "response":
            message.outcome, message.code = "dropped", 0
            return connection.session
        if kind == "update" and "token" in message.fields():
            return self.renew(message, connection)
        raise Rejected(
            f"{SESSION} understands open, re-open, update, close, ack and ping, not {message.type!r}"
        )

    def _may(self, message: Message, connection: Connection) -> bool:
        """
        Has the client the token it takes?  False: not, or it is not known yet.
        """
        if self._authenticator.is_open:
            return True
        token = message.fields().get("token") or connection.bearer
        admitted = self._authenticator.admit(
            token, connection, partial(self._authenticator.receive, message.data, connection)
        )
        if isinstance(admitted, Closing):
            _note(message, admitted)
            self._refuse(admitted, connection, message.reason)
            return False
        return admitted

    def open(self, message: Message, connection: Connection, kind: str) -> Session | None:
        """
        Bind the connection to its session, known or new, and say so: 200, with a token unless it has one.
        """
        from_ = message.from_
        token = ""
        if from_ and self._sessions.get(from_) is None:
            from_, token = split_token(from_)
        before = connection.session
        stands = before is not None and before.connection is connection
        wish = resume_request(message)
        nameless = self._sessions.by_token(token) if token else None
        session = self._enter(from_, connection, token, message, wish)
        if isinstance(session, Closing):
            _note(message, session)
            return None
        message.outcome, message.code = "answered", 200
        body: dict[str, Any] = {"code": 200}
        known = kind == "re-open" and session.has_token(token)
        if not known:
            body["runtimeToken"] = self._sessions.issue_token(session)
        stands = stands and session is before
        counts = session.outbox.epoch if session.outbox is not None else ""
        merged = nameless is not None and nameless.successor is session
        goes_on = known or (merged and isinstance(wish, tuple) and wish[0] == counts)
        resume = negotiate(session, wish, connection.counted, not goes_on, stands)
        if resume is not None:
            body["resume"] = resume
        to = message.from_ or session.runtime
        reply = compose(message.id, "response", SESSION, to, body, message.transaction)
        self._sessions.say(connection, reply.data)
        if known and stands:
            session.resume()  # what was sent is on its way
        else:
            session.go_on()
        return session

    def enter(self, runtime: str, connection: Connection, greeting: bytes = b"") -> None:
        """
        Attach the connection of a client that never speaks of session tokens, or close it.

        `greeting` is sent before anything that waits.
        """
        again = partial(self.enter, runtime, connection, greeting)
        admitted = self._authenticator.admit(connection.bearer, connection, again)
        if isinstance(admitted, Closing):
            self._refuse(admitted, connection)
        if admitted is not True:
            return
        session = self._enter(runtime, connection, "", Message(0, "open", SESSION))
        if isinstance(session, Session):
            negotiate(session, False, connection.counted, fresh=True)
            if greeting:
                self._sessions.say(connection, greeting)
            session.go_on()

    def come_back(self, session: Session, connection: Connection) -> None:
        """
        A request named this session's token: it goes on with this connection, unless that is closed now.
        """
        obstacle = self._blocked(Message(0, "re-open", SESSION), session.runtime, session, connection)
        if obstacle is not None:
            self._sessions.part(connection, obstacle)
            return
        before = session.identity
        self._sessions.attach(session, connection)
        self._authenticator.entered(session, connection)
        self._belongs(session, before)
        negotiate(session, False, connection.counted, fresh=False)

    def _nameless(self, runtime: str, connection: Connection, token: str) -> Session | None:
        """
        The anonymous session of whose token this is, if its client comes back by a name it has since.

        The Vertx stubs open without one after their `disconnect`, and put their runtimeURL before the token.
        """
        session = self._sessions.by_token(token) if token else None
        if session is None or not session.anonymous or session.runtime == runtime:
            return None
        return None if self._authenticator.refuses(session.runtime, session, connection, token) else session

    def _enter(
        self, runtime: str, connection: Connection, token: str, message: Message, wish: ResumeRequest = False
    ) -> Session | Closing:
        """
        Without a name: to the session it has, else to a new anonymous one.
        """
        session = self._sessions.get(runtime) if runtime else connection.session
        nameless = self._nameless(runtime, connection, token)
        if session is None and nameless is not None:
            self._authenticator.speak_for(nameless, connection)
            user = self._user(connection)
            if user and not self._shares(nameless, user):
                nameless = None
        obstacle = self._obstacle(message, runtime, session, connection, nameless)
        if obstacle is None and not self._authenticator.owns(runtime, session, connection):
            obstacle = self._takeover.refuses(runtime, session, connection, token)
        if obstacle is None and self._authenticator.refuses(runtime, session, connection, token):
            obstacle = TOKEN_REJECTED
        found = session or nameless
        if obstacle is None and found is not None and must_wait(found, wish):
            obstacle = DISK
        if obstacle is None:
            obstacle = self._blocked(message, runtime, found, connection)
        if obstacle is None and session is not None and nameless is not None and session is not nameless:
            obstacle = None if self._session_merge.has_room(nameless, session) else OVER_CAPACITY
        if obstacle is not None:
            self._refuse(obstacle, connection, message.reason)
            return obstacle
        if session is None and nameless is not None:
            self._sessions.rename(nameless, runtime)
            session = nameless
        if session is None:
            name = runtime or f"runtime://{self._domain.name}/anonymous-{token_hex(16)}"
            host = self._budget.host(connection)
            session = self._sessions.create(name, not runtime, host)
            if not self._user(connection):
                self._budget.take_turn(host)
        before = session.identity
        if not (
            self._authenticator.is_open or before or session.proof is not None or session.has_token(token)
        ):
            # Whoever had what was nobody's keeps no key to what it may become.
            self._sessions.void_token(session)
        session.identity = self._takeover.identity(session, connection) or self._authenticator.kept(session)
        self._sessions.attach(session, connection)
        self._authenticator.entered(session, connection)
        self._belongs(session, before)
        if nameless is not None and nameless is not session and self._shares(nameless, session.identity):
            epoch = wish[0] if isinstance(wish, tuple) else ""
            self._session_merge.merge(nameless, session, connection, epoch)
        return session

    @staticmethod
    def _shares(nameless: Session, other: str) -> bool:
        """
        Was it nobody's, or that user's too?  What is somebody's becomes nobody else's.
        """
        user = nameless.proof.user if nameless.proof is not None else nameless.identity
        return not user or user == other

    def _belongs(self, session: Session, before: str) -> None:
        """
        If it is somebody's now who it was not, whoever had it until then speaks for it no longer.
        """
        self._budget.settle(session)
        if session.identity and session.identity != before:
            self._sessions.unseat(session)

    def _refuse(self, why: Closing, connection: Connection, reason: str = "") -> None:
        self._sessions.counts.refuse(_REFUSALS[why.code], reason or _reason(why))
        delayed = why.word in DELAYED and not connection.counted
        self._sessions.part(connection, why, DELAY if delayed else 0)

    def renew(self, message: Message, connection: Connection) -> Session | None:
        """
        The session's client has a newer token: it goes on, and nothing is lost.
        """
        session, token = connection.session, message.fields()["token"]
        message.outcome = ""
        if session is None:
            raise NoSession("open a session before you renew its token")
        if self._authenticator.is_open:
            raise NotOffered("this node looks at no tokens")
        if not isinstance(token, str) or not token:
            raise Rejected("'body.token' must be the new token")
        if session.proof is None and session.connection is not connection:
            # Anybody may have taken what is nobody's, and its token; it must not become theirs by this.
            raise Rejected("a newer connection took this session; open it again with the token", 403, "token")
        verdict = self._authenticator.ask(token, connection)
        if isinstance(verdict, Deferred):
            again = partial(self._authenticator.receive, message.data, connection)
            self._authenticator.later(verdict, token, connection, again)
            return session
        if isinstance(verdict, Rejected):
            raise verdict
        before = session.identity
        self._authenticator.renew(session, connection, verdict)
        self._belongs(session, before)
        message.outcome = "answered"
        to = message.from_ or session.runtime
        reply = compose(message.id, "response", SESSION, to, {"code": 200}, message.transaction)
        self._sessions.say(connection, reply.data)
        return session

    def _obstacle(
        self,
        message: Message,
        runtime: str,
        session: Session | None,
        connection: Connection,
        nameless: Session | None,
    ) -> Closing | None:
        if connection.full and connection.session is not None:
            return SLOW  # it opens again and again, and does not read what is answered
        if session is not None:
            return None
        if runtime and (not self._domain.can_open(runtime) or self._owners.holds(runtime, nameless)):
            return REFUSED
        if nameless is not None:
            return None if self._budget.may_rename(nameless, runtime) else OVER_CAPACITY
        watermark = self._sessions.watermark
        if watermark is not None and watermark.low:
            watermark.refused += 1
            message.reason = "disk"
            return OVER_CAPACITY
        user = self._user(connection)
        return None if self._budget.may_open(runtime, user, self._budget.host(connection)) else OVER_CAPACITY

    def _user(self, connection: Connection) -> str:
        """
        Who the connection has shown itself to be, or "".
        """
        shown = self._authenticator.who(connection)
        return shown.user if shown is not None else connection.identity

    def _blocked(
        self, message: Message, runtime: str, session: Session | None, connection: Connection
    ) -> Closing | None:
        """
        Why the policies do not let this runtime in.
        """
        try:
            self.check(message, runtime, session, connection)
        except Blocked as why:
            message.reason = why.reason
            return CLOSINGS.get(why.code, REFUSED)._replace(retry_after=why.retry_after)
        return None

    def check(self, message: Message, runtime: str, session: Session | None, connection: Connection) -> None:
        """
        Blocked, if the policies do not let this runtime in.
        """
        if self.policy is not None:
            asked = Message(message.id, message.type, SESSION, runtime, message.body, data=message.data)
            without_secrets(asked)  # decisions are written down
            asked.came, asked.origin, asked.log = message.came or time_ns(), connection, message.log
            self.policy.check(CONNECT, asked, session)

    def give_up(self, connection: Connection) -> None:
        """
        The node failed over an `open`, which is answered by nothing but 200.
        """
        self._refuse(FAILED, connection)

    def close(self, connection: Connection) -> Session | None:
        """
        The client is done.  A connection that was superseded ends alone.
        """
        session = connection.session
        if session is not None and session.connection is connection:
            self._sessions.end(session, "closed")
        self._sessions.part(connection, CLOSED)
        return session

    def ping(self, message: Message, connection: Connection) -> Session | None:
        """
        Say that the node is there, to clients that cannot see WebSocket's own pings.
        """
        session = connection.session
        to = message.from_ or (session.runtime if session is not None else "")
        reply = compose(message.id, "response", SESSION, to, {"code": 200}, message.transaction)
        self._sessions.say(connection, reply.data)
        return session

    def acknowledge(self, message: Message, connection: Connection) -> Session | None:
        """
        The client has everything up to a number.  Not in the traffic log, and answered only if it is wrong.
        """
        session = connection.session
        received = message.fields().get("received")
        if not isinstance(received, int) or isinstance(received, bool):
            raise Rejected(f"'received' must be a number of messages, not {received!r}"[:200])
        if session is not None and session.connection is connection and session.outbox is not None:
            session.outbox.acknowledge(received)
            if session.ready is None:
                session.resume()
        return session


def _note(message: Message, why: Closing) -> None:
    message.outcome, message.code = "refused", _REFUSALS[why.code]
    message.reason = message.reason or _reason(why)


def _reason(why: Closing) -> str:
    return _REASONS.get(why.word, "failed")
