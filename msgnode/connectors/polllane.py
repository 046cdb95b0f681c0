"""
A fast lane for the polls of Socket.IO, past Twisted's web server.

A message by polling costs two requests, and most of a request's time goes into
objects nobody looks at.  A poll or POST of a client that is known, come whole
in one read, with nothing unusual in its header, is taken here; whatever else
comes is the web server's, and so is every refusal.
"""

from typing import Any

from twisted.web.http import datetimeToString

from msgnode.connectors.cork import Cork, Outlet
from msgnode.connectors.engineio import Garbled
from msgnode.connectors.socketclient import SocketClient
from msgnode.connectors.socketio import HTML, TEXT, take
from msgnode.connectors.socketlane import SocketFactory, Unfit

GET, POST = b"GET /socket.io/?", b"POST /socket.io/?"
END, LENGTH = b"\r\n\r\n", b"\r\ncontent-length:"
KEEP_ALIVE = b"\r\nconnection: keep-alive\r\n"
# What means something here, or might to a proxy in between.
UNUSUAL = (b"\r\norigin:", b"\r\nexpect:", b"\r\ntransfer-encoding:", b"\r\nupgrade:", b"\r\n ", b"\r\n\t")
LONGEST_HEAD = 8192


class LanePoll:
    """
    A GET that waits on its HTTP connection.
    """

    __slots__ = ("_channel", "_cork", "client")

    def __init__(self, client: SocketClient, channel: Any, cork: Cork) -> None:
        self.client = client
        self._channel = channel
        self._cork = cork

    def answer(self, body: bytes) -> None:
        Outlet(self._channel.transport, self._cork).write(answered(TEXT, body))
        self._channel.answered()

    def lost(self) -> None:
        """
        Its connection is gone.
        """
        self.client.hung_up(self)


class PollLane:
    """
    Looks at what a connection reads between two requests.
    """

    def __init__(self, factory: SocketFactory) -> None:
        self._factory = factory

    def take(self, data: bytes, channel: Any) -> bool:
        """
        Carry out the request, if it is one for the lane.
        """
        posted = data.startswith(POST)
        end = data.find(END, 0, LONGEST_HEAD) if posted or data.startswith(GET) else -1
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
        try:
            take(body, client)
        except (Garbled, Unfit):
            return False  # nothing of it was taken; the web server says so
        Outlet(channel.transport, self._factory.cork).write(answered(HTML, b"ok"))
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
    Is this one whole request, whose header says nothing but what all say?
    """
    head = data[data.find(b"\r\n") : end + 2].lower()
    if any(word in head for word in UNUSUAL) or head.count(b"\n") != head.count(b"\r\n"):
        return False
    if b"\r\nhost:" not in head or (b"\r\nconnection:" in head and KEEP_ALIVE not in head):
        return False
    came = len(data) - end - 4
    if not posted:
        return came == 0 and LENGTH not in head
    _, found, rest = head.partition(LENGTH)
    length = rest[: rest.find(b"\r\n")].strip(b" ")
    return bool(found) and LENGTH not in rest and length.isdigit() and length == b"%d" % came


def answered(kind: bytes, body: bytes) -> bytes:
    """
    A whole answer of HTTP.
    """
    return b"HTTP/1.1 200 OK\r\nDate: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (
        datetimeToString(),
        kind,
        len(body),
        body,
    )
