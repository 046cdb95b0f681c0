"""
A fast lane for the polls of Socket.IO, past Twisted's web server.

A message by polling costs two requests, and most of a request's time goes into
objects nobody looks at.  A poll or POST of a client that is known, come whole
in one read, in RFC 9112's strict grammar and with nothing unusual in its
header, is taken here; whatever else comes is the web server's, and so is every
refusal.  A proxy in front and this lane must never differ about where a
request ends.
"""

import re
from typing import Any

from twisted.web.http import datetimeToString

from msgnode.connectors.socketio.client import SocketClient
from msgnode.connectors.socketio.codec import Garbled
from msgnode.connectors.socketio.resource import HTML, TEXT, take
from msgnode.connectors.socketio.websocket import SocketIOFactory, Unfit
from msgnode.transport.cork import CHUNK, Cork, Outlet

GET, POST = b"GET /socket.io/?", b"POST /socket.io/?"
END = b"\r\n\r\n"
MAX_HEAD_BYTES = 8192
MAX_FIELDS = 64

# RFC 9112, section 3 and 5, and nothing that it lets a server forgive: a request line of visible characters,
# then `name: value` lines; no space before the colon, no folded line, no control character, no bare CR or LF.
# Each character can be matched in one way only, so that no head takes longer than it is long.
_HEAD = re.compile(
    rb"(?:GET|POST) [!-~]+ HTTP/1\.1"
    rb"(?:\r\n[-!#$%&'*+.^_`|~0-9A-Za-z]+:[\t -~\x80-\xff]*)+\r\n\r\n"
)
# What means something here, or might to a proxy in between.
_UNUSUAL = frozenset((b"origin", b"expect", b"transfer-encoding", b"upgrade", b"te", b"trailer"))
# What a request has once at most.
_ONCE = frozenset((b"host", b"content-length", b"connection"))


class LanePoll:
    """
    A GET that waits on its HTTP connection.
    """

    __slots__ = ("_channel", "_cork", "client")

    def __init__(self, client: SocketClient, channel: Any, cork: Cork) -> None:
        self.client = client
        self._channel = channel
        self._cork = cork

    def answer(self, pieces: list[bytes]) -> None:
        outlet = Outlet(self._channel.transport, self._cork)
        size = sum(map(len, pieces))
        if size <= CHUNK:
            outlet.write(answered(TEXT, b"".join(pieces)))
        else:
            for part in (head(TEXT, size), *pieces):
                outlet.write(part)
        self._channel.answered()

    def lost(self) -> None:
        """
        Its connection is gone.
        """
        self.client.hung_up(self)


class LanePost:
    """
    A POST that takes more than one turn, on its HTTP connection.
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
        Its connection is gone.
        """
        self._channel = None


class PollLane:
    """
    Looks at what a connection reads between two requests.
    """

    def __init__(self, factory: SocketIOFactory) -> None:
        self._factory = factory

    def take(self, data: bytes, channel: Any) -> bool:
        """
        Carry out the request, if it is one for the lane.
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
        poll = LanePoll(client, channel, self._factory.cork)
        channel.hold(poll)
        client.poll(poll)
        return True

    def _post(self, body: bytes, client: SocketClient, channel: Any) -> bool:
        post = LanePost(channel, self._factory.cork)
        most = self._factory.node.config.limits.messages_per_post
        try:
            if take(body, client, most, post.answer):
                Outlet(channel.transport, self._factory.cork).write(answered(HTML, b"ok"))
            else:
                channel.hold(post)
        except (Garbled, Unfit):
            return False  # nothing of it was taken; the web server says so
        return True

    def _client(self, line: bytes) -> SocketClient | None:
        """
        The client in the rest of a request line.
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
    Is this one whole request, well-formed to the letter, whose header says nothing but what all say?
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
    The fields by their names in lower case; None if one is unusual, or stands twice where it may not.
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
    A whole answer of HTTP.
    """
    return head(kind, len(body)) + body


def head(kind: bytes, size: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nDate: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (
        datetimeToString(),
        kind,
        size,
    )
