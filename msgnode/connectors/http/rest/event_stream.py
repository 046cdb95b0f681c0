"""
An event stream: the connection of a session that gets its messages as server-sent events (WHATWG HTML, 9.2).

Its client acknowledges nothing while it reads. The last messages stay in the session's outbox, so that the
client can go on behind the last event that it has; older ones count as received once they were written.
"""

import json
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.web.server import Request
from zope.interface import implementer

from msgnode.protocol.address import SESSION
from msgnode.protocol.close_codes import OVER_CAPACITY, SLOW, Closing
from msgnode.protocol.message import decode
from msgnode.sessions.outbox import Outbox
from msgnode.sessions.session import Session
from msgnode.sessions.session_table import Sessions
from msgnode.transport.cork import Cork

HEARTBEAT_SECONDS = 15.0  # without an event, until a comment keeps proxies from closing the stream
RETRY_MILLISECONDS = 2000
NEVER_MILLISECONDS = 86_400_000  # there is no value that keeps a browser away
TRIM_MESSAGES = 64  # after which the oldest messages count as received

_SESSION = b'"%s"' % SESSION.encode()


class StreamBounds:
    """
    The number of messages, and of their bytes, behind which a stream can be resumed.
    """

    def __init__(self, messages: int, size: int) -> None:
        self.messages = messages
        self.bytes = size


@implementer(IPushProducer)
class EventStream:
    """
    A reader of events; a Connection of session.py.

    Until it begins it collects the answer to its `open` in `greeting`, and nothing else is sent to it; if the
    node closes it by then, `refusal` says why. The functions in `on_gone` are called when it is over.
    """

    connector = "events"
    bearer = ""

    def __init__(
        self, request: Request, sessions: Sessions, cork: Cork, clock: IReactorTime, bounds: StreamBounds
    ) -> None:
        self.peer = self.identity = self.origin = ""
        self.session: Session | None = None
        self.write_paused = self.acks_by_request = True  # until it begins
        self.greeting: list[bytes] = []
        self.refusal: Closing | None = None
        self.is_over = False
        self.on_gone: list[Callable[[], object]] = []
        self._request = request
        self._sessions = sessions
        self._cork = cork
        self._clock = clock
        self._bounds = bounds
        self._number = 0
        self._id_tail = ""
        self._is_begun = False
        self._parts: list[bytes] = []
        self._is_quiet = True  # nothing was written since the last heartbeat
        self._heartbeat: IDelayedCall | None = None
        request.notifyFinish().addBoth(lambda done: self.gone())

    @property
    def outbox(self) -> Outbox | None:
        """
        The outbox of the session, while this is the session's connection.
        """
        session = self.session
        return session.mailbox.outbox if session is not None and session.connection is self else None

    def begin(self, number: int, id_tail: str, events: list[tuple[str, dict[str, Any]]]) -> None:
        """
        Begin with these events, which have a name; messages follow, from the one behind `number`. An id is
        the number of an event, and `id_tail`.
        """
        assert self.session is not None
        self._number, self._id_tail = number, id_tail
        request = self._request
        for name, value in (("Content-Type", "text/event-stream"), ("Cache-Control", "no-store")):
            request.setHeader(name.encode(), value.encode())
        request.setHeader(b"X-Accel-Buffering", b"no")  # of nginx
        request.write(b"retry: %d\n\n" % RETRY_MILLISECONDS)
        self._is_begun, self.acks_by_request, self.write_paused = True, False, False
        request.registerProducer(self, True)
        for name, fields in events:
            self._put(json.dumps(fields).encode(), name, self._id())
        self._heartbeat = self._clock.callLater(HEARTBEAT_SECONDS, self._beat)
        with self._cork:
            self._cork.add(self)
            self.session.redeliver()

    def gone(self) -> None:
        """
        The client is gone, or was notified that the stream is over.
        """
        if not self.is_over:
            self.is_over = True
            if self._heartbeat is not None and self._heartbeat.active():
                self._heartbeat.cancel()
            self._sessions.connections.lost(self)
            for call in self.on_gone:
                call()

    def _id(self) -> bytes:
        return f"{self._number}.{self._id_tail}".encode()

    def _put(self, data: bytes, name: str = "", id: bytes = b"") -> None:
        if b"\n" in data or b"\r" in data:  # outside of texts: there they are escaped
            data = b"\ndata: ".join(data.splitlines())
        parts = self._parts
        if name:
            parts.append(b"event: %s\n" % name.encode())
        if id:
            parts.append(b"id: %s\n" % id)
        parts += (b"data: ", data, b"\n\n")

    def _beat(self) -> None:
        if self._is_quiet and not self.write_paused:
            self._request.write(b":\n\n")
        self._is_quiet = True
        self._heartbeat = self._clock.callLater(HEARTBEAT_SECONDS, self._beat)

    # -- Connection ----------------------------------------------------------

    def send(self, data: bytes) -> None:
        if not self._is_begun:
            self.greeting.append(data)
            return
        message = decode(data) if _SESSION in data else None
        if message is None or message.from_ != SESSION:
            self._number += 1
            self._put(data, id=self._id())
        elif message.type != "ack":
            self._put(data, "notice")  # it has no number
        if self._cork.corked:
            self._cork.add(self)
        else:
            with self._cork:
                self._cork.add(self)

    def flush(self) -> None:
        """
        Write the events that were collected during one read of a socket.
        """
        if self.is_over or not self._parts:
            return
        parts, self._parts = self._parts, []
        self._is_quiet = False
        self._request.write(b"".join(parts))
        self._trim()

    def _trim(self) -> None:
        """
        Count the oldest messages as received, as far as the client may not go back to them.
        """
        outbox, bounds = self.outbox, self._bounds
        if outbox is None or self.write_paused:
            return
        number, size, count = len(outbox.sent), outbox.sent_bytes, 0
        if number < bounds.messages + min(TRIM_MESSAGES, bounds.messages) and size <= bounds.bytes:
            return
        for kept in outbox.sent:
            if number - count <= bounds.messages and size <= bounds.bytes // 2:
                break
            size -= kept.size
            count += 1
        outbox.acknowledge(min(self._number, outbox.acknowledged + outbox.gaps + count))
        session = self.session
        if session is not None and session.ready is None:
            session.flush()

    def outbox_ready(self) -> None:
        """
        Does nothing: messages are sent when the stream begins.
        """

    def lose(self, why: Closing) -> None:
        if not self._is_begun:
            self.refusal = why
            self._sessions.connections.lost(self)
        elif not self.is_over:
            self._put_close(why)
            channel = self._request.channel
            self._request.write(b"".join(self._parts))
            self._parts = []
            self.gone()
            self._request.unregisterProducer()
            self._request.finish()
            if why.code == SLOW.code and channel is not None:
                channel.loseConnection()  # it is aborted if the client still does not read

    def _put_close(self, why: Closing) -> None:
        fields: dict[str, Any] = {"code": why.code, "reason": why.word}
        retry = NEVER_MILLISECONDS
        if why.retry_after is not None:
            fields["retry_after"] = why.retry_after
            retry = round(why.retry_after * 1000)
        if why.node:
            fields["node"] = why.node
        self._parts.append(b"retry: %d\n" % retry)
        self._put(json.dumps(fields).encode(), "close")

    def abort(self) -> None:
        self.lose(OVER_CAPACITY)

    def pause_reading(self) -> None:
        """
        Does nothing: nothing is read from the client.
        """

    def resume_reading(self) -> None:
        """
        Does nothing: nothing is read from the client.
        """

    def report_undecodable(self, text: str, code: int) -> None:
        """
        Never called: nothing is read from the client.
        """

    # -- IPushProducer ---------------------------------------------------------

    def pauseProducing(self) -> None:
        self._sessions.connections.write_paused(self)

    def resumeProducing(self) -> None:
        with self._cork:
            self._sessions.connections.write_resumed(self)
            self._trim()

    def stopProducing(self) -> None:
        self.gone()
