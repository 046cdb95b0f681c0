"""
Long-polling, for clients that have nothing but HTTP.

POST sends messages to the node, GET waits for messages.  Every delivered
message has a number; a GET names the last one it has, and all later messages
are sent again, so a lost answer loses no message.  The numbers are those of the
session's outbox, so another connector can continue where polling ended.  Between
two GETs the client counts as connected but slow: its messages wait in its session.
"""

from typing import Any

import msgspec
from twisted.internet.defer import DeferredLock
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.web.server import Request

from msgnode.connectors.http.requests import MAX_ANSWER_BYTES
from msgnode.protocol.close_codes import CLOSED, OVER_CAPACITY, REMOVED, SUPERSEDED, TOKEN_REJECTED, Closing
from msgnode.protocol.errors import error_body
from msgnode.sessions.access.authentication import LAPSED
from msgnode.sessions.inbox import Inbox
from msgnode.sessions.outbox import Outbox
from msgnode.sessions.session import Session
from msgnode.sessions.session_table import Sessions
from msgnode.transport.cork import Cork
from msgnode.transport.http_answers import write_all

LINGER_SECONDS = 60.0  # seconds without a GET until the client counts as disconnected
SUPERSEDED_RETRY_SECONDS = 5

ENDED = "the session ended"
REMOVED_TEXT = "an operator removed this client"
TAKEN_OVER = "a newer request of this session took over"


class PollConnection:
    """
    A polling client; a Connection of session.py that outlives its requests.

    Writing is paused whenever no GET waits, so that the session keeps new messages.
    Messages without a number (from mn:/session, or an answer after another
    connection took over) are delivered once, and wait in `_beside` until then.
    """

    connector = "poll"
    bearer = ""
    origin = user_agent = ""  # of the page and the program that made its first request
    acks_by_request = True

    def __init__(self, peer: str, sessions: Sessions, cork: Cork, clock: IReactorTime) -> None:
        self.peer = peer
        self.identity = ""  # from the client certificate of its first request's connection
        self.session: Session | None = None
        self.write_paused = True
        self.greeting: list[bytes] | None = []  # collects the answer to `open`
        self.refusal: Closing | None = None
        self._accepted = self._acknowledged = 0  # the last known numbers, once there is no outbox
        self._beside: list[bytes] = []
        self._sessions = sessions
        self._cork = cork
        self._clock = clock
        self.posting = DeferredLock()  # one POST at a time
        self._waiting: Request | None = None
        self._timer: IDelayedCall | None = None

    @property
    def outbox(self) -> Outbox | None:
        """
        The outbox of the session, while this is the session's connection.
        """
        session = self.session
        return session.mailbox.outbox if session is not None and session.connection is self else None

    @property
    def inbox(self) -> Inbox | None:
        """
        The inbox of the session, while this is the session's connection.
        """
        session = self.session
        return session.mailbox.inbox if session is not None and session.connection is self else None

    @property
    def accepted(self) -> int:
        """
        The number of messages accepted by POST.
        """
        if self.inbox is not None:
            self._accepted = self.inbox.received
        return self._accepted

    @property
    def on_disk(self) -> int:
        """
        The number of accepted messages that are on disk, which the client may forget.
        """
        return self.inbox.on_disk if self.inbox is not None else self._accepted

    @property
    def acknowledged(self) -> int:
        """
        The number of the last message that the client has acknowledged.
        """
        if self.outbox is not None:
            self._acknowledged = self.outbox.acknowledged
        return self._acknowledged

    @property
    def cursor(self) -> int:
        """
        The number of the last message delivered.
        """
        return self.outbox.last if self.outbox is not None else self._acknowledged

    def take_from(self, first: int, parts: list[bytes]) -> list[bytes]:
        """
        Returns the messages that are new, if the first of `parts` has this number.
        """
        if self.inbox is not None:
            self.inbox.position = first - 1  # the inbox skips what it has received before
            return parts
        fresh = parts[self._accepted + 1 - first :]
        self.took(0)
        return fresh

    def took(self, number: int) -> None:
        """
        Count so many more messages as accepted.
        """
        if self.outbox is None:
            self._accepted += number
            # Answers to these messages cannot wait in the session, which has another connection.
            self.write_paused = sum(map(len, self._beside)) >= MAX_ANSWER_BYTES

    def give_way(self) -> None:
        """
        End this connection: a newer one of the same session replaces it.
        """
        self.refusal = SUPERSEDED
        self._refuse(409, TAKEN_OVER, SUPERSEDED_RETRY_SECONDS)
        self._stop_timer()
        self._sessions.connections.lost(self)

    # -- Connection ----------------------------------------------------------

    def send(self, data: bytes) -> None:
        if self.greeting is not None:
            self.greeting.append(data)
        else:
            self._beside.append(data)
            self._flush_soon()

    def outbox_ready(self) -> None:
        outbox = self.outbox
        if outbox is not None and self._waiting is not None:
            self.write_paused = outbox.sent_bytes >= MAX_ANSWER_BYTES
            self._flush_soon()

    def _flush_soon(self) -> None:
        if self._waiting is not None:
            if self._cork.corked:
                self._cork.add(self)
            else:
                self._cork.settle()
                self.flush()

    def lose(self, why: Closing) -> None:
        self.refusal = why
        if why.code == CLOSED.code:
            self._refuse(401, ENDED)
        elif why.code == SUPERSEDED.code:
            self._refuse(409, TAKEN_OVER, SUPERSEDED_RETRY_SECONDS)
        elif why.code == TOKEN_REJECTED.code:
            self._refuse(401, LAPSED, why.retry_after)
        elif why.code == REMOVED.code:
            self._refuse(410, REMOVED_TEXT, why.retry_after)
        else:
            self._refuse(503, why.word, why.retry_after)
        self._stop_timer()
        self._sessions.connections.lost(self)

    def abort(self) -> None:
        self.lose(OVER_CAPACITY)

    def pause_reading(self) -> None:
        """
        Does nothing: a client's requests wait for their answers instead.
        """

    def resume_reading(self) -> None:
        """
        Does nothing: a client's requests wait for their answers instead.
        """

    def report_undecodable(self, text: str, code: int) -> None:
        """
        Never called: a POST is checked before it is accepted.
        """

    # -- GET -----------------------------------------------------------------

    def poll(self, request: Request, after: int, hold: float) -> None:
        """
        Answer with the messages after number `after`; wait for them up to `hold` seconds.
        """
        self._refuse(409, TAKEN_OVER, SUPERSEDED_RETRY_SECONDS)
        if self.outbox is not None:
            self.outbox.acknowledge(after)
        self._stop_timer()
        self._waiting = request
        request.notifyFinish().addErrback(self._hung_up, request)
        with self._cork:
            if self.outbox is None or self.outbox.sent_bytes < MAX_ANSWER_BYTES:
                self._sessions.connections.write_resumed(self)
            outbox = self.outbox
            if self._beside or (outbox is not None and outbox.sent and not outbox.blocked_on_disk):
                self._cork.add(self)
        if self._waiting is request:
            self._timer = self._clock.callLater(hold, self._nothing_came)

    def flush(self) -> None:
        """
        Answer the waiting GET with all messages there are.
        """
        if self._waiting is None:
            return
        outbox = self.outbox
        owed = self._readable(outbox) if outbox is not None else []
        if self._waiting is not None and (self._beside or owed):
            # Without messages of the outbox the client keeps the number that it has named.
            cursor = self.acknowledged
            if outbox is not None and owed:
                cursor = outbox.acknowledged + outbox.gaps + len(owed)
            parts = [b'{"cursor":%d,"messages":[' % cursor]
            for data in self._beside + owed:
                parts += (data, b",")
            parts[-1] = b"]}"
            self._beside = []
            self._finish(200, parts)

    def _readable(self, outbox: Outbox) -> list[bytes]:
        """
        Returns what `_owed` does. What cannot be read is dropped; the rest is sent with its new numbers when
        these are on disk.
        """
        for _ in range(2):
            if outbox is not self.outbox or outbox.blocked_on_disk:
                break
            try:
                return self._owed(outbox)
            except OSError:  # this GET has named the client's last message, so the rest can be renumbered
                outbox.drop_unreadable(outbox.client_requested)
                self._cork.settle()
        return []

    def _owed(self, outbox: Outbox) -> list[bytes]:
        """
        Returns as many unacknowledged messages as fit in one answer.
        """
        found: list[bytes] = []
        size = 0
        for kept in outbox.sent:
            if size >= MAX_ANSWER_BYTES:
                break
            found.append(self._sessions.journal.data(kept))
            size += kept.size
        return found

    def _nothing_came(self) -> None:
        self._timer = None
        self._finish(204, [])

    def _refuse(self, status: int, text: str, retry_after: float | None = None) -> None:
        if self._waiting is not None:
            if retry_after is not None:
                self._waiting.setHeader(b"Retry-After", str(round(retry_after)).encode())
            body = error_body(status, text)
            self._finish(status, [msgspec.json.encode(body)])

    def _finish(self, status: int, parts: list[bytes]) -> None:
        request, self._waiting = self._waiting, None
        assert request is not None
        self._pause()
        request.setResponseCode(status)
        if not parts:
            request.finish()
            return
        request.setHeader(b"Content-Type", b"application/json")
        write_all(request, [*parts, b"\n"])

    def _hung_up(self, why: Any, request: Request) -> None:
        if self._waiting is request:
            self._waiting = None
            self._pause()

    # -- between two GETs ------------------------------------------------------

    def _pause(self) -> None:
        self._sessions.connections.write_paused(self)
        self.linger()

    def linger(self) -> None:
        """
        Give the client time for its next GET; after that it counts as disconnected.
        """
        self._stop_timer()
        self._timer = self._clock.callLater(LINGER_SECONDS, self._sessions.connections.lost, self)

    def _stop_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
