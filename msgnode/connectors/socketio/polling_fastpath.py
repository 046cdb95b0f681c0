"""
A fast path for the polls of Socket.IO, which avoids Twisted's web server.

A message by polling costs two requests, and most of a request's time goes into
objects that are never used.  This path handles a poll or POST of a known client
that comes whole in one read, follows the strict grammar of RFC 9112 and has no
unusual header field.  The web server handles all other requests, and sends every
refusal.  A proxy in front and this path must never disagree about where a
request ends.
"""

import re
from typing import Any

from twisted.web.http import datetimeToString

from msgnode.connectors.socketio.client import SocketClient
from msgnode.connectors.socketio.codec import Garbled
from msgnode.connectors.socketio.resource import HTML, TEXT, take
from msgnode.connectors.socketio.websocket import SocketIOFactory, Unfit
from msgnode.transport.cork import CHUNK_BYTES, Cork, Outlet

GET, POST = b"GET /socket.io/?", b"POST /socket.io/?"
END = b"\r\n\r\n"
MAX_HEAD_BYTES = 8192
MAX_FIELDS = 64

# RFC 9112, sections 3 and 5, without the deviations that it lets a server accept: a request line of visible
# characters, then `name: value` lines; no space before the colon, no folded line, no control character, no
# bare CR or LF.  Each character can be matched in one way only, so that the match takes linear time.
_HEAD = re.compile(
    rb"(?:GET|POST) [!-~]+ HTTP/1\.1"
    rb"(?:\r\n[-!#$%&'*+.^_`|~0-9A-Za-z]+:[\t -~\x80-\xff]*)+\r\n\r\n"
)
# Header fields with a meaning here, or perhaps for a proxy in between.
_UNUSUAL = frozenset((b"origin", b"expect", b"transfer-encoding", b"upgrade", b"te", b"trailer"))
# Header fields that a request has at most once.
_ONCE = frozenset((b"host", b"content-length", b"connection"))


class FastPathPoll:
    """
    A waiting GET on its HTTP connection.
    """

    __slots__ = ("_channel", "_cork", "client")

    def __init__(self, client: SocketClient, channel: Any, cork: Cork) -> None:
        self.client = client
        self._channel = channel
        self._cork = cork

    def answer(self, pieces: list[bytes]) -> None:
        outlet = Outlet(self._channel.transport, self._cork)
        size = sum(map(len, pieces))
        if size <= CHUNK_BYTES:
            outlet.write(answered(TEXT, b"".join(pieces)))
        else:
            for part in (head(TEXT, size), *pieces):
                outlet.write(part)
        self._channel.answered()

    def lost(self) -> None:
        """
        The HTTP connection is lost: end the poll.
        """
        self.client.hung_up(self)


class FastPathPost:
    """
    A POST on its HTTP connection that takes more than one turn of the reactor.
    """

    __slots__ = ("_channel", "_cork")

    def __init__(self, channel: Any, cork: Cork) -> None:
        self._channel = channel
        self._cork = cork

    def answer(self) -> None:
        if self._channel is not None:
            Outlet(self._channel.transport, self._cork).write(answered(HTML, b"ok"))
            self._channel.answered()

    def lost(self) -> None:
        """
        The HTTP connection is lost: send no answer.
        """
        self._channel = None


class PollFastPath:
    """
    The fast path of a factory: tries each request that a connection reads.
    """

    def __init__(self, factory: SocketIOFactory) -> None:
        self._factory = factory

    def try_handle(self, data: bytes, channel: Any) -> bool:
        """
        Handle the request and return True, if it is one for the fast path.
        """
        posted = data.startswith(POST)
        end = data.find(END, 0, MAX_HEAD_BYTES) if posted or data.startswith(GET) else -1
        if end < 0 or not is_usual(data, end, posted):
            return False
        client = self._client(data[len(POST if posted else GET) : data.find(b"\r\n")])
        if client is None or (client.polls.waiting is not None and not posted):
            return False
        if posted:
            return self._post(data[end + 4 :], client, channel)
        poll = FastPathPoll(client, channel, self._factory.cork)
        channel.hold(poll)
        client.poll(poll)
        return True

    def _post(self, body: bytes, client: SocketClient, channel: Any) -> bool:
        post = FastPathPost(channel, self._factory.cork)
        most = self._factory.node.config.limits.messages_per_post
        try:
            if take(body, client, most, post.answer):
                Outlet(channel.transport, self._factory.cork).write(answered(HTML, b"ok"))
            else:
                channel.hold(post)
        except (Garbled, Unfit):
            return False  # nothing was accepted; the web server sends the refusal
        return True

    def _client(self, line: bytes) -> SocketClient | None:
        """
        Returns the client that the rest of a request line names.
        """
        query, _, protocol = line.rpartition(b" ")
        if protocol != b"HTTP/1.1" or b"%" in query or b"+" in query or b";" in query:
            return None
        asked = dict(part.partition("=")[::2] for part in reversed(query.decode("latin-1").split("&")))
        if asked.get("transport") != "polling" or "j" in asked:
            return None
        try:
            client = self._factory.polling(asked.get("sid", ""))
        except Unfit:
            return None
        return client if asked.get("EIO") == str(client.version) else None


def is_usual(data: bytes, end: int, posted: bool) -> bool:
    """
    Is this exactly one request, strictly well-formed, with only the usual header fields?
    """
    if _HEAD.fullmatch(data, 0, end + 4) is None:
        return False
    fields = _fields(data[:end])
    if fields is None or not fields.get(b"host"):
        return False
    if fields.get(b"connection", b"keep-alive").lower() != b"keep-alive":
        return False
    came, length = len(data) - end - 4, fields.get(b"content-length")
    if not posted:
        return came == 0 and length is None
    return length == b"%d" % came


def _fields(head: bytes) -> dict[bytes, bytes] | None:
    """
    Returns the fields by their names in lower case; None if one is unusual, or occurs twice but must not.
    """
    lines = head.split(b"\r\n")[1:]
    if len(lines) > MAX_FIELDS:
        return None
    fields: dict[bytes, bytes] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        name = name.lower()
        if name in _UNUSUAL or (name in _ONCE and name in fields):
            return None
        fields[name] = value.strip(b" \t")
    return fields


def answered(kind: bytes, body: bytes) -> bytes:
    """
    Returns a whole HTTP response.
    """
    return head(kind, len(body)) + body


def head(kind: bytes, size: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nDate: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (
        datetimeToString(),
        kind,
        size,
    )
