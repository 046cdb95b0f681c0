"""
The handshake with mn:/session: a client opens its session, re-opens it, closes it.

docs/protocol.md, "Opening a session", has the messages of each deployed stub, and how it handles the answer.
A stub that gets any code but 200 never talks to the node again, so `open` and `re-open` have no other answer:
if a session cannot be opened, the connection is closed instead.
"""

from functools import partial
from secrets import token_hex
from time import time_ns
from typing import Any

from twisted.internet.defer import Deferred

from msgnode.bus.components import OtherHolders
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
    REMOVED,
    SLOW,
    TOKEN_REJECTED,
    Closing,
)
from msgnode.protocol.errors import Blocked, NoSession, NotOffered, Rejected
from msgnode.protocol.message import Message, compose
from msgnode.protocol.token_redaction import without_secrets
from msgnode.sessions.access.authentication import Admission, Authenticator
from msgnode.sessions.access.open_checks import OpenChecks, OpenRequest, may_belong_to
from msgnode.sessions.access.takeover import Takeover
from msgnode.sessions.limits.memory_budget import Budget
from msgnode.sessions.persistence import SessionMove
from msgnode.sessions.resume import ResumeRequest, must_wait, negotiate, resume_request
from msgnode.sessions.session import Connection, Session
from msgnode.sessions.session_table import Sessions

# The codes of refusals in the log and the metrics.
_REFUSALS = {
    REFUSED.code: 403,
    OVER_CAPACITY.code: 503,
    SLOW.code: 429,
    TOKEN_REJECTED.code: 401,
    RATE.code: 429,
    REMOVED.code: 403,
}
# The default reasons of refusals.
_REASONS = {
    REFUSED.word: "reserved-address",
    OVER_CAPACITY.word: "limit",
    SLOW.word: "overflow",
    TOKEN_REJECTED.word: "token",
    RATE.word: "rate",
    DISK.word: "disk",
    POLICY_UNAVAILABLE.word: "policy",
    REMOVED.word: "banned",
}
# The close code of the connection by the code of a policy's refusal.
CLOSINGS = {429: RATE, 500: POLICY_UNAVAILABLE, 503: POLICY_UNAVAILABLE}
CLOSE_DELAY_SECONDS = 5.0  # before some closes: the deployed stubs reconnect at once
DELAYED = {why.word for why in (TOKEN_REJECTED, OVER_CAPACITY, RATE, POLICY_UNAVAILABLE, FAILED)}


class Handshake:
    """
    The responder of mn:/session.

    It answers on the connection of the request, before anything else is read from it.
    """

    def __init__(
        self,
        sessions: Sessions,
        domain: Domain,
        takeover: Takeover,
        authenticator: Authenticator,
        checks: OpenChecks,
        budget: Budget,
        session_merge: SessionMerge,
    ) -> None:
        self._authenticator = authenticator
        self._session_merge = session_merge
        self._budget = budget
        self._sessions = sessions
        self._domain = domain
        self._takeover = takeover
        self._checks = checks
        self.policy: Policy | None = None
        self.others: OtherHolders | None = None  # None: the node is alone in its domain

    def respond(self, message: Message, connection: Connection) -> Session | None:
        """
        Answers the message; returns the session that it concerns. Raises Rejected for an unknown type.
        """
        kind = message.type.lower()
        if kind in ("open", "re-open"):
            return self._open_if_admitted(message, connection, kind)
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

    def _open_if_admitted(self, message: Message, connection: Connection, kind: str) -> Session | None:
        """
        Opens the session if the client's token is valid; None if it is not, or is still being validated.
        """
        if self._authenticator.is_open:
            return None if self._is_taken(message, connection) else self.open(message, connection, kind)
        token = message.fields().get("token") or connection.bearer
        again = partial(self._authenticator.receive, message.data, connection)
        admission = self._authenticator.admit(token, connection, again)
        if isinstance(admission, Closing):
            _note(message, admission)
            self._refuse(admission, connection, message.reason, split_token(message.from_)[0])
            return None
        if admission is not Admission.GRANTED or self._is_taken(message, connection):
            return None
        return self.open(message, connection, kind)

    def _is_taken(self, message: Message, connection: Connection) -> bool:
        """
        Is the session asked for at another node? The message is received again when that has answered.
        """
        others, name = self.others, message.from_
        if others is None or not name or self._sessions.get(name) is not None:
            return False
        runtime, token = split_token(name)
        if self._sessions.get(runtime) is not None or not self._domain.can_open(runtime):
            return False
        if self._blocked(message, runtime, None, connection) is not None:
            return False  # `open` refuses it
        again = partial(self._authenticator.receive, message.data, connection)
        return others.take(runtime, token, connection, again)

    def open(self, message: Message, connection: Connection, kind: str) -> Session | None:
        """
        Attaches the connection to its session, known or new, and answers 200, with a token unless it has one.
        """
        from_ = message.from_
        token = ""
        if from_ and self._sessions.get(from_) is None:
            from_, token = split_token(from_)
        before = connection.session
        same_connection = before is not None and before.connection is connection
        wanted = resume_request(message)
        anonymous = self._sessions.by_token(token) if token else None
        session = self._enter(from_, connection, token, message, wanted)
        if isinstance(session, Closing):
            _note(message, session)
            return None
        message.outcome, message.code = "answered", 200
        body: dict[str, Any] = {"code": 200}
        known = kind == "re-open" and session.has_token(token)
        if not known:
            body["runtimeToken"] = self._sessions.issue_token(session)
        same_connection = same_connection and session is before
        counts = session.mailbox.outbox.epoch if session.mailbox.outbox is not None else ""
        merged = anonymous is not None and anonymous.successor is session
        continues = known or (merged and isinstance(wanted, tuple) and wanted[0] == counts)
        resume = negotiate(session, wanted, connection.acks_by_request, not continues, same_connection)
        if resume is not None:
            body["resume"] = resume
        to = message.from_ or session.runtime
        reply = compose(message.id, "response", SESSION, to, body, message.transaction)
        self._sessions.connections.send(connection, reply.data)
        if known and same_connection:
            session.flush()  # the sent messages are still in flight
        else:
            session.redeliver()
        return session

    def enter(self, runtime: str, connection: Connection, greeting: bytes = b"") -> None:
        """
        Attaches the connection of a client that does not know session tokens, or closes it.

        `greeting` is sent before the queued messages.
        """
        again = partial(self.enter, runtime, connection, greeting)
        admission = self._authenticator.admit(connection.bearer, connection, again)
        if isinstance(admission, Closing):
            self._refuse(admission, connection, "", runtime)
        if admission is not Admission.GRANTED:
            return
        others = self.others if runtime and self._sessions.get(runtime) is None else None
        can_open = others is not None and self._domain.can_open(runtime)
        if others is not None and can_open and others.take(runtime, "", connection, again):
            return
        session = self._enter(runtime, connection, "", Message(0, "open", SESSION))
        if isinstance(session, Session):
            negotiate(session, False, connection.acks_by_request, fresh=True)
            if greeting:
                self._sessions.connections.send(connection, greeting)
            session.redeliver()

    def come_back(self, session: Session, connection: Connection) -> None:
        """
        Attaches the connection of a request that has this session's token, or closes it.
        """
        obstacle = self._blocked(Message(0, "re-open", SESSION), session.runtime, session, connection)
        if obstacle is not None:
            self._sessions.connections.close(connection, obstacle)
            return
        before = session.identity
        self._sessions.attach(session, connection)
        self._authenticator.attached(session, connection)
        self._settle_user(session, before)
        negotiate(session, False, connection.acks_by_request, fresh=False)

    def _enter(
        self,
        runtime: str,
        connection: Connection,
        token: str,
        message: Message,
        wanted: ResumeRequest = False,
    ) -> Session | Closing:
        """
        Attaches the connection to the session of that name; without a name, to its session, else a new one.
        """
        request = self._checks.look_up(message, runtime, token, connection)
        obstacle = self._obstacle(request, wanted)
        generation = 1
        if obstacle is None and self.others is not None and request.session is None and runtime:
            found = self.others.outcome(connection, runtime)
            if isinstance(found, Closing):
                obstacle = found
            else:
                generation = found
        if obstacle is not None:
            self._refuse(obstacle, connection, message.reason, runtime)
            return obstacle
        anonymous, session = request.anonymous, self._session_for(request, generation)
        if isinstance(wanted, tuple) and (generation != 1 or session.is_moved):
            _note_claim(session, *wanted)
        self._attach(session, connection, token)
        if anonymous is not None and anonymous is not session and may_belong_to(anonymous, session.identity):
            epoch = wanted[0] if isinstance(wanted, tuple) else ""
            self._session_merge.merge(anonymous, session, connection, epoch)
        return session

    def _obstacle(self, request: OpenRequest, wanted: ResumeRequest) -> Closing | None:
        """
        The reason why the request is refused: by the checks, the disk, the policies, or an unfinished merge.
        """
        obstacle = self._checks.obstacle(request)
        if obstacle is not None:
            return obstacle
        found = request.found
        if found is not None and must_wait(found, wanted):
            return DISK
        obstacle = self._blocked(request.message, request.runtime, found, request.connection)
        if obstacle is not None:
            return obstacle
        anonymous, session = request.anonymous, request.session
        if session is None or anonymous is None or session is anonymous:
            return None
        return None if self._session_merge.has_room(anonymous, session) else OVER_CAPACITY

    def _session_for(self, request: OpenRequest, generation: int) -> Session:
        """
        The session of that name; else the anonymous one, which gets the name; else a new one.
        """
        runtime, connection, anonymous = request.runtime, request.connection, request.anonymous
        if request.session is not None:
            return request.session
        if anonymous is not None:
            self._sessions.rename(anonymous, runtime)
            return anonymous
        name = runtime or f"runtime://{self._domain.name}/anonymous-{token_hex(16)}"
        host = self._budget.host(connection)
        session = self._sessions.create(name, not runtime, host, generation)
        if not self._checks.user(connection):
            self._budget.take_turn(host)
        if self.others is not None:
            self.others.began(session)
        return session

    def _attach(self, session: Session, connection: Connection, token: str) -> None:
        before = session.identity
        if not (
            self._authenticator.is_open or before or session.proof is not None or session.has_token(token)
        ):
            # The session gets a user: the token of a client that had it without a user becomes void.
            self._sessions.void_token(session)
        certified = self._takeover.identity(session, connection)
        session.identity = certified or self._authenticator.certificate_identity(session)
        self._sessions.attach(session, connection)
        self._authenticator.attached(session, connection)
        self._settle_user(session, before)

    def _settle_user(self, session: Session, before: str) -> None:
        """
        Charges the session to its user; a new user takes the session from its earlier connections.
        """
        self._budget.settle(session)
        if session.identity and session.identity != before:
            self._sessions.release_superseded(session)

    def _refuse(self, why: Closing, connection: Connection, reason: str = "", runtime: str = "") -> None:
        code, reason = _REFUSALS[why.code], reason or _reason(why)
        self._sessions.counts.refuse(code, reason)
        self._sessions.note_refused_open(connection, runtime, code, reason, why)
        delayed = why.word in DELAYED and not connection.acks_by_request
        self._sessions.connections.close(connection, why, CLOSE_DELAY_SECONDS if delayed else 0)

    def renew(self, message: Message, connection: Connection) -> Session | None:
        """
        Validates a newer token of the session's client, and renews the session's authentication.
        """
        session, token = connection.session, message.fields()["token"]
        message.outcome = ""
        if session is None:
            raise NoSession("open a session before you renew its token")
        if self._authenticator.is_open:
            raise NotOffered("this node does not validate tokens")
        if not isinstance(token, str) or not token:
            raise Rejected("'body.token' must be the new token")
        if session.proof is None and session.connection is not connection:
            # Any client may have taken over a session without a user; a renewal must not give it to one.
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
        self._settle_user(session, before)
        message.outcome = "answered"
        to = message.from_ or session.runtime
        reply = compose(message.id, "response", SESSION, to, {"code": 200}, message.transaction)
        self._sessions.connections.send(connection, reply.data)
        return session

    def _blocked(
        self, message: Message, runtime: str, session: Session | None, connection: Connection
    ) -> Closing | None:
        """
        The close code if an operator banned this client, or the policies refuse this runtime; None: it may
        open.
        """
        user = self._checks.user(connection) or (session.identity if session is not None else "")
        name = runtime or (session.runtime if session is not None else "")
        ban = self._sessions.ban_of(name, user, connection)
        if ban is not None:
            return ban
        try:
            self.check(message, runtime, session, connection)
        except Blocked as why:
            message.reason = why.reason
            return CLOSINGS.get(why.code, REFUSED)._replace(retry_after=why.retry_after)
        return None

    def check(self, message: Message, runtime: str, session: Session | None, connection: Connection) -> None:
        """
        Raises Blocked if the policies refuse this runtime.
        """
        if self.policy is not None:
            asked = Message(message.id, message.type, SESSION, runtime, message.body, data=message.data)
            without_secrets(asked)  # decisions are logged
            asked.received_at, asked.origin, asked.log = (
                message.received_at or time_ns(),
                connection,
                message.log,
            )
            self.policy.check(CONNECT, asked, session)

    def close_failed(self, connection: Connection) -> None:
        """
        Closes the connection of an `open` that failed in the node, because the only answer to `open` is 200.
        """
        self._refuse(FAILED, connection)

    def close(self, connection: Connection) -> Session | None:
        """
        Ends the session of this connection; a superseded connection is only closed.
        """
        session = connection.session
        if session is not None and session.connection is connection:
            self._sessions.end(session, "closed")
        self._sessions.connections.close(connection, CLOSED)
        return session

    def ping(self, message: Message, connection: Connection) -> Session | None:
        """
        Answers 200, for clients that cannot see WebSocket's own pings.
        """
        session = connection.session
        to = message.from_ or (session.runtime if session is not None else "")
        reply = compose(message.id, "response", SESSION, to, {"code": 200}, message.transaction)
        self._sessions.connections.send(connection, reply.data)
        return session

    def acknowledge(self, message: Message, connection: Connection) -> Session | None:
        """
        Acknowledges all messages up to a number. The message is not logged, and answered only if malformed.
        """
        session = connection.session
        received = message.fields().get("received")
        if not isinstance(received, int) or isinstance(received, bool):
            raise Rejected(f"'received' must be a number of messages, not {received!r}"[:200])
        if session is not None and session.connection is connection and session.mailbox.outbox is not None:
            session.mailbox.outbox.acknowledge(received)
            if session.ready is None:
                session.flush()
        return session


def _note(message: Message, why: Closing) -> None:
    message.outcome, message.code = "refused", _REFUSALS[why.code]
    message.reason = message.reason or _reason(why)


def _reason(why: Closing) -> str:
    return _REASONS.get(why.word, "failed")


def _note_claim(session: Session, epoch: str, received: int) -> None:
    """
    Notes what the client has had of an epoch of another node, which may hand that over later, or has already.
    """
    outbox = session.mailbox.outbox
    if outbox is None or outbox.epoch != epoch:
        session.move = session.move or SessionMove()
        session.move.note_claim(epoch, received)
        session.mailbox.drop_claimed(epoch, received)
