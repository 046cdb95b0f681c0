"""
Long-polling, for clients that have nothing but HTTP.

POST brings messages, GET waits for some.  Every message that is handed out
has a number; a GET names the last one it has, and what comes after it is sent
again, so a lost answer loses nothing.  Between two GETs the client counts as
attached but slow: its messages wait in its session.
"""

from typing import Any

import msgspec
from msgspec import Raw
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.web.server import Request

from msgnode.connectors.cork import Cork
from msgnode.session import CLOSED, Closing, Session
from msgnode.sessions import Sessions

LINGER = 60.0  # seconds without a GET until the client counts as away
MOST_HANDED_OUT = 1024 * 1024  # bytes in one answer; the rest waits in the session
SUPERSEDED_RETRY = 5  # seconds

ENDED = "the session ended"
TAKEN_OVER = "a newer request of this session took over"


class PollConnection:
    """
    A polling client; a Connection of session.py that outlives its requests.

    Full whenever no GET waits, so that its session keeps what comes.
    """

    connector = "poll"

    def __init__(self, peer: str, sessions: Sessions, cork: Cork, clock: IReactorTime) -> None:
        self.peer = peer
        self.session: Session | None = None
        self.full = True
        self.accepted = 0  # messages taken by POST since `open`
        self.acknowledged = 0  # number of the last message the client says it has
        self.greeting: list[bytes] | None = []  # collects the answer to `open`
        self.refusal: Closing | None = None
        self._handed_out: list[bytes] = []  # those after `acknowledged`, oldest first
        self._size = 0
        self._sessions = sessions
        self._cork = cork
        self._clock = clock
        self._waiting: Request | None = None
        self._timer: IDelayedCall | None = None

    @property
    def cursor(self) -> int:
        """
        The number of the last message handed out.
        """
        return self.acknowledged + len(self._handed_out)

    def take_over(self, older: "PollConnection", counts: bool) -> None:
        """
        What the older one handed out in vain is ours; with `counts`, so are its numbers.
        """
        self._handed_out, self._size = older._handed_out, older._size
        if counts:
            self.accepted, self.acknowledged = older.accepted, older.acknowledged
        older._refuse(409, TAKEN_OVER, SUPERSEDED_RETRY)
        older._stop_timer()

    # -- Connection ----------------------------------------------------------

    def send(self, data: bytes) -> None:
        if self.greeting is not None:
            self.greeting.append(data)
            return
        self._handed_out.append(data)
        self._size += len(data)
        self.full = self._size >= MOST_HANDED_OUT
        if self._waiting is not None:
            if self._cork.held:
                self._cork.add(self)
            else:
                self.flush()

    def lose(self, why: Closing) -> None:
        self.refusal = why
        if why is CLOSED:
            self._refuse(401, ENDED)
        else:
            self._refuse(503, why.word, why.retry_after)
        self._stop_timer()
        self._sessions.lost(self)

    def unreadable(self, text: str, code: int) -> None:
        """
        Never called: a POST is looked through before it is taken.
        """

    def expect_answers(self) -> None:
        """
        A POST is about to be taken.

        When another connection has taken over, what is answered here cannot
        wait in the session; it waits for the next GET.
        """
        if self.session is not None and self.session.connection is not self:
            self.full = self._size >= MOST_HANDED_OUT

    # -- GET -----------------------------------------------------------------

    def poll(self, request: Request, after: int, hold: float) -> None:
        """
        Answer with what comes after number `after`; wait for it up to `hold` seconds.
        """
        self._refuse(409, TAKEN_OVER, SUPERSEDED_RETRY)
        for data in self._handed_out[: after - self.acknowledged]:
            self._size -= len(data)
        del self._handed_out[: after - self.acknowledged]
        self.acknowledged = after
        self._stop_timer()
        self._waiting = request
        request.notifyFinish().addErrback(self._hung_up, request)
        with self._cork:
            if self._size < MOST_HANDED_OUT:
                self._sessions.ready(self)
            if self._handed_out:
                self._cork.add(self)
        if self._waiting is request:
            self._timer = self._clock.callLater(hold, self._nothing_came)

    def flush(self) -> None:
        """
        Answer the GET that waits with all there is.
        """
        if self._waiting is not None and self._handed_out:
            messages = [Raw(data) for data in self._handed_out]
            self._finish(200, msgspec.json.encode({"cursor": self.cursor, "messages": messages}))

    def _nothing_came(self) -> None:
        self._timer = None
        self._finish(204, b"")

    def _refuse(self, status: int, text: str, retry_after: float | None = None) -> None:
        if self._waiting is not None:
            if retry_after is not None:
                self._waiting.setHeader(b"Retry-After", str(round(retry_after)).encode())
            body = {"code": status, "desc": text, "description": text}
            self._finish(status, msgspec.json.encode(body))

    def _finish(self, status: int, body: bytes) -> None:
        request, self._waiting = self._waiting, None
        assert request is not None
        self._pause()
        request.setResponseCode(status)
        if body:
            request.setHeader(b"Content-Type", b"application/json")
            request.write(body + b"\n")
        request.finish()

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
