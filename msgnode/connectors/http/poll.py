"""
The resource `/poll`: the HTTP interface of long-polling.
"""

from collections.abc import Generator
from functools import partial

import msgspec
from twisted.internet.defer import DeferredLock
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from msgnode.cluster.relay.wire import POLL
from msgnode.connectors.http.poll_connection import REMOVED_TEXT, PollConnection
from msgnode.connectors.http.poll_post import OPENS, HTTPRefusal, PollPost, Step, checked
from msgnode.connectors.http.relaying import Relaying
from msgnode.connectors.http.requests import (
    MAX_WAIT_SECONDS,
    WAIT_SECONDS,
    agent_of,
    allow_origin,
    bearer,
    identity_of,
    origin_of,
    parameters,
    peer_of,
    session_of,
)
from msgnode.node import Node
from msgnode.protocol.address import SESSION
from msgnode.protocol.close_codes import REMOVED, STOPPING, TOKEN_REJECTED, Closing
from msgnode.protocol.message import Message
from msgnode.sessions.access.authentication import LAPSED
from msgnode.sessions.session import Session
from msgnode.transport.cork import Cork
from msgnode.transport.http_answers import answer_error, answer_json

log = Logger()

UNKNOWN = "no session has this token; open one"
MAX_POSTS = 10  # POSTs of one client that wait for an earlier one


class PollResource(Resource):
    """
    The resource `/poll`: POST and GET of docs/protocol.md, "Long-polling".
    """

    isLeaf = True

    def __init__(self, node: Node, cork: Cork, clock: IReactorTime) -> None:
        super().__init__()
        self._node = node
        self._cork = cork
        self._clock = clock
        self._relaying = Relaying(node, POLL)
        self._clients: dict[Session, PollConnection] = {}
        self._purge_at = 100

    def render(self, request: Request) -> bytes | int:
        if self._node.draining:
            request.setHeader(b"Connection", b"close")
            return answer_error(request, 503, STOPPING.word, 1)
        if not allow_origin(request, self._node.config.origins):
            return answer_error(request, 403, "this origin is not allowed")
        if request.postpath:
            return answer_error(request, 404, "long-polling is at /poll")
        try:
            if request.method in (b"GET", b"POST"):
                relayed = self._relaying.by_token(request, UNKNOWN)
                if relayed is not None:
                    return relayed
                return self._post(request) if request.method == b"POST" else self._get(request)
        except HTTPRefusal as why:
            return answer_error(request, why.status, str(why), why.retry_after)
        if request.method == b"OPTIONS":
            request.setResponseCode(204)
            return b""
        request.setHeader(b"Allow", b"GET, POST, OPTIONS")
        return answer_error(request, 405, f"GET and POST, not {request.method.decode('latin-1')}")

    # -- POST ----------------------------------------------------------------

    def _post(self, request: Request) -> bytes | int:
        body: bytes = request.content.read()  # type: ignore[union-attr]
        try:
            if not body.isascii():
                body.decode()
        except UnicodeDecodeError as why:
            raise HTTPRefusal(400, f"not UTF-8 at byte {why.start}") from None
        token = bearer(request)
        if token is None or not token.startswith("mns_"):
            return self._open(request, checked(body, self._node.config.limits.message_bytes), token or "")
        lock = self._client(token, request).posting
        if lock.locked:
            if len(lock.waiting) >= MAX_POSTS:
                raise HTTPRefusal(503, f"{MAX_POSTS} POSTs of this session wait already; post it again", 1)
            lock.acquire().addCallback(
                lambda lock: self._go_on(None, self._take(request, token, body), request, lock)
            )
            return NOT_DONE_YET
        work = self._take(request, token, body)
        try:
            step = next(work)
        except StopIteration as done:
            answer: bytes = done.value
            return answer
        lock.acquire()  # the lock is free
        self._go_on(step, work, request, lock)
        return NOT_DONE_YET

    def _take(self, request: Request, token: str, body: bytes) -> Generator[Step, None, bytes]:
        """
        Accept the messages of a POST, in slices; returns the answer.
        """
        client = self._client(token, request)
        posting = PollPost(self._node, self._cork, client, body)
        number = yield from posting.work(partial(_number, request, "seq"))
        answer = {"accepted": number}
        if parameters(request).get("seq"):
            answer["received"] = client.on_disk
        return answer_json(request, 202, answer)

    def _go_on(
        self, step: Step, work: Generator[Step, None, bytes], request: Request, lock: DeferredLock
    ) -> None:
        """
        Finish a POST that takes more than one turn of the reactor; the client's next POST waits for it.
        """

        def answered() -> Generator[Step, None, None]:
            yield step
            try:
                answer = yield from work
            except HTTPRefusal as why:
                answer = answer_error(request, why.status, str(why), why.retry_after)
            if request.channel is not None:
                request.write(answer)
                request.finish()

        over = self._node.slices.work(answered())
        over.addErrback(self._failed, request)
        over.addBoth(lambda done: lock.release())

    @staticmethod
    def _failed(why: Failure, request: Request) -> None:
        log.failure("a POST to /poll could not be handled", why)
        if request.channel is not None:
            request.write(answer_error(request, 500, "the node failed over this POST; its log says why"))
            request.finish()

    def _open(self, request: Request, message: Message, token: str) -> bytes | int:
        if message.to != SESSION or message.type.lower() not in OPENS:
            raise HTTPRefusal(401, "open a session first, or name its token: Authorization: Bearer mns_...")
        client = self._make_client(request)
        client.bearer = token
        self._node.sessions.connections.made(client)
        if client.refusal is None:
            with self._cork:
                self._node.receive(message.data, client)
        over = self._node.input_order.settled(client)
        if over is None:
            return self._opened(request, client)
        request.notifyFinish().addErrback(lambda gone: self._node.sessions.connections.lost(client))
        over.addCallback(lambda done: self._open_late(request, client))
        return NOT_DONE_YET

    def _open_late(self, request: Request, client: PollConnection) -> None:
        """
        Answer an `open` that had to wait until the client's token was validated.
        """
        try:
            answer = self._opened(request, client)
        except HTTPRefusal as why:
            answer = answer_error(request, why.status, str(why))
        if request.channel is not None:
            request.write(answer)
            request.finish()

    def _opened(self, request: Request, client: PollConnection) -> bytes:
        self._cork.settle()  # before the answer leaves
        greeting, client.greeting = client.greeting or [], None
        if client.session is None:
            why = client.refusal
            if why is None:
                raise HTTPRefusal(400, "not an open of a session")
            retry = None if why.retry_after is None else round(why.retry_after)
            status = 401 if why.code == TOKEN_REJECTED.code else 403 if retry is None else 503
            if why.code == REMOVED.code:
                status = 410
            return answer_error(request, status, why.reason, retry)
        messages = [msgspec.json.decode(data) for data in greeting]
        self._remember(client, client.session)
        return answer_json(request, 200, {"messages": messages, "cursor": client.acknowledged})

    def _remember(self, client: PollConnection, session: Session) -> None:
        """
        Make this client the one that polls for the session.
        """
        older = self._clients.get(session)
        if older is not None:
            older.give_way()
        self._clients[session] = client
        client.linger()
        if len(self._clients) > self._purge_at:
            known = self._node.sessions
            self._clients = {s: c for s, c in self._clients.items() if known.get(s.runtime) is s}
            self._purge_at = 2 * len(self._clients) + 100

    def _make_client(self, request: Request) -> PollConnection:
        peer = peer_of(request, self._node.connection_limits)
        client = PollConnection(peer, self._node.sessions, self._cork, self._clock)
        client.identity = identity_of(request)
        client.origin, client.user_agent = origin_of(request), agent_of(request)
        return client

    # -- GET -----------------------------------------------------------------

    def _get(self, request: Request) -> int:
        token = bearer(request)
        if token is None:
            raise HTTPRefusal(401, "name the session's token: Authorization: Bearer mns_...")
        client = self._client(token, request)
        hold = min(max(_number(request, "wait", int(WAIT_SECONDS)), 0), MAX_WAIT_SECONDS)
        after = _number(request, "after", client.acknowledged)
        if not client.acknowledged <= after <= client.cursor:
            told = f"from {client.acknowledged} to {client.cursor}"
            raise HTTPRefusal(400, f"'after' must be a cursor that was handed out, {told}, not {after}")
        client.poll(request, after, hold)
        return NOT_DONE_YET

    def _client(self, token: str, request: Request) -> PollConnection:
        """
        Returns the client of that session token; a session with another connection, or none, continues here.
        """
        session = session_of(request, token, self._node.sessions)
        if session is None:
            raise HTTPRefusal(401, UNKNOWN)
        if self._node.authenticator.lapsed(session):
            raise HTTPRefusal(401, LAPSED)
        client = self._clients.get(session)
        if client is None:
            client = self._make_client(request)
            client.greeting = None
            self._remember(client, session)
        if client.session is None or session.connection is None:
            client.refusal = None
            self._node.sessions.connections.made(client)
            if client.refusal is not None:
                raise _come_back_refused(client.refusal, 503)
            self._node.handshake.come_back(session, client)
            why = client.refusal
            if why is not None:
                raise _come_back_refused(why, 403 if why.retry_after is None else 503)
            client.linger()
        return client


def _number(request: Request, name: str, default: int) -> int:
    given = parameters(request).get(name, "")
    if not given:
        return default
    try:
        return int(given)
    except ValueError:
        raise HTTPRefusal(400, f"{name!r} must be a whole number, not {given[:40]!r}") from None


def _come_back_refused(why: Closing, status: int) -> HTTPRefusal:
    """
    The refusal of a client that comes back with its session token: 410 if an operator removed it.
    """
    retry_after = None if why.retry_after is None else round(why.retry_after)
    if why.code == REMOVED.code:
        return HTTPRefusal(410, REMOVED_TEXT, retry_after)
    return HTTPRefusal(status, why.word)
