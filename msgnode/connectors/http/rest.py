"""
REST at `/message`: one message by POST, and its response in the HTTP response.

Without a session the message gets a sender address that exists as long as the
request.  With a session token it is sent by that session, and the response is
returned here instead of on the session's connection.
"""

from functools import partial
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Raw
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from msgnode.cluster.relay.wire import MESSAGE
from msgnode.connectors.http.openapi import DOCUMENT
from msgnode.connectors.http.relaying import Relaying
from msgnode.connectors.http.requests import (
    MAX_WAIT_SECONDS,
    WAIT_SECONDS,
    allow_origin,
    authority_of,
    bearer,
    headers,
    identity_of,
    origin_of,
    parameters,
    peer_of,
    session_of,
)
from msgnode.connectors.http.rest_exchange import NotNow, RestRequest, again_in
from msgnode.connectors.http.site import NotHere
from msgnode.node import Node
from msgnode.protocol import lossless_json
from msgnode.protocol.address import SESSION, Domain, is_multicast
from msgnode.protocol.close_codes import STOPPING
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import SHORT_BYTES, Message, decode
from msgnode.protocol.token_redaction import redacted
from msgnode.sessions.access.authentication import LAPSED
from msgnode.sessions.queue import REQUESTS
from msgnode.sessions.session import Session
from msgnode.transport.cork import Cork
from msgnode.transport.http_answers import answer_error, answer_json

ANSWERED = REQUESTS | {"delete"}
UNKNOWN = "no session has this token; open a session, or leave the token out"


class Messages(Resource):
    """
    The resource `/message`: docs/protocol.md, "REST".
    """

    def __init__(self, node: Node, cork: Cork, clock: IReactorTime) -> None:
        super().__init__()
        self._node = node
        self._cork = cork
        self._clock = clock
        self._domain = Domain(node.config.domain)
        self._relaying = Relaying(node, MESSAGE)

    def getChild(self, path: bytes, request: Request) -> Resource:
        return NotHere()

    def render(self, request: Request) -> Any:
        if self._node.draining:
            request.setHeader(b"Connection", b"close")
            return answer_error(request, 503, STOPPING.word, 1)
        if not allow_origin(request, self._node.config.origins):
            return answer_error(request, 403, "this origin is not allowed")
        if request.method == b"OPTIONS":
            request.setResponseCode(204)
            return b""
        if request.method != b"POST":
            request.setHeader(b"Allow", b"POST, OPTIONS")
            return answer_error(request, 405, f"POST, not {request.method.decode('latin-1')}")
        if not self._is_known_origin(request):
            why = "a page of another origin must name its session's token, or be named in allowed_origins"
            return answer_error(request, 403, why)
        relayed = self._relaying.by_token(request, UNKNOWN)
        if relayed is not None:
            return relayed
        try:
            return self._post(request)
        except Rejected as why:
            return answer_error(request, why.code, str(why), again_in(why))

    def _is_known_origin(self, request: Request) -> bool:
        """
        May a page of that origin send messages for its user, if no allowed origins are configured?

        Any page can make a browser post what a form could post.  A session token
        shows that the client itself sends it; without one, only pages of this
        host may.
        """
        config = self._node.config
        origin = next(iter(headers(request, b"Origin")), "")
        if not origin or config.allowed_origins is not None or (bearer(request) or "").startswith("mns_"):
            return True
        host = next(iter(headers(request, b"Host")), "")
        page = authority_of(origin)
        here = authority_of(f"//{host}", origin), authority_of(config.public_url)
        return bool(page[0]) and page in here

    def _post(self, request: Request) -> bytes | int:
        body: bytes = request.content.read()  # type: ignore[union-attr]
        message = self._checked(body)
        wait = _wait(parameters(request), message)
        exchange = RestRequest(self._node, self._clock, request)
        exchange.peer = peer_of(request, self._node.connection_limits)
        exchange.identity = identity_of(request)
        exchange.origin = origin_of(request)
        try:
            session, wanted = self._asker(exchange, request, bearer(request) or "")
            carry = partial(self._carry, exchange, message, session, wait, request)
            if wanted is None:
                return carry()
        except Rejected:
            exchange.end()
            raise
        wanted.addCallback(lambda known: None if exchange.over else carry())
        wanted.addCallback(exchange.answer_now)
        wanted.addErrback(exchange.failed)
        return NOT_DONE_YET

    def _carry(
        self, exchange: RestRequest, message: Message, session: Session | None, wait: float, request: Request
    ) -> bytes | int:
        if session is not None:
            exchange.session = session
            message = self._from_session(message, session)
        else:
            message = self._from_visitor(message, exchange)
        assert exchange.session is not None
        self._check_bans(exchange.session, exchange)
        self._node.check_rate(message, exchange.session, exchange)
        if wait:
            exchange.expect(message, wait)
        else:
            self._check_disk("post it again later")
        with self._cork:
            self._node.receive(message.data, exchange)
        if exchange.over:
            return NOT_DONE_YET
        if not wait:
            taken = self._node.input_order.settled(exchange)
            if taken is None:
                return self._taken(exchange, request)
            taken.addCallback(lambda done: None if exchange.over else self._taken(exchange, request))
            taken.addCallback(exchange.answer_now)
            taken.addErrback(exchange.failed)
            return NOT_DONE_YET
        if self._has_nobody(message):
            exchange.end()
            return answer_error(
                request, 404, f"no session is bound to {', '.join(_recipients(message))}"[:300]
            )
        return NOT_DONE_YET

    def _check_bans(self, sender: Session, exchange: RestRequest) -> None:
        """
        Raises Rejected if an operator banned the sender: it has no connection that could be closed.
        """
        user = sender.identity or (sender.proof.user if sender.proof is not None else "")
        if self._node.bans.of_session(sender.runtime, user, exchange) is not None:
            raise Rejected("an operator banned this client", 403, "banned")

    def _taken(self, exchange: RestRequest, request: Request) -> bytes:
        self._check_disk("it may have been taken")
        exchange.end()
        return answer_json(request, 202, {"accepted": 1})

    def _check_disk(self, advice: str) -> None:
        """
        A client may forget a message once it was accepted, so that must be on disk by then.
        """
        failing = self._node.message_log.failing
        if failing is not None:
            raise NotNow(f"the node cannot write to disk now: {failing}; {advice}")

    def _checked(self, data: bytes) -> Message:
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

    # -- the sender ----------------------------------------------------------

    def _asker(
        self, exchange: RestRequest, request: Request, token: str
    ) -> tuple[Session | None, Deferred[None] | None]:
        """
        The session that has this session token; else a Deferred, while an identity token is checked.
        """
        session = session_of(request, token, self._node.sessions) if token else None
        if session is not None:
            if self._node.authenticator.lapsed(session):
                raise Rejected(LAPSED, 401, "token")
            return session, None
        if token.startswith("mns_"):
            raise Rejected(UNKNOWN, 401, "token")
        authenticator = self._node.authenticator
        if authenticator.is_open:
            return None, None
        if not token:
            if self._node.config.identity.auth == "required" and not exchange.identity:
                raise Rejected("name a token: Authorization: Bearer ...", 401, "token")
            return None, None
        verdict = authenticator.ask(token, exchange)
        if isinstance(verdict, Deferred):
            return None, verdict.addCallback(exchange.known)
        exchange.known(verdict)
        return None, None

    def _from_session(self, message: Message, session: Session) -> Message:
        from_ = message.from_
        if not from_:
            return _with_sender(message, session.runtime)
        if self._node.owners.may_send(from_, session) or self._node.forwards.allows(message, session):
            return message
        raise Rejected(
            f"'from' must be {session.runtime}, below it, or an address of its own, not {from_!r}"[:300],
            403,
            "not-your-address",
        )

    def _from_visitor(self, message: Message, exchange: RestRequest) -> Message:
        message = redacted(message)  # a sender without a session has no token to show in it
        for to in _recipients(message):
            if to == self._domain.node or to.startswith(self._domain.node + "/"):
                raise Rejected(f"{to} serves sessions; name the token of one"[:300], 403, "no-session")
        if message.receipt:
            raise Rejected("receipts are given to sessions; name the token of one", 403, "no-session")
        from_ = f"{self._domain.public}/rest/{uuid4()}"
        exchange.session = visitor = Session(from_, self._node.sessions)
        visitor.proof = self._node.authenticator.who(exchange)
        visitor.identity = visitor.proof.user if visitor.proof is not None else exchange.identity
        self._node.handshake.check(message, from_, visitor, exchange)
        return _with_sender(message, from_)

    def _has_nobody(self, message: Message) -> bool:
        return not any(self._domain.owns(to) or to in self._node.routes for to in _recipients(message))


class OpenAPIResource(Resource):
    """
    The resource that describes `/message` in OpenAPI.
    """

    isLeaf = True

    def render_GET(self, request: Request) -> bytes:
        request.setHeader(b"Access-Control-Allow-Origin", b"*")
        return answer_json(request, 200, DOCUMENT)


def _recipients(message: Message) -> list[str]:
    return [message.to] if isinstance(message.to, str) else message.to


def _wait(asked: dict[str, str], message: Message) -> float:
    """
    Returns the seconds to wait for a response; 0 if none is expected.
    """
    given = asked.get("wait")
    if given is None:
        single = isinstance(message.to, str) and not is_multicast(message.to)
        return WAIT_SECONDS if single and message.type.lower() in ANSWERED else 0
    if not given.isascii() or not given.isdigit() or len(given) > 6:
        raise Rejected(f"'wait' must be a whole number of seconds, not {given[:40]!r}")
    return min(int(given), MAX_WAIT_SECONDS)


def _with_sender(message: Message, from_: str) -> Message:
    """
    Returns the same message with another sender.
    """
    try:
        fields = msgspec.json.decode(message.data, type=dict[str, Raw])
        return decode(msgspec.json.encode({**fields, "from": from_}))
    except msgspec.DecodeError:  # a lone surrogate, which msgspec rejects
        return decode(lossless_json.dumps({**lossless_json.loads(message.data), "from": from_}))
