"""
mn:/session: a runtime opens its session, comes back to it, closes it.

What each deployed stub says here, and what it makes of the answer, is in
docs/protocol.md, "Opening a session".  A stub that gets any code but 200 never
speaks to the node again, so nothing here answers anything else to `open` and
`re-open`: a name that cannot be borne closes the connection instead.
"""

from secrets import token_hex

from msgnode.address import Domain, split_token
from msgnode.errors import Rejected
from msgnode.message import Message, compose
from msgnode.session import CLOSED, FULL, REFUSED, SLOW, Closing, Connection, Session
from msgnode.sessions import Sessions

SESSION = "mn:/session"
_CODES = {REFUSED: 403, FULL: 503, SLOW: 429}  # what the log and the metrics call a refusal


class Handshake:
    """
    Answers for mn:/session, on the connection that asks and before anything else is read from it.
    """

    def __init__(self, sessions: Sessions, domain: Domain) -> None:
        self._sessions = sessions
        self._domain = domain

    def respond(self, message: Message, connection: Connection) -> Session | None:
        """
        The session that the message concerned.  Raises Rejected for a type that is none of ours.
        """
        kind = message.type.lower()
        if kind in ("open", "re-open"):
            return self.open(message, connection, kind)
        message.outcome, message.code = "answered", 200
        if kind == "close":
            return self.close(connection)
        if kind == "response":
            message.outcome, message.code = "dropped", 0
            return connection.session
        raise Rejected(f"{SESSION} understands open, re-open and close, not {message.type!r}")

    def open(self, message: Message, connection: Connection, kind: str) -> Session | None:
        """
        Bind the connection to its session, known or new, and say so: 200, with a token unless it has one.
        """
        from_ = message.from_
        token = ""
        if from_ and self._sessions.get(from_) is None:
            from_, token = split_token(from_)
        session = self.enter(from_, connection)
        if isinstance(session, Closing):
            message.outcome, message.code = "refused", _CODES[session]
            return None
        message.outcome, message.code = "answered", 200
        body: dict[str, object] = {"code": 200}
        if kind == "open" or not session.has_token(token):
            body["runtimeToken"] = self._sessions.issue_token(session)
        reply = compose(message.id, "response", SESSION, message.from_ or session.runtime, body)
        self._sessions.say(connection, reply.data)
        session.resume()
        return session

    def enter(self, runtime: str, connection: Connection) -> Session | Closing:
        """
        Attach the connection to the session of that name, or say why it was closed.

        Without a name: to the session it has, else to a new anonymous one.
        """
        session = self._sessions.get(runtime) if runtime else connection.session
        obstacle = self._obstacle(runtime, session, connection)
        if obstacle is not None:
            self._sessions.counts.refuse(_CODES[obstacle])
            self._sessions.part(connection, obstacle)
            return obstacle
        if session is None:
            name = runtime or f"runtime://{self._domain.name}/anonymous-{token_hex(16)}"
            session = self._sessions.create(name, anonymous=not runtime)
        self._sessions.attach(session, connection)
        return session

    def _obstacle(self, runtime: str, session: Session | None, connection: Connection) -> Closing | None:
        if connection.full and connection.session is not None:
            return SLOW  # it opens again and again, and does not read what is answered
        if session is not None:
            return None
        if runtime and not self._domain.can_open(runtime):
            return REFUSED
        return FULL if self._sessions.full else None

    def close(self, connection: Connection) -> Session | None:
        """
        The client is done.  A connection that was superseded ends alone.
        """
        session = connection.session
        if session is not None and session.connection is connection:
            self._sessions.end(session, "closed")
        self._sessions.part(connection, CLOSED)
        return session
