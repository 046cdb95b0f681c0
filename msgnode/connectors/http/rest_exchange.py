"""
One request of the REST connector, from its POST until its answer.
"""

from math import ceil
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.server import Request

from msgnode.node import Node
from msgnode.protocol.close_codes import OVER_CAPACITY, Closing
from msgnode.protocol.errors import Blocked, Malformed, Rejected, TooFast
from msgnode.protocol.message import Message, decode
from msgnode.sessions.access.authentication import Verdict
from msgnode.sessions.session import Session
from msgnode.transport.http_answers import answer_error

log = Logger()


class NotNow(Rejected):
    """
    A message that the node cannot take at the moment.
    """

    code = 503
    reason = "disk"
    retry_after = 2  # seconds


class RestRequest:
    """
    A Connection of session.py that is never a session's own: what is answered to it comes here.
    """

    connector = "rest"
    bearer = ""
    counted = False

    def __init__(self, node: Node, clock: IReactorTime, request: Request) -> None:
        self.peer = self.identity = ""
        self.session: Session | None = None
        self.full = self.over = False
        self._node = node
        self._clock = clock
        self._request = request
        self._expected: tuple[str, int | str] | None = None
        self._timer: IDelayedCall | None = None
        node.sessions.connections.add(self)
        request.notifyFinish().addErrback(self._hung_up)

    def expect(self, message: Message, wait: float) -> None:
        """
        The response to this message comes here, within `wait` seconds.
        """
        assert self.session is not None
        key = message.from_, message.id
        if key in self._node.awaited:
            raise Rejected(f"{message.from_} waits for a response to {message.id!r} already"[:300], 409)
        self._expected = key
        self._node.awaited[key] = self.session, self._heard
        self._timer = self._clock.callLater(wait, self._nothing_came, message.to, wait)

    def known(self, verdict: Verdict) -> None:
        """
        What became of the token it brought.
        """
        if isinstance(verdict, Rejected):
            raise verdict
        self._node.authenticator.show(self, verdict)

    def answer_now(self, answer: bytes | int | None) -> None:
        """
        The answer to a request that had to wait until its sender was known.
        """
        if isinstance(answer, bytes):
            self.end()
            self._request.write(answer)
            self._request.finish()

    def failed(self, why: Failure) -> None:
        if isinstance(why.value, Rejected):
            self._refuse(why.value.code, str(why.value), again_in(why.value))
        else:
            log.failure("a request by REST", why)
            self._refuse(500, "the node failed over this message; its log says why")

    def end(self) -> None:
        """
        Nobody waits any more; a late response goes to the session.
        """
        if self.over:
            return
        self.over = True
        if self._expected is not None:
            del self._node.awaited[self._expected]
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        session = self.session
        self._node.sessions.lost(self)
        if session is not None and session.visits:
            self.session, self.full = session, True  # for a visitor there is no later

    def _heard(self, message: Message) -> None:
        try:
            code = message.field("code")
        except Malformed:
            code = None
        if not (type(code) is int and 100 <= code < 200):  # else the response is still to come
            self._answer(message.data)

    def _answer(self, data: bytes) -> None:
        if not self.over:
            self.end()
            self._request.setHeader(b"Content-Type", b"application/json")
            self._request.setHeader(b"Cache-Control", b"no-store")
            self._node.settle()
            self._request.write(data + b"\n")
            self._request.finish()

    def _refuse(self, status: int, text: str, retry_after: float | None = None) -> None:
        if not self.over:
            self.end()
            retry = None if retry_after is None else ceil(retry_after)
            self._request.write(answer_error(self._request, status, text, retry))
            self._request.finish()

    def _nothing_came(self, to: Any, wait: float) -> None:
        self._refuse(504, f"no response from {to} within {wait:g} seconds"[:300])

    def _hung_up(self, why: Any) -> None:
        self.end()

    # -- Connection ----------------------------------------------------------

    def send(self, data: bytes) -> None:
        """
        The node's own answer.
        """
        self._heard(decode(data))

    def fetch(self) -> None:
        """
        Never called: nothing is counted here.
        """

    def lose(self, why: Closing) -> None:
        self._refuse(503, why.word, why.retry_after)

    def drop(self) -> None:
        self.lose(OVER_CAPACITY)

    def pause_reading(self) -> None:
        """
        It has sent the one message it sends.
        """

    def resume_reading(self) -> None:
        """
        It has sent the one message it sends.
        """

    def unreadable(self, text: str, code: int) -> None:
        """
        Never called: a POST is looked through before it is taken.
        """


def again_in(why: Rejected) -> int | None:
    """
    The seconds after which it may be tried again, where that is known.
    """
    retry_after = why.retry_after if isinstance(why, Blocked | NotNow | TooFast) else None
    return None if retry_after is None else ceil(retry_after)
