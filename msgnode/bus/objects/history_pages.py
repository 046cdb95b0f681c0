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
        self.send: Callable[[Message, Session, str], object] = lambda message, session, node: None
        self._route = route
        self._expected = expected
        self._clock = clock

    def page(self, object: str, first: int, limit: int, message: Message, session: Session) -> Deferred[Page]:
        asked = HistoryRequest(from_=first, limit=limit)
        if self.history is not None and self.is_here(object):
            keeper = self.history.keeper(object)
            if not keeper:
                return maybeDeferred(self.history.page, object, asked)
            found = self._ask(object, {"from": first, "limit": limit}, message, session, keeper)
        elif self.is_elsewhere(object, session):
            found = self._ask(object, {"from": first, "limit": limit}, message, session)
        else:
            return fail(Rejected(f"nothing is kept of {object}; subscribe without 'since'"[:300], 404))
        return found.addCallback(_page, object)

    def ask_member(self, keeper: str, object: str, message: Message, session: Session) -> Deferred[Message]:
        """
        The answer of the member that keeps an object to what a client here has asked.
        """
        return self._ask(object, message.fields(), message, session, keeper)

    def _ask(
        self, object: str, body: dict[str, Any], message: Message, session: Session, keeper: str = ""
    ) -> Deferred[Message]:
        """
        Asks as the client itself would.
        """
        made = compose(f"history-{token_hex(8)}", "read", message.from_, object + HISTORY, body)
        request = decode(made.data, message.origin)
        request.received_at = message.received_at
        answered: Deferred[Message] = Deferred()

        def take(answer: Any) -> None:
            if answered.called:
                return
            forget()
            late.cancel()
            try:
                answered.callback(_checked(answer, object))
            except Rejected as why:
                answered.errback(why)

        def give_up() -> None:
            forget()
            answered.errback(Rejected(f"the history of {object} was not answered"[:300], 504, "back-end"))

        late = self._clock.callLater(ANSWER_SECONDS, give_up)
        forget = self._expected.expect(request, session, take)
        if keeper:
            asked: Deferred[Any] = maybeDeferred(self.send, request, session, keeper)
        else:
            asked = maybeDeferred(self._route, request, session)
        asked.addCallbacks(lambda reply: None if reply is None else take(reply), lambda why: take(why.value))
        return answered


def _checked(answer: Any, object: str) -> Message:
    """
    The answer. Raises Rejected if it is none, or a refusal.
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
    return answer


def _page(answer: Message, object: str) -> Page:
    try:
        return _pages.decode(part(bytes(answer.body), "value") or b"")
    except ValueError:  # also msgspec.DecodeError
        raise Rejected(f"what answered for {object} gave no history"[:300], 502) from None
