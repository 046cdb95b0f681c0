"""
Long-polling, for clients that have nothing but HTTP.

POST brings messages, GET waits for some.  Every message that is handed out
has a number; a GET names the last one it has, and what comes after it is sent
again, so a lost answer loses nothing.  The numbers are those of the session's
outbox, so another connector can go on where polling ended.  Between two GETs
the client counts as attached but slow: its messages wait in its session.
"""

from typing import Any

import msgspec
from twisted.internet.defer import DeferredLock
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.web.server import Request

from msgnode.protocol.close_codes import CLOSED, OVER_CAPACITY, SUPERSEDED, TOKEN_REJECTED, Closing
from msgnode.protocol.errors import error_body
from msgnode.sessions.access.authentication import LAPSED
from msgnode.sessions.outbox import Outbox
from msgnode.sessions.session import Session
from msgnode.sessions.session_table import Sessions
from msgnode.transport.cork import Cork
from msgnode.transport.http_answers import write_all

LINGER = 60.0  # seconds without a GET until the client counts as away
MAX_HANDED_OUT = 1024 * 1024  # bytes in one answer; the rest waits in the session
SUPERSEDED_RETRY = 5  # seconds

ENDED = "the session ended"
TAKEN_OVER = "a newer request of this session took over"


class PollConnection:
    """
    A polling client; a Connection of session.py that outlives its requests.

    Full whenever no GET waits, so that its session keeps what comes.  What is
    not counted, a word of mn:/session or an answer after another connection
    took over, is handed out once, `beside` the rest.
    """

    connector = "poll"
    bearer = ""
    counted = True

    def __init__(self, peer: str, sessions: Sessions, cork: Cork, clock: IReactorTime) -> None:
        self.peer = peer
        self.identity = ""  # by the certificate of the connection its first request came by
        self.session: Session | None = None
        self.full = True
        self.greeting: list[bytes] | None = []  # collects the answer to `open`
        self.refusal: Closing | None = None
        self._accepted = self._acknowledged = 0  # the last that were known, once there is no outbox
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
        The session's, while this is the session's connection.
        """
        session = self.session
        return session.outbox if session is not None and session.connection is self else None

    @property
    def accepted(self) -> int:
        """
        How many messages were taken by POST.
        """
        if self.outbox is not None:
            self._accepted = self.outbox.received
        return self._accepted

    @property
    def on_disk(self) -> int:
        """
        How many of them the client may forget.
        """
        return self.outbox.on_disk if self.outbox is not None else self._accepted

    @property
    def acknowledged(self) -> int:
        """
        The number of the last message the client says it has.
        """
        if self.outbox is not None:
            self._acknowledged = self.outbox.acknowledged
        return self._acknowledged

    @property
    def cursor(self) -> int:
        """
        The number of the last message handed out.
        """
        return self.outbox.last if self.outbox is not None else self._acknowledged

    def take_from(self, first: int, parts: list[bytes]) -> list[bytes]:
        """
        The messages that are new, if the first of them has this number.
        """
        if self.outbox is not None:
            self.outbox.at = first - 1  # it knows itself what it had
            return parts
        fresh = parts[self._accepted + 1 - first :]
        self.took(0)
        return fresh

    def took(self, number: int) -> None:
        """
        So many more of them were taken.
        """
        if self.outbox is None:
            self._accepted += number
            # What is answered here cannot wait in the session, which has another connection.
            self.full = sum(map(len, self._beside)) >= MAX_HANDED_OUT

    def give_way(self) -> None:
        """
        Another object stands for this client from now on.
        """
        self._refuse(409, TAKEN_OVER, SUPERSEDED_RETRY)
        self._stop_timer()
        self._sessions.lost(self)

    # -- Connection ----------------------------------------------------------

    def send(self, data: bytes) -> None:
        if self.greeting is not None:
            self.greeting.append(data)
        else:
            self._beside.append(data)
            self._flush_soon()

    def fetch(self) -> None:
        outbox = self.outbox
        if outbox is not None and self._waiting is not None:
            self.full = outbox.sent_bytes >= MAX_HANDED_OUT
            self._flush_soon()

    def _flush_soon(self) -> None:
        if self._waiting is not None:
            if self._cork.held:
                self._cork.add(self)
            else:
                self._cork.settle()
                self.flush()

    def lose(self, why: Closing) -> None:
        self.refusal = why
        if why.code == CLOSED.code:
            self._refuse(401, ENDED)
        elif why.code == SUPERSEDED.code:
            self._refuse(409, TAKEN_OVER, SUPERSEDED_RETRY)
        elif why.code == TOKEN_REJECTED.code:
            self._refuse(401, LAPSED, why.retry_after)
        else:
            self._refuse(503, why.word, why.retry_after)
        self._stop_timer()
        self._sessions.lost(self)

    def drop(self) -> None:
        self.lose(OVER_CAPACITY)

    def pause_reading(self) -> None:
        """
        Its requests wait for their answer instead.
        """

    def resume_reading(self) -> None:
        """
        Its requests wait for their answer instead.
        """

    def unreadable(self, text: str, code: int) -> None:
        """
        Never called: a POST is looked through before it is taken.
        """

    # -- GET -----------------------------------------------------------------

    def poll(self, request: Request, after: int, hold: float) -> None:
        """
        Answer with what comes after number `after`; wait for it up to `hold` seconds.
        """
        self._refuse(409, TAKEN_OVER, SUPERSEDED_RETRY)
        if self.outbox is not None:
            self.outbox.acknowledge(after)
        self._stop_timer()
        self._waiting = request
        request.notifyFinish().addErrback(self._hung_up, request)
        with self._cork:
            if self.outbox is None or self.outbox.sent_bytes < MAX_HANDED_OUT:
                self._sessions.ready(self)
            outbox = self.outbox
            if self._beside or (outbox is not None and outbox.sent and not outbox.held):
                self._cork.add(self)
        if self._waiting is request:
            self._timer = self._clock.callLater(hold, self._nothing_came)

    def flush(self) -> None:
        """
        Answer the GET that waits with all there is.
        """
        if self._waiting is None:
            return
        outbox, cursor = self.outbox, self.cursor
        owed: list[bytes] = []
        if outbox is not None and not outbox.held:
            try:
                owed = self._owed(outbox)
            except OSError:  # this GET has said what the client has; the rest can be counted anew
                outbox.weed(outbox.asked)
                self._cork.settle()
                owed = self._owed(outbox)
            cursor = outbox.acknowledged + outbox.holes + len(owed)
        if self._beside or owed:
            parts = [b'{"cursor":%d,"messages":[' % cursor]
            for data in self._beside + owed:
                parts += (data, b",")
            parts[-1] = b"]}"
            self._beside = []
            self._finish(200, parts)

    def _owed(self, outbox: Outbox) -> list[bytes]:
        """
        As much as fits in an answer.
        """
        found: list[bytes] = []
        size = 0
        for kept in outbox.sent:
            if size >= MAX_HANDED_OUT:
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
        self._sessions.paused(self)
        self.linger()

    def linger(self) -> None:
        """
        Give the client time for its next GET, then let it count as away.
        """
        self._stop_timer()
        self._timer = self._clock.callLater(LINGER, self._sessions.lost, self)

    def _stop_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
