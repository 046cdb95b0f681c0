"""
The requests that came to this node and belong to a session at another member of the domain: they are relayed.
"""

from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.server import NOT_DONE_YET, Request

from msgnode.cluster.relay.member_relay import MemberRelay
from msgnode.cluster.relay.relay import NotRelayed
from msgnode.cluster.relay.wire import (
    MAX_QUERY_CHARS,
    NOT_HELD,
    RESOURCE,
    SOCKET_IO,
    RelayedRequest,
    RelayedResponse,
)
from msgnode.connectors.http.relayed import RelayedHTTPRequest
from msgnode.connectors.http.requests import (
    CONDITIONAL_HEADERS,
    MAX_WAIT_SECONDS,
    SESSION_TOKEN_PREFIX,
    bearer,
    headers,
    identity_of,
    peer_of,
)
from msgnode.node import Node
from msgnode.protocol.errors import FAILED, Rejected
from msgnode.sessions.session import hashed
from msgnode.transport.http_answers import answer_error, write_all

ANSWER_SECONDS = 10.0  # for which a response may be under way, after the longest wait of its request
MAX_PEER_CHARS, MAX_IDENTITY_CHARS = 256, 2048

log = Logger()


class Relaying:
    """
    The requests to one resource of this node, by its name in cluster/relay/wire.py.
    """

    def __init__(self, node: Node, resource: str) -> None:
        self._node = node
        self._resource = resource

    def by_token(self, request: Request, unknown: str) -> int | None:
        """
        NOT_DONE_YET if the request has the token of a session that is not here: its holder answers it, or it
        is refused with 401 and the text `unknown`. None: it is for this node.
        """
        members, token = self._node.member_relay, bearer(request) or ""
        if (
            members is None
            or not token.startswith(SESSION_TOKEN_PREFIX)
            or isinstance(request, RelayedHTTPRequest)
        ):
            return None
        token_hash = hashed(token)
        if self._node.sessions.by_token_hash(token_hash) is not None:
            return None
        return self._begin(request, self._by_token(members, request, token_hash, unknown))

    def by_sid(self, request: Request, sid: str) -> int | None:
        """
        NOT_DONE_YET if the Socket.IO client with that sid is at another member, which answers the request.
        """
        members = self._node.member_relay
        if members is None or isinstance(request, RelayedHTTPRequest):
            return None
        node = members.sids.holder(sid)
        if not node:
            return None
        return self._begin(request, self._by_sid(members, request, node))

    async def _by_token(
        self, members: MemberRelay, request: Request, token_hash: bytes, unknown: str
    ) -> RelayedResponse:
        body = _body(request)
        for _ in range(2):  # it may have moved since it was found
            node = await members.holders.find(token_hash)
            if not node:
                if self._node.sessions.by_token_hash(token_hash) is None:
                    raise Rejected(unknown, 401, "token")
                break
            relayed = self._relayed(request, token_hash)
            response = await members.relay.request(node, relayed, body, self._seconds)
            if response.status != NOT_HELD:
                return response
        raise NotRelayed("the session is moving to another node; repeat the request")

    async def _by_sid(self, members: MemberRelay, request: Request, node: str) -> RelayedResponse:
        body = _body(request)
        return await members.relay.request(node, self._relayed(request, b""), body, self._seconds)

    @property
    def _seconds(self) -> float:
        wait = MAX_WAIT_SECONDS
        if self._resource == SOCKET_IO:
            wait = max(wait, self._node.config.websocket.ping_seconds)
        return wait + ANSWER_SECONDS

    def _relayed(self, request: Request, token_hash: bytes) -> RelayedRequest:
        query = request.uri.partition(b"?")[2].decode("latin-1")
        if len(query) > MAX_QUERY_CHARS:
            raise Rejected(f"a query has at most {MAX_QUERY_CHARS} characters, not {len(query)}", 400)
        return RelayedRequest(
            0,
            self._resource,
            request.method.decode("latin-1"),
            query,
            token_hash,
            peer_of(request, self._node.connection_limits)[:MAX_PEER_CHARS],
            identity_of(request)[:MAX_IDENTITY_CHARS],
            path=b"/".join(request.postpath or []).decode("latin-1") if self._resource == RESOURCE else "",
            headers=_headers(request) if self._resource == RESOURCE else [],
        )

    def _begin(self, request: Request, work: Coroutine[Deferred[Any], Any, RelayedResponse]) -> int:
        answered = Deferred.fromCoroutine(work)
        answered.addCallback(_answer, request)
        answered.addErrback(_refuse, request)
        request.notifyFinish().addErrback(lambda gone: answered.cancel())
        return NOT_DONE_YET


def _headers(request: Request) -> list[tuple[str, str]]:
    """
    The conditions and preferences of a request.
    """
    found = [(name.decode(), ",".join(headers(request, name))) for name in CONDITIONAL_HEADERS]
    if sum(len(value) for _, value in found) > MAX_QUERY_CHARS:
        raise Rejected(f"conditions and preferences have at most {MAX_QUERY_CHARS} characters")
    return [(name, value) for name, value in found if value]


def _body(request: Request) -> bytes:
    body: bytes = request.content.read()  # type: ignore[union-attr]
    return body


def _answer(response: RelayedResponse, request: Request) -> None:
    request.setResponseCode(response.status)
    for name, value in response.headers:
        request.setHeader(name.encode("latin-1", "replace"), value.encode("latin-1", "replace"))
    if response.data:
        request.setHeader(b"Content-Length", b"%d" % len(response.data))
        write_all(request, [response.data])
    else:
        request.finish()


def _refuse(why: Failure, request: Request) -> None:
    if why.check(CancelledError) or request.channel is None:
        return  # the client is gone
    if isinstance(why.value, NotRelayed):
        answer = answer_error(request, why.value.code, str(why.value), why.value.retry_after)
    elif isinstance(why.value, Rejected):
        answer = answer_error(request, why.value.code, str(why.value))
    else:
        log.failure("a request could not be relayed", why)
        answer = answer_error(request, 500, FAILED)
    request.write(answer)
    request.finish()
