"""
Session takeover: which client may open an existing session.

By default any client may take over a session by its name, as the deployed protostubs need after a page
reload. With `takeover = "token"` it needs the session token, or the same client certificate. `message_token`
requires the session token in every message.
"""

from collections.abc import Callable
from weakref import WeakKeyDictionary

import msgspec

from msgnode.config.schema import SessionTimes
from msgnode.protocol import lossless_json
from msgnode.protocol.address import split_token
from msgnode.protocol.close_codes import TOKEN_REJECTED, Closing
from msgnode.protocol.errors import NoSession
from msgnode.protocol.token_redaction import may_hold_token
from msgnode.sessions.routing import Routes
from msgnode.sessions.session import Connection, Session


class Takeover:
    """
    The rules of session takeover: the keys `session.takeover` and `session.message_token`.
    """

    def __init__(self, options: SessionTimes, routes: Routes, now: Callable[[], float]) -> None:
        self._options = options
        self._routes = routes
        self._now = now
        self._bearers: WeakKeyDictionary[Connection, Session] = WeakKeyDictionary()

    def refuses(
        self, runtime: str, session: Session | None, connection: Connection, token: str | bytes
    ) -> Closing | None:
        """
        The close code if this connection may not open the session; None if it may. `token` is the session
        token, or its hash.
        """
        if self._options.takeover != "token" or not runtime:
            return None
        owner = session or self._routes.runtime(runtime)
        if owner is None or owner is connection.session or owner.has_token(token):
            return None
        if owner.identity and owner.identity == connection.identity:
            return None
        if owner.connection is not None or owner.identity or owner is not session:
            return TOKEN_REJECTED
        left = owner.since + self._options.takeover_after_seconds - self._now()
        return TOKEN_REJECTED._replace(retry_after=round(left + 1)) if left > 0 else None

    def identity(self, session: Session, connection: Connection) -> str:
        """
        The identity of the session by a client certificate, or "".
        """
        if connection.identity or self._options.takeover == "open":
            return connection.identity
        return session.identity

    def check_token(self, data: bytes, session: Session, connection: Connection) -> None:
        """
        With `message_token = "require"`, raises NoSession unless the message has its session's token.

        Until the first message with the token, or for `open_deadline_seconds`, messages without it are
        accepted: the client may have sent them before it knew the token.
        """
        if carries_token(data, session):
            self._bearers[connection] = session
        elif (
            self._bearers.get(connection) is session
            or self._now() - session.since > self._options.open_deadline_seconds
        ):
            raise NoSession(
                "a message must carry its session's token, in 'token' or at the end of 'body.via'",
                reason="token",
            )


def carries_token(data: bytes, session: Session) -> bool:
    """
    Does the message have its session's token, in a field `token` or at the end of `body.via`?
    """
    if not may_hold_token(data):
        return False
    try:
        fields = msgspec.json.decode(data)
    except msgspec.DecodeError:
        try:
            fields = lossless_json.loads(data)  # a lone surrogate
        except (ValueError, RecursionError):
            return False
    token = fields.get("token")
    if isinstance(token, str) and session.has_token(token):
        return True
    body = fields.get("body")
    via = body.get("via") if isinstance(body, dict) else None
    if isinstance(via, list):
        via = via[-1] if via else None
    return isinstance(via, str) and session.has_token(split_token(via)[1])
