"""
The transport of the client for networks that let only HTTP pass: long-polling at `/poll`.

A link is a session that is polled: one GET waits at the node, and one POST at a time brings it messages.
The numbers of resume are in `seq`, `after` and the answers (docs/protocol.md, "Long-polling"), so the
client's acknowledgements stay here, and the node's are made here.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.interfaces import IDelayedCall, IStreamClientEndpoint
from twisted.internet.protocol import Protocol as StreamProtocol
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web.http_headers import Headers
from zope.interface import implementer

from msgnode.client.message import decode, encode
from msgnode.client.polling.requests import Got, HTTPRequests
from msgnode.client.transports import Owner
from msgnode.protocol.address import SESSION, split_token
from msgnode.protocol.close_codes import CLOSED, REFUSED, SUPERSEDED, TOKEN_REJECTED, Closing

WAIT_SECONDS = 25  # that the node holds a GET
ASK_SECONDS = 0.5  # until the node is asked which messages it has, if it has not said so
MAX_POSTED, MAX_POSTED_BYTES = 1000, 1024 * 1024  # messages in one POST, unless a single one is longer
TOO_LONG, TRY_LATER, REMOVED = 1009, 1013, 4410


class _Polled(msgspec.Struct):
    """
    The answer to a GET, or to the POST that opens; messages stay as they were written.
    """

    messages: list[msgspec.Raw]
    cursor: int


class PollTransport:
    """
    A transport without a connection of its own: it ends the link.
    """

    def __init__(self, reactor: Any, protocol: Any, end: Callable[[], None]) -> None:
        self._reactor = reactor
        self._protocol = protocol
        self._end = end
        self._is_over = False

    def loseConnection(self) -> None:
        self._over(ConnectionDone())

    def abortConnection(self) -> None:
        self._over(ConnectionAborted())

    def _over(self, why: Exception) -> None:
        if not self._is_over:
            self._is_over = True
            self._end()
            # Never from within a call of the protocol's owner.
            self._reactor.callLater(0, self._protocol.connectionLost, Failure(why))


@implementer(IStreamClientEndpoint)
class PollEndpoint:
    """
    An endpoint that connects at once: the link finds out with its first request if there is a node.

    `url` is that of `/poll`, and `endpoint` leads to its host, with TLS where the URL is https://.
    """

    def __init__(self, reactor: Any, url: str, endpoint: IStreamClientEndpoint) -> None:
        self._reactor = reactor
        self._url = url.encode()
        self._endpoint = endpoint

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        requests = HTTPRequests(self._reactor, self._url, self._endpoint)
        protocol = protocolFactory.buildProtocol(None)
        protocol.use(requests, self._reactor)
        protocol.makeConnection(PollTransport(self._reactor, protocol, requests.stop))
        return succeed(protocol)


class PollLink(StreamProtocol):
    """
    A link of long-polling.
    """

    speaks = "long-polling"
    pings = True  # each request has a time
    silent = False
    transport: Any
    _requests: HTTPRequests
    _reactor: Any

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._token = ""
        self._cursor = self._acknowledged = 0
        self._number: int | None = None  # of the next message; None if this session does not count
        self._received = 0  # messages that the node has on disk
        self._is_open = self._is_posting = self._is_reading = self._is_leaving = self._is_closing = (
            self._is_over
        ) = False
        self._queue: deque[tuple[bool, bytes]] = deque()  # is it for the session service, and the message
        self._why: Closing | None = None
        self._text = ""
        self._ask: IDelayedCall | None = None

    def use(self, requests: HTTPRequests, reactor: Any) -> None:
        """
        Called with the requests of this link, before it is connected.
        """
        self._requests, self._reactor = requests, reactor

    def connectionMade(self) -> None:
        self._owner.arrived(self)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._is_over = True
        if self._ask is not None and self._ask.active():
            self._ask.cancel()
        self._owner.lost(self, self._why, self._text or reason.getErrorMessage())

    # -- what the client sends -------------------------------------------------

    def send(self, data: bytes) -> None:
        message = decode(data) if SESSION.encode() in data else None
        is_session = message is not None and message.get("to") == SESSION
        if not self._is_open:
            self._token = split_token(str((message or {}).get("from") or ""))[1] or ""
            self._post(data, "", "", self._opened)
            return
        if is_session and message is not None and message.get("type") == "ack":
            return  # the next GET says so
        self._queue.append((is_session, data))
        self._post_next()

    def leave(self) -> None:
        """
        End the link after all written messages are posted.
        """
        self._is_leaving = True
        self._post_next()

    def abort(self) -> None:
        self.transport.abortConnection()

    def _post(self, body: bytes, query: str, token: str, got: Got) -> None:
        self._requests.ask(b"POST", query, token, body, got, self._failed)

    def _opened(self, status: int, headers: Headers, body: bytes) -> None:
        if status != 200:
            self._refused(status, headers, body, opening=True)
            return
        answer = _polled(body)
        if answer is None:
            self._failed("the peer is not a messaging node, or this is another of its ports")
            return
        self._cursor, self._is_open = answer.cursor, True
        for data in map(bytes, answer.messages):
            told = (decode(data) or {}).get("body") or {}
            self._token = str(told.get("runtimeToken") or self._token)
            if isinstance(told.get("resume"), dict):
                self._received = int(told["resume"].get("received", 0))
                self._number = self._received + 1
            self._owner.heard(data)
        if not self._is_over:
            self._get()
            self._post_next()

    def _post_next(self) -> None:
        if self._is_posting or self._is_reading or self._is_over or not self._is_open:
            return
        if not self._queue:
            if self._is_leaving:
                self._end(None, "this client left")
            return
        self._is_posting = True
        is_session, first = self._queue.popleft()
        if is_session:
            if (decode(first) or {}).get("type") == "close":
                self._close(first)
            else:
                self._post(first, "", self._token, self._session_posted)
            return
        batch, size = [first], len(first)
        while not _is_alone(batch[-1]) and self._queue and len(batch) < MAX_POSTED:
            if self._queue[0][0] or _is_alone(self._queue[0][1]):
                break
            size += len(self._queue[0][1])
            if size > MAX_POSTED_BYTES:
                break
            batch.append(self._queue.popleft()[1])
        query = "" if self._number is None else f"?seq={self._number}"
        if self._number is not None:
            self._number += len(batch)
        body = first if len(batch) == 1 else b"[" + b",".join(batch) + b"]"
        self._post(body, query, self._token, self._posted)

    def _session_posted(self, status: int, headers: Headers, body: bytes) -> None:
        if status >= 300:
            self._refused(status, headers, body)
            return
        self._is_posting = False
        self._post_next()

    def _close(self, message: bytes) -> None:
        """
        Acknowledge what came, with a GET that supersedes the waiting one, and then close the session.
        """
        self._is_closing = True

        def close(*answer: Any) -> None:
            if not self._is_over:
                self._post(message, "", self._token, self._closed)

        if self._acknowledged < self._cursor:
            query = f"?wait=0&after={self._cursor}"
            self._requests.ask(b"GET", query, self._token, None, close, close)
        else:
            close()

    def _closed(self, status: int, headers: Headers, body: bytes) -> None:
        self._end(CLOSED, CLOSED.word)

    def _posted(self, status: int, headers: Headers, body: bytes) -> None:
        if status >= 300:
            self._refused(status, headers, body)
            return
        self._is_posting = False
        received = (decode(body) or {}).get("received")
        if self._number is not None and isinstance(received, int):
            if received > self._received:
                self._received = received
                self._owner.heard(encode({"type": "ack", "from": SESSION, "body": {"received": received}}))
            if received < self._number - 1 and (self._ask is None or not self._ask.active()):
                self._ask = self._reactor.callLater(ASK_SECONDS, self._ask_received)
        self._post_next()

    def _ask_received(self) -> None:
        """
        Ask which messages the node has on disk by now, with a POST of none.
        """
        if self._is_posting or self._queue or self._is_over:
            return  # the answer to that will say it
        self._is_posting = True
        self._post(b"[]", f"?seq={self._number}", self._token, self._posted)

    # -- what the node sends ---------------------------------------------------

    def _get(self) -> None:
        self._acknowledged = self._cursor
        query = f"?wait={WAIT_SECONDS}&after={self._cursor}"
        self._requests.ask(b"GET", query, self._token, None, self._got, self._failed)

    def _got(self, status: int, headers: Headers, body: bytes) -> None:
        if self._is_closing:
            return
        if status == 200:
            answer = _polled(body)
            if answer is None:
                self._failed("the answer to a GET is not one of a messaging node")
                return
            self._is_reading = True  # a close that a message causes acknowledges this answer first
            for data in map(bytes, answer.messages):
                if self._is_over:
                    return
                self._owner.heard(data)
            self._is_reading, self._cursor = False, answer.cursor
            self._post_next()
            if self._is_closing:
                return
        elif status != 204:
            self._refused(status, headers, body)
            return
        if not self._is_over:
            self._get()

    # -- the end ---------------------------------------------------------------

    def _refused(self, status: int, headers: Headers, body: bytes, opening: bool = False) -> None:
        """
        End the link with the close code that a WebSocket would have.
        """
        told = decode(body) or {}
        text = str(told.get("desc") or f"the answer is {status}")
        [after, *_] = headers.getRawHeaders(b"Retry-After") or [b""]
        retry = float(after) if after.isdigit() else None
        why: Closing | None = None
        if status == 401 and opening:
            why = Closing(TOKEN_REJECTED.code, TOKEN_REJECTED.word, retry)
        elif status == 403:
            why = Closing(REFUSED.code, text, retry)
        elif status == 409:
            why = SUPERSEDED
        elif status == 410:
            why = Closing(REMOVED, text, retry)
        elif status == 413:
            why = Closing(TOO_LONG, text)
        elif status in (429, 503):
            why = Closing(TRY_LATER, text, retry or 1.0)
        self._end(why, text)

    def _failed(self, text: str) -> None:
        self._end(None, text)

    def _end(self, why: Closing | None, text: str) -> None:
        if not self._is_over:
            self._is_over = True
            self._why, self._text = why, text
            self.transport.loseConnection()


def _is_alone(data: bytes) -> bool:
    """
    Might it have a lone surrogate?  The node takes such a message, but no list with one.
    """
    return b"\\ud" in data or b"\\uD" in data


def _polled(body: bytes) -> _Polled | None:
    try:
        return msgspec.json.decode(body, type=_Polled)
    except msgspec.DecodeError:
        found = decode(body) or {}
    messages, cursor = found.get("messages"), found.get("cursor")
    if not isinstance(messages, list) or not isinstance(cursor, int):
        return None
    return _Polled([msgspec.Raw(encode(message)) for message in messages], cursor)
