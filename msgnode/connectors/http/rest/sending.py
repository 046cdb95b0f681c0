"""
Sending for HTTP requests: who the sender of a message is, whether it may send now, and what is answered.
"""

from collections.abc import Callable
from uuid import uuid4

import msgspec
from msgspec import Raw
from twisted.internet.defer import Deferred
from twisted.web.server import NOT_DONE_YET, Request

from msgnode.connectors.http.requests import (
    SESSION_TOKEN_PREFIX,
    allow_origin,
    authority_of,
    headers,
    identity_of,
    origin_of,
    peer_of,
    session_of,
)
from msgnode.connectors.http.rest.exchange import NotNow, RestExchange, RestRequest
from msgnode.node import Node
from msgnode.protocol import lossless_json
from msgnode.protocol.address import SESSION, Domain
from msgnode.protocol.close_codes import STOPPING
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import SHORT_BYTES, Message, decode
from msgnode.protocol.token_redaction import redacted
from msgnode.sessions.access.authentication import LAPSED
from msgnode.sessions.session import Session
from msgnode.transport.cork import Cork
from msgnode.transport.http_answers import answer_error, answer_json

UNKNOWN = "no session has this token; open a session, or leave the token out"
FOREIGN_PAGE = "a page of another origin must name its session's token, or be named in allowed_origins"


class RestSending:
    """
    The part that all resources of REST share: what they check of each request, and how its message is sent.
    """

    def __init__(self, node: Node, cork: Cork) -> None:
        self.domain = Domain(node.config.domain)
        self._node = node
        self._cork = cork

    # -- the request -----------------------------------------------------------

    def refusal(self, request: Request, methods: tuple[bytes, ...], token: str) -> bytes | None:
        """
        The answer to a request that is not looked at further: the node stops, its page may not send, it has
        another method, or it is a preflight.
        """
        if self._node.draining:
            request.setHeader(b"Connection", b"close")
            return answer_error(request, 503, STOPPING.word, 1)
        if not allow_origin(request, self._node.config.origins, methods=methods):
            return answer_error(request, 403, "this origin is not allowed")
        if request.method == b"OPTIONS":
            request.setResponseCode(204)
            return b""
        if request.method not in methods:
            request.setHeader(b"Allow", b", ".join([*methods, b"OPTIONS"]))
            known, asked = b", ".join(methods).decode(), request.method.decode("latin-1")[:40]
            return answer_error(request, 405, f"{known}, not {asked}")
        if not self._is_known_origin(request, token):
            return answer_error(request, 403, FOREIGN_PAGE)
        return None

    def _is_known_origin(self, request: Request, token: str) -> bool:
        """
        May a page of that origin send messages for its user, if no allowed origins are configured?

        Any page can make a browser post what a form could post.  A session token
        shows that the client itself sends it; without one, only pages of this
        host may.
        """
        config = self._node.config
        origin = next(iter(headers(request, b"Origin")), "")
        if not origin or config.allowed_origins is not None or token.startswith(SESSION_TOKEN_PREFIX):
            return True
        host = next(iter(headers(request, b"Host")), "")
        page = authority_of(origin)
        here = authority_of(f"//{host}", origin), authority_of(config.public_url)
        return bool(page[0]) and page in here

    def describe(self, exchange: RestExchange, request: Request) -> None:
        """
        Note where the request comes from.
        """
        exchange.peer = peer_of(request, self._node.connection_limits)
        exchange.identity = identity_of(request)
        exchange.origin = origin_of(request)

    def begin(
        self, exchange: RestRequest, request: Request, token: str, carry: Callable[[], bytes | int]
    ) -> bytes | int:
        """
        Call `carry` when it is known who the sender is; the answer. Raises Rejected.
        """
        self.describe(exchange, request)
        try:
            wanted = self._identify(exchange, request, token)
            if wanted is None:
                return carry()
        except Rejected:
            exchange.end()
            raise
        wanted.addCallback(lambda known: None if exchange.over else carry())
        wanted.addCallback(exchange.answer_now)
        wanted.addErrback(exchange.failed)
        return NOT_DONE_YET

    # -- the message -----------------------------------------------------------

    def checked(self, data: bytes) -> Message:
        """
        The message in these bytes. Raises Rejected if it is none that a request may send.
        """
        longest = self._node.config.limits.message_bytes
        if len(data) > longest:
            raise Rejected(f"a message has at most {longest} bytes, not {len(data)}", 413, "too-long")
        try:
            data.decode()
        except UnicodeDecodeError as why:
            raise Rejected(f"not UTF-8 at byte {why.start}") from None
        message = decode(data)
        if len(data) <= SHORT_BYTES:  # longer bodies are checked by the recipient
            message.fields()
        if message.to == SESSION:
            raise Rejected("sessions are opened and closed at /ws or /poll")
        redacted(message)  # its header is delivered unchanged except for `token`, or it is refused here
        return message

    def send(self, exchange: RestExchange, message: Message, wait: float) -> None:
        """
        Send the message; the exchange waits `wait` seconds for its response, 0: for none. Raises Rejected.
        """
        if exchange.known_session is not None:
            exchange.session = exchange.known_session
            message = self._from_session(message, exchange.known_session)
        else:
            message = self._from_visitor(message, exchange)
        assert exchange.session is not None
        self._check_bans(exchange.session, exchange)
        self._node.check_rate(message, exchange.session, exchange)
        if wait or exchange.hears_refusals:
            exchange.expect(message, wait)
        if not wait:
            self._check_disk("post it again later")
        before = self._node.counts.no_route
        with self._cork:
            self._node.receive(message.data, exchange)
        addresses = recipients(message)
        if wait and not exchange.over and self._node.counts.no_route - before >= len(addresses):
            raise Rejected(f"no session is bound to {', '.join(addresses)}"[:300], 404)

    def carry(self, exchange: RestRequest, message: Message, wait: float, request: Request) -> bytes | int:
        """
        Send the message, and answer the request: without waiting for a response, 202.
        """
        self.send(exchange, message, wait)
        if wait or exchange.over:
            return NOT_DONE_YET
        taken = self._node.input_order.settled(exchange)
        if taken is None:
            return self._taken(exchange, request)
        taken.addCallback(lambda done: None if exchange.over else self._taken(exchange, request))
        taken.addCallback(exchange.answer_now)
        taken.addErrback(exchange.failed)
        return NOT_DONE_YET

    def _taken(self, exchange: RestRequest, request: Request) -> bytes:
        self._check_disk("it may have been taken")
        exchange.end()
        return answer_json(request, 202, {"accepted": 1})

    def _check_bans(self, sender: Session, exchange: RestExchange) -> None:
        """
        Raises Rejected if an operator banned the sender: it has no connection that could be closed.
        """
        user = sender.identity or (sender.proof.user if sender.proof is not None else "")
        if self._node.bans.of_session(sender.runtime, user, exchange) is not None:
            raise Rejected("an operator banned this client", 403, "banned")

    def _check_disk(self, advice: str) -> None:
        """
        A client may forget a message once it was accepted, so that must be on disk by then.
        """
        failing = self._node.message_log.failing
        if failing is not None:
            raise NotNow(f"the node cannot write to disk now: {failing}; {advice}")

    # -- the sender ------------------------------------------------------------

    def _identify(self, exchange: RestExchange, request: Request, token: str) -> Deferred[None] | None:
        """
        Note the session that has this session token; a Deferred, while an identity token is checked.
        """
        session = session_of(request, token, self._node.sessions) if token else None
        authenticator = self._node.authenticator
        if session is not None:
            if authenticator.lapsed(session):
                raise Rejected(LAPSED, 401, "token")
            exchange.known_session = session
            return None
        if token.startswith(SESSION_TOKEN_PREFIX):
            raise Rejected(UNKNOWN, 401, "token")
        if authenticator.is_open:
            return None
        if not token:
            if self._node.config.identity.auth == "required" and not exchange.identity:
                raise Rejected("name a token: Authorization: Bearer ...", 401, "token")
            return None
        verdict = authenticator.ask(token, exchange)
        if isinstance(verdict, Deferred):
            return verdict.addCallback(exchange.known)
        exchange.known(verdict)
        return None

    def _from_session(self, message: Message, session: Session) -> Message:
        from_ = message.from_
        if not from_:
            return with_sender(message, session.runtime)
        if self._node.owners.may_send(from_, session) or self._node.forwards.allows(message, session):
            return message
        raise Rejected(
            f"'from' must be {session.runtime}, below it, or an address of its own, not {from_!r}"[:300],
            403,
            "not-your-address",
        )

    def _from_visitor(self, message: Message, exchange: RestExchange) -> Message:
        message = redacted(message)  # a sender without a session has no token to show in it
        for to in recipients(message):
            if to == self.domain.node or to.startswith(self.domain.node + "/"):
                raise Rejected(f"{to} serves sessions; name the token of one"[:300], 403, "no-session")
        if message.receipt:
            raise Rejected("receipts are given to sessions; name the token of one", 403, "no-session")
        from_ = f"{self.domain.public}/rest/{uuid4()}"
        exchange.session = visitor = Session(from_, self._node.sessions)
        visitor.proof = self._node.authenticator.who(exchange)
        visitor.identity = visitor.proof.user if visitor.proof is not None else exchange.identity
        self._node.handshake.check(message, from_, visitor, exchange)
        return with_sender(message, from_)


def recipients(message: Message) -> list[str]:
    return [message.to] if isinstance(message.to, str) else message.to


def with_sender(message: Message, from_: str) -> Message:
    """
    Returns the same message with another sender.
    """
    try:
        fields = msgspec.json.decode(message.data, type=dict[str, Raw])
        return decode(msgspec.json.encode({**fields, "from": from_}))
    except msgspec.DecodeError:  # a lone surrogate, which msgspec rejects
        return decode(lossless_json.dumps({**lossless_json.loads(message.data), "from": from_}))
