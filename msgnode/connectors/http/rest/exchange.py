"""
One message of the REST connector, from its request until its response.
"""

from collections.abc import Callable
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
    The refusal of a message that the node cannot accept at the moment.
    """

    code = 503
    reason = "disk"
    retry_after = 2  # seconds


class RestExchange:
    """
    A Connection of session.py for one message: never a session's own connection, but it gets the response.

    `session` is the sender: `known_session`, if the request had a session token, or else an ephemeral one.
    `hears_refusals`: is it answered a refusal of a message also if no response is waited for?

    `on_response` is called with the response; `on_refusal` with a status, a text, and the seconds after which
    the request may be repeated, if any.
    """

    connector = "rest"
    bearer = ""
    acks_by_request = False

    def __init__(
        self,
        node: Node,
        clock: IReactorTime,
        on_response: Callable[[Message], object],
        on_refusal: Callable[[int, str, float | None], object],
    ) -> None:
        self.peer = self.identity = self.origin = ""
        self.session: Session | None = None
        self.known_session: Session | None = None
        self.write_paused = self.over = self.hears_refusals = False
        self.on_response = on_response
        self.on_refusal = on_refusal
        self._node = node
        self._clock = clock
        self._stop_expecting: Callable[[], object] | None = None
        self._timer: IDelayedCall | None = None
        node.sessions.connections.add_transient(self)

    def expect(self, message: Message, wait: float) -> None:
        """
        Wait up to `wait` seconds for the response to this message; 0: until `end`.
        """
        assert self.session is not None
        self._forget()
        expected = self._node.expected_responses
        self._stop_expecting = expected.expect(message, self.session, self._heard)
        if wait:
            self._timer = self._clock.callLater(wait, self.nothing_came, message.to, wait)

    def known(self, verdict: Verdict) -> None:
        """
        Use the result of the validation of its token.
        """
        if isinstance(verdict, Rejected):
            raise verdict
        self._node.authenticator.show(self, verdict)

    def end(self) -> None:
        """
        Stop waiting for the response; a late one goes to the session.
        """
        if self.over:
            return
        self.over = True
        self._forget()
        session = self.session
        self._node.sessions.connections.lost(self)
        if session is not None and session.is_ephemeral:
            self.session, self.write_paused = session, True  # an ephemeral session gets nothing later

    def _forget(self) -> None:
        if self._stop_expecting is not None:
            self._stop_expecting()
            self._stop_expecting = None
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def _heard(self, message: Message) -> None:
        try:
            code = message.field("code")
        except Malformed:
            code = None
        if not (type(code) is int and 100 <= code < 200):  # a provisional response: the final one follows
            self.on_response(message)

    def refuse(self, status: int, text: str, retry_after: float | None = None) -> None:
        if not self.over:
            self.end()
            self.on_refusal(status, text, retry_after)

    def nothing_came(self, to: Any, wait: float) -> None:
        self.refuse(504, f"no response from {to} within {wait:g} seconds"[:300])

    # -- Connection ----------------------------------------------------------

    def send(self, data: bytes) -> None:
        """
        Handle an answer of the node itself.
        """
        self._heard(decode(data))

    def outbox_ready(self) -> None:
        """
        Never called: this connection has no outbox.
        """

    def lose(self, why: Closing) -> None:
        self.refuse(503, why.word, why.retry_after)

    def abort(self) -> None:
        self.lose(OVER_CAPACITY)

    def pause_reading(self) -> None:
        """
        Does nothing: the only message of this request has been read.
        """

    def resume_reading(self) -> None:
        """
        Does nothing: the only message of this request has been read.
        """

    def report_undecodable(self, text: str, code: int) -> None:
        """
        Never called: a POST is checked before it is accepted.
        """


class RestRequest(RestExchange):
    """
    A message that came by an HTTP request, whose answer has the response.
    """

    def __init__(self, node: Node, clock: IReactorTime, request: Request) -> None:
        super().__init__(node, clock, self.respond, self._write_refusal)
        self._request = request
        request.notifyFinish().addErrback(lambda gone: self.end())

    def respond(self, message: Message) -> None:
        """
        Answer with the response as it came.
        """
        self.write(200, message.data)

    def write(self, status: int, data: bytes) -> None:
        """
        Answer with this status and these bytes of JSON; without a body if there are none.
        """
        if self.over:
            return
        self.end()
        self._request.setResponseCode(status)
        self._request.setHeader(b"Cache-Control", b"no-store")
        self._node.settle()
        if data:
            self._request.setHeader(b"Content-Type", b"application/json")
            self._request.setHeader(b"Content-Length", b"%d" % (len(data) + 1))
            self._request.write(data + b"\n")
        self._request.finish()

    def answer_now(self, answer: bytes | int | None) -> None:
        """
        Send the answer to a request that had to wait until its sender was authenticated.
        """
        if isinstance(answer, bytes):
            self.end()
            self._request.write(answer)
            self._request.finish()

    def failed(self, why: Failure) -> None:
        if isinstance(why.value, Rejected):
            self.refuse(why.value.code, str(why.value), again_in(why.value))
        else:
            log.failure("a REST request could not be handled", why)
            self.refuse(500, "the node failed over this message; its log says why")

    def _write_refusal(self, status: int, text: str, retry_after: float | None) -> None:
        retry = None if retry_after is None else ceil(retry_after)
        self._request.write(answer_error(self._request, status, text, retry))
        self._request.finish()


def again_in(why: Rejected) -> int | None:
    """
    Returns the seconds after which the client may try again, or None if that is unknown.
    """
    retry_after = why.retry_after if isinstance(why, Blocked | NotNow | TooFast) else None
    return None if retry_after is None else ceil(retry_after)
