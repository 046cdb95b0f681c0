"""
REST at `/events`: a subscription as server-sent events.

A stream has a session. It is the one whose token the request has, or one that the node opens for it; then the
ids of its events contain the token, so that a browser that comes back by Last-Event-ID finds it again.
"""

import re
from collections import Counter
from functools import partial
from math import ceil
from secrets import randbits
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from msgnode.connectors.http.poll_connection import REMOVED_TEXT, SUPERSEDED_RETRY_SECONDS, TAKEN_OVER
from msgnode.connectors.http.poll_post import HTTPRefusal
from msgnode.connectors.http.requests import (
    MAX_WAIT_SECONDS,
    SESSION_TOKEN_PREFIX,
    bearer,
    headers,
    identity_of,
    origin_of,
    parameter_list,
    peer_of,
)
from msgnode.connectors.http.rest.event_stream import EventStream, StreamBounds
from msgnode.connectors.http.rest.exchange import RestExchange, again_in
from msgnode.connectors.http.rest.resource_request import status_of
from msgnode.connectors.http.rest.sending import UNKNOWN, RestSending
from msgnode.node import Node
from msgnode.protocol.address import MAX_ADDRESS_CHARS, SESSION
from msgnode.protocol.close_codes import REMOVED, SUPERSEDED, TOKEN_REJECTED
from msgnode.protocol.errors import FAILED, Rejected, error_body
from msgnode.protocol.message import Message
from msgnode.protocol.peer_address import peer_host
from msgnode.sessions.access.authentication import LAPSED
from msgnode.sessions.session import Session, hashed
from msgnode.transport.cork import Cork
from msgnode.transport.http_answers import answer_error

MAX_RESOURCES = 100
OPENED, RESUMED, REFUSED, GAP = "opened", "resumed", "refused", "gap"

_ID = re.compile(r"(\d{1,15})\.([0-9a-f]{16})(?:\.(mns_[A-Za-z0-9_-]{43}))?")

log = Logger()


class LastEvent(NamedTuple):
    """
    The last event that a client has: its number, the epoch of the number, and the token in its id, if any.
    """

    number: int
    epoch: str
    token: str


class Asked(NamedTuple):
    """
    A request for a stream: addresses, the token that it shows, and the last event.
    """

    resources: list[str]
    token: str
    last: LastEvent | None

    @property
    def session_token(self) -> str:
        """
        The token of the session that the stream is for; "" for a new one.
        """
        if self.token.startswith(SESSION_TOKEN_PREFIX):
            return self.token
        return self.last.token if self.last is not None else ""


class Events(Resource):
    """
    The resource `/events`: docs/rest.md.
    """

    isLeaf = True

    def __init__(self, node: Node, sending: RestSending, cork: Cork, clock: IReactorTime) -> None:
        super().__init__()
        self._node = node
        self._sending = sending
        self._cork = cork
        self._clock = clock
        self._number = 0
        self._by_host: Counter[str] = Counter()

    def render(self, request: Request) -> Any:
        token = bearer(request) or _access_token(request)
        refusal = self._sending.refusal(request, (b"GET",), token)
        if refusal is not None:
            return refusal
        try:
            if request.postpath not in (None, [], [b""]):
                raise HTTPRefusal(404, "event streams are at /events?resource=...")
            asked = Asked(_resources(request), token, _last_event(request))
            stream = self._admitted(request)
        except (HTTPRefusal, Rejected) as why:
            self._refuse(Failure(why), request)
            return NOT_DONE_YET
        opened = Deferred.fromCoroutine(self._open(stream, request, asked))
        opened.addErrback(self._give_up, stream, request)
        return NOT_DONE_YET

    def _admitted(self, request: Request) -> EventStream:
        """
        A stream that counts for its peer until it is over.
        """
        limits, bounds = self._node.config.limits, self._node.config.session
        peer = peer_of(request, self._node.connection_limits)
        host = peer_host(peer, self._node.config.trusted_proxies)
        if self._number >= limits.event_streams:
            raise HTTPRefusal(503, f"{self._number} event streams are open (limits.event_streams)", 30)
        if host and self._by_host[host] >= limits.event_streams_per_ip:
            most = limits.event_streams_per_ip
            raise HTTPRefusal(
                429, f"{most} event streams of {host} are open (limits.event_streams_per_ip)", 30
            )
        self._number += 1
        self._by_host[host] += 1
        window = StreamBounds(max(1, bounds.queue_messages // 2), bounds.queue_bytes // 2)
        stream = EventStream(request, self._node.sessions, self._cork, self._clock, window)
        stream.peer, stream.identity, stream.origin = peer, identity_of(request), origin_of(request)
        stream.on_gone.append(partial(self._gone, host))
        return stream

    def _gone(self, host: str) -> None:
        self._number -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    # -- opening -----------------------------------------------------------------

    async def _open(self, stream: EventStream, request: Request, asked: Asked) -> None:
        runtime = await self._runtime(asked)
        token = asked.session_token if runtime else ""
        stream.bearer = "" if asked.token.startswith(SESSION_TOKEN_PREFIX) else asked.token
        if stream.is_over:
            return
        last = asked.last
        resume: Any = {"epoch": last.epoch, "received": last.number} if last is not None and token else True
        await self._handshake(stream, runtime, token, resume)
        session = stream.session
        if stream.is_over or session is None:
            return
        self._cork.settle()
        opened = msgspec.json.decode(stream.greeting[-1])["body"]
        given = opened.get("runtimeToken", "")
        await self._subscribe(stream, request, session, asked.resources, given or token, bool(given))
        _check(stream)
        if stream.is_over:
            return
        # A client that shows a token of its own does not need one in the ids.
        shown = "" if asked.token.startswith(SESSION_TOKEN_PREFIX) else given or token
        self._begin(stream, session, last, opened["resume"], shown)

    async def _runtime(self, asked: Asked) -> str:
        """
        The runtimeURL of the session that the stream is for, here or at another member; "" for a new one.
        """
        token, sessions, members = asked.session_token, self._node.sessions, self._node.member_relay
        if not token:
            return ""
        session = sessions.by_token(token)
        if session is None and members is not None:
            node = await members.holders.find(hashed(token))
            if node:
                return await members.names.find(node, hashed(token))
            session = sessions.by_token(token)  # it may have come meanwhile
        if session is None and asked.token == token:
            raise Rejected(UNKNOWN, 401, "token")
        if session is not None and self._node.authenticator.lapsed(session):
            raise Rejected(LAPSED, 401, "token")
        return session.runtime if session is not None else ""

    async def _handshake(self, stream: EventStream, runtime: str, token: str, resume: Any) -> None:
        """
        Open or re-open the session of the stream, as any client does. Raises HTTPRefusal.
        """
        message = {
            "id": 1,
            "type": "re-open" if runtime else "open",
            "to": SESSION,
            "body": {"resume": resume},
        }
        if runtime:
            message["from"] = f"{runtime}/{token}"
        self._node.sessions.connections.made(stream)
        if stream.refusal is None:
            with self._cork:
                self._node.receive(msgspec.json.encode(message), stream)
            settled = self._node.input_order.settled(stream)
            if settled is not None:
                await settled
        _check(stream)
        if stream.session is None and not stream.is_over:
            raise HTTPRefusal(500, FAILED)

    async def _subscribe(
        self,
        stream: EventStream,
        request: Request,
        session: Session,
        resources: list[str],
        token: str,
        is_new: bool,
    ) -> None:
        """
        Subscribe the session to the addresses. Raises HTTPRefusal, and ends a session that is new.
        """
        answered: Deferred[Message] = Deferred()
        exchange = RestExchange(
            self._node,
            self._clock,
            answered.callback,
            lambda status, text, retry: answered.errback(_refusal(status, text, retry)),
        )
        exchange.known_session = session
        message: dict[str, Any] = {"id": randbits(53), "type": "subscribe", "from": session.runtime}
        message |= {"to": f"{self._sending.domain.node}/sm", "body": {"resources": resources}}
        if self._node.config.session.message_token == "require":
            message["token"] = token
        self._sending.describe(exchange, request)
        stream.on_gone.append(exchange.end)
        try:
            self._sending.send(
                exchange, self._sending.checked(msgspec.json.encode(message)), MAX_WAIT_SECONDS
            )
            if stream.is_over:
                return
            response = await answered
            status = status_of(response)
            if not 200 <= status < 300:
                text = response.field("description") or f"the subscription was answered {status}"
                raise HTTPRefusal(status if 400 <= status <= 599 else 502, str(text))
        except (HTTPRefusal, Rejected):
            if is_new:
                self._node.sessions.end(session, "closed")
            raise
        finally:
            exchange.end()

    def _begin(
        self, stream: EventStream, session: Session, last: LastEvent | None, resume: Any, token: str
    ) -> None:
        """
        Begin the stream behind the last event; the client learns what it missed, and of what session it is.
        """
        missed, is_same = resume["missed"], last is not None and resume["epoch"] == last.epoch
        about: dict[str, Any] = {"runtime": session.runtime}
        if token:
            about["token"] = token
        events: list[tuple[str, dict[str, Any]]] = [("session", about)]
        if last is not None and (missed != 0 or not is_same):
            events.append(("gap", {"missed": missed if is_same else None}))
            self._node.counts.event_streams[GAP] += 1
        self._node.counts.event_streams[RESUMED if is_same else OPENED] += 1
        assert stream.outbox is not None
        stream.begin(stream.outbox.acknowledged, f"{resume['epoch']}.{token}".rstrip("."), events)

    # -- refusing ----------------------------------------------------------------

    def _give_up(self, why: Failure, stream: EventStream, request: Request) -> None:
        was_over = stream.is_over
        stream.gone()
        if not was_over and request.channel is not None:
            self._refuse(why, request)

    def _refuse(self, failure: Failure, request: Request) -> None:
        """
        Answer with the status of the refusal. A browser never comes back after one, so a temporary refusal is
        an event for it.
        """
        why = failure.value
        if isinstance(why, HTTPRefusal):
            status, text, retry = why.status, str(why), why.retry_after
        elif isinstance(why, Rejected):
            status, text, retry = why.code, str(why), again_in(why)
        else:
            log.failure("an event stream could not be opened", failure)
            status, text, retry = 500, FAILED, None
        self._node.counts.event_streams[REFUSED] += 1
        if retry is not None and any("text/event-stream" in each for each in headers(request, b"Accept")):
            request.setHeader(b"Content-Type", b"text/event-stream")
            request.setHeader(b"Cache-Control", b"no-store")
            data = msgspec.json.encode({**error_body(status, text), "retry_after": retry})
            request.write(b"retry: %d\nevent: refused\ndata: %s\n\n" % (1000 * retry, data))
        else:
            request.write(answer_error(request, status, text, retry))
        request.finish()


def _check(stream: EventStream) -> None:
    """
    Raises HTTPRefusal if the node closed the stream before it began.
    """
    why = stream.refusal
    if why is None:
        return
    retry = None if why.retry_after is None else ceil(why.retry_after)
    if why.code == REMOVED.code:
        raise HTTPRefusal(410, REMOVED_TEXT, retry)
    if why.code == SUPERSEDED.code:
        raise HTTPRefusal(409, TAKEN_OVER, SUPERSEDED_RETRY_SECONDS)
    status = 401 if why.code == TOKEN_REJECTED.code else 403 if retry is None else 503
    raise HTTPRefusal(status, why.reason, retry)


def _refusal(status: int, text: str, retry_after: float | None) -> HTTPRefusal:
    return HTTPRefusal(status, text, None if retry_after is None else ceil(retry_after))


def _access_token(request: Request) -> str:
    """
    The token in the query (RFC 6750, 2.3): an EventSource can send no header field.
    """
    query = request.uri.partition(b"?")[2].decode("latin-1")
    found = [part.partition("=")[2] for part in query.split("&") if part.startswith("access_token=")]
    return unquote(found[0]) if found else ""


def _resources(request: Request) -> list[str]:
    found: dict[str, None] = {}
    for name, value in parameter_list(request, MAX_RESOURCES + 1):
        if name not in ("resource", "access_token"):
            raise HTTPRefusal(400, f"unknown parameter {name[:40]!r}; known are resource and access_token")
        if name == "resource":
            if not value or len(value) > MAX_ADDRESS_CHARS or not value.isprintable():
                text = f"'resource' is an address of at most {MAX_ADDRESS_CHARS} printable characters"
                raise HTTPRefusal(400, f"{text}, not {value[:80]!r}")
            found[value] = None
    if not 1 <= len(found) <= MAX_RESOURCES:
        raise HTTPRefusal(400, f"name 1 to {MAX_RESOURCES} addresses: /events?resource=<address>")
    return list(found)


def _last_event(request: Request) -> LastEvent | None:
    given = next(iter(headers(request, b"Last-Event-ID")), "")
    if not given:
        return None
    found = _ID.fullmatch(given)
    if found is None:
        raise HTTPRefusal(400, f"Last-Event-ID must be the id of an event of the node, not {given[:40]!r}")
    return LastEvent(int(found[1]), found[2], found[3] or "")
