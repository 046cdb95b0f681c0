"""
Pages of an object's history, for subscribers that catch up: of this node's journal, or of the node that keeps
the object.
"""

from collections.abc import Callable
from secrets import token_hex
from typing import Any

import msgspec
from twisted.internet.defer import Deferred, fail, maybeDeferred
from twisted.internet.interfaces import IReactorTime

from msgnode.bus.components import Reply
from msgnode.bus.delivery import ExpectedResponses
from msgnode.bus.objects.channels import HISTORY
from msgnode.bus.objects.history import History
from msgnode.bus.objects.history_request import HistoryRequest, Page
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message, compose, decode, part
from msgnode.sessions.session import Session

ANSWER_SECONDS = 10.0
_pages = msgspec.json.Decoder(Page)


class HistoryPages:
    """
    The source of pages (Pages). `history` is None if this node keeps no objects.

    `is_here`: does this node keep the object? `is_elsewhere`: does another domain decide about it?
    """

    def __init__(
        self,
        route: Callable[[Message, Session], Reply],
        expected: ExpectedResponses,
        clock: IReactorTime,
    ) -> None:
        self.history: History | None = None
        self.is_here: Callable[[str], bool] = lambda object: False
        self.is_elsewhere: Callable[[str, Session], bool] = lambda address, session: False
        self._route = route
        self._expected = expected
        self._clock = clock

    def page(self, object: str, first: int, limit: int, message: Message, session: Session) -> Deferred[Page]:
        if self.history is not None and self.is_here(object):
            request = HistoryRequest(from_=first, limit=limit)
            return maybeDeferred(self.history.page, object, request)
        if not self.is_elsewhere(object, session):
            return fail(Rejected(f"nothing is kept of {object}; subscribe without 'since'"[:300], 404))
        return self._ask(object, first, limit, message, session)

    def _ask(self, object: str, first: int, limit: int, message: Message, session: Session) -> Deferred[Page]:
        """
        Asks as the subscriber itself would.
        """
        body = {"from": first, "limit": limit}
        made = compose(f"history-{token_hex(8)}", "read", message.from_, object + HISTORY, body)
        request = decode(made.data, message.origin)
        request.received_at = message.received_at
        answered: Deferred[Page] = Deferred()

        def take(answer: Any) -> None:
            if answered.called:
                return
            forget()
            late.cancel()
            try:
                answered.callback(_read(answer, object))
            except Rejected as why:
                answered.errback(why)

        def give_up() -> None:
            forget()
            answered.errback(Rejected(f"the history of {object} was not answered"[:300], 504, "back-end"))

        late = self._clock.callLater(ANSWER_SECONDS, give_up)
        forget = self._expected.expect(request, session, take)
        asked = maybeDeferred(self._route, request, session)
        asked.addCallbacks(lambda reply: None if reply is None else take(reply), lambda why: take(why.value))
        return answered


def _read(answer: Any, object: str) -> Page:
    """
    The page in an answer. Raises Rejected if it is none.
    """
    if isinstance(answer, Rejected):
        raise answer
    if not isinstance(answer, Message):
        raise Rejected(f"the history of {object} could not be asked for"[:300], 502)
    code, text = answer.field("code"), answer.field("description") or answer.field("desc")
    if code != 200:
        reason = answer.field("reason")
        known = code if isinstance(code, int) and 400 <= code <= 599 else 502
        raise Rejected(str(text or "no history")[:400], known, str(reason or "")[:64])
    try:
        return _pages.decode(part(bytes(answer.body), "value") or b"")
    except ValueError:  # also msgspec.DecodeError
        raise Rejected(f"what answered for {object} gave no history"[:300], 502) from None
