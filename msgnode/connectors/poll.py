"""
The resource `/poll`: what a long-polling client asks, in HTTP's words.
"""

import msgspec
from msgspec import Raw
from twisted.internet.interfaces import IReactorTime
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from msgnode.address import SESSION
from msgnode.closing import STOPPING, TAKEN
from msgnode.connectors.answers import answer_error, answer_json
from msgnode.connectors.asked import allow_origin, bearer, parameters, peer_of
from msgnode.connectors.cork import Cork
from msgnode.connectors.longpoll import PollConnection
from msgnode.connectors.wire import verified_name
from msgnode.errors import Malformed
from msgnode.gate import LAPSED
from msgnode.message import Message, decode
from msgnode.node import Node
from msgnode.session import Session

HOLD, LONGEST_HOLD = 25.0, 30.0  # seconds a GET waits; less than common proxies allow
OPENS = ("open", "re-open")
DISK_RETRY = 2  # seconds
AT_ONCE = 16 * 1024  # bytes of a POST that are carried before what they brought about is sent


class Wrong(Exception):
    """
    A request that is refused whole, with its HTTP status.
    """

    def __init__(self, status: int, text: str, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after = retry_after


class Poll(Resource):
    """
    POST and GET of docs/protocol.md, "Long-polling".
    """

    isLeaf = True

    def __init__(self, node: Node, cork: Cork, clock: IReactorTime) -> None:
        super().__init__()
        self._node = node
        self._cork = cork
        self._clock = clock
        self._clients: dict[Session, PollConnection] = {}
        self._purge_at = 100

    def render(self, request: Request) -> bytes | int:
        if self._node.draining:
            request.setHeader(b"Connection", b"close")
            return answer_error(request, 503, STOPPING.word, 1)
        if not allow_origin(request, self._node.config.allowed_origins):
            return answer_error(request, 403, "this origin is not allowed")
        if request.postpath:
            return answer_error(request, 404, "long-polling is at /poll")
        try:
            if request.method == b"POST":
                return self._post(request)
            if request.method == b"GET":
                return self._get(request)
        except Wrong as why:
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
            body.decode()
        except UnicodeDecodeError as why:
            raise Wrong(400, f"not UTF-8 at byte {why.start}") from None
        token = bearer(request)
        if token is None or not token.startswith("mns_"):
            return self._open(request, self._checked(body), token or "")
        client = self._client(token, request)
        self._check_disk()
        parts = _parts(body)
        for part in parts:
            if self._checked(part).to == SESSION and decode(part).type.lower() in OPENS:
                raise Wrong(400, "open a session with a POST of its own, without a token")
        return self._take(request, client, parts)

    def _take(self, request: Request, client: PollConnection, parts: list[bytes]) -> bytes:
        """
        Pass the messages on; those that came before, by the number of the first one, are skipped.
        """
        first = _number(request, "seq", client.accepted + 1)
        if not 1 <= first <= client.accepted + 1:
            raise Wrong(400, f"'seq' must be 1 to {client.accepted + 1}, not {first}")
        fresh = client.take_from(first, parts)
        while fresh:
            fresh = self._take_some(fresh, client)
            self._check_disk()
        answer = {"accepted": len(parts)}
        if parameters(request).get("seq"):
            answer["received"] = client.on_disk
        return answer_json(request, 202, answer)

    def _check_disk(self) -> None:
        """
        Who is told that a message was taken may forget it; so it must be written down by then.
        """
        failing = self._node.paper.failing
        if failing is not None:
            again = "some of it may have been taken: post it again with the same 'seq'"
            raise Wrong(503, f"the node cannot write this down now: {failing}; {again}", DISK_RETRY)

    def _take_some(self, parts: list[bytes], client: PollConnection) -> list[bytes]:
        """
        Pass on as much as a read of a socket would bring; the rest.
        """
        size = 0
        with self._cork:
            for number, part in enumerate(parts, 1):
                self._node.receive(part, client)
                size += len(part)
                if size >= AT_ONCE:
                    return parts[number:]
        return []

    def _open(self, request: Request, message: Message, token: str) -> bytes | int:
        if message.to != SESSION or message.type.lower() not in OPENS:
            raise Wrong(401, "open a session first, or name its token: Authorization: Bearer mns_...")
        client = self._make_client(request)
        client.bearer = token
        self._node.sessions.arrived(client)
        if client.refusal is None:
            self._node.receive(message.data, client)
        over = self._node.holding.settled(client)
        if over is None:
            return self._opened(request, client)
        request.notifyFinish().addErrback(lambda gone: self._node.sessions.lost(client))
        over.addCallback(lambda done: self._open_late(request, client))
        return NOT_DONE_YET

    def _open_late(self, request: Request, client: PollConnection) -> None:
        """
        It took a while to look at the client's token.
        """
        try:
            answer = self._opened(request, client)
        except Wrong as why:
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
                raise Wrong(400, "not an open of a session")
            retry = None if why.retry_after is None else round(why.retry_after)
            status = 401 if why.code == TAKEN.code else 403 if retry is None else 503
            return answer_error(request, status, why.reason, retry)
        messages = [msgspec.json.decode(data) for data in greeting]
        self._remember(client, client.session)
        return answer_json(request, 200, {"messages": messages, "cursor": client.acknowledged})

    def _checked(self, data: bytes) -> Message:
        longest = self._node.config.limits.message
        if len(data) > longest:
            raise Wrong(413, f"a message has at most {longest} bytes, not {len(data)}")
        try:
            return decode(data)
        except Malformed as why:
            raise Wrong(400, str(why)) from None

    def _remember(self, client: PollConnection, session: Session) -> None:
        """
        This client polls for the session from now on.
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
        peer = peer_of(request, self._node.config)
        client = PollConnection(peer, self._node.sessions, self._cork, self._clock)
        client.identity = verified_name(request.channel.transport)
        return client

    # -- GET -----------------------------------------------------------------

    def _get(self, request: Request) -> int:
        token = bearer(request)
        if token is None:
            raise Wrong(401, "name the session's token: Authorization: Bearer mns_...")
        client = self._client(token, request)
        hold = min(max(_number(request, "wait", int(HOLD)), 0), LONGEST_HOLD)
        after = _number(request, "after", client.acknowledged)
        if not client.acknowledged <= after <= client.cursor:
            told = f"from {client.acknowledged} to {client.cursor}"
            raise Wrong(400, f"'after' must be a cursor that was handed out, {told}, not {after}")
        client.poll(request, after, hold)
        return NOT_DONE_YET

    def _client(self, token: str, request: Request) -> PollConnection:
        """
        The client of that token; a session that has another connection, or lost it, goes on here.
        """
        session = self._node.sessions.by_token(token)
        if session is None:
            raise Wrong(401, "no session has this token; open one")
        if self._node.gate.lapsed(session):
            raise Wrong(401, LAPSED)
        client = self._clients.get(session)
        if client is None:
            client = self._make_client(request)
            client.greeting = None
            self._remember(client, session)
        if client.session is None or session.connection is None:
            client.refusal = None
            self._node.sessions.arrived(client)
            if client.refusal is not None:
                raise Wrong(503, client.refusal.word)
            self._node.handshake.come_back(session, client)
            why = client.refusal
            if why is not None:
                raise Wrong(403 if why.retry_after is None else 503, why.word)
            client.linger()
        return client


def _number(request: Request, name: str, default: int) -> int:
    given = parameters(request).get(name, "")
    if not given:
        return default
    try:
        return int(given)
    except ValueError:
        raise Wrong(400, f"{name!r} must be a whole number, not {given[:40]!r}") from None


def _parts(body: bytes) -> list[bytes]:
    """
    The messages in the body, one object or an array of them, as they came.
    """
    if body.lstrip()[:1] != b"[":
        return [body]
    try:
        return [bytes(part) for part in msgspec.json.decode(body, type=list[Raw])]
    except (msgspec.DecodeError, RecursionError):
        raise Wrong(400, "not JSON") from None
