"""
Requests that are not answered yet.
"""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall

from msgnode.client.errors import Refused, TimedOut
from msgnode.client.message import Message


class PendingRequests:
    """
    By their ids.  An answer from somewhere else than was asked is none, unless it is the node's, or
    who was asked might pass the request on, and the answer knows its transaction.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._waiting: dict[Any, tuple[str, Any, Deferred[Message], IDelayedCall]] = {}

    def expect(self, id_: int, to: str, timeout: float, transaction: Any = None) -> Deferred[Message]:
        """
        Fires with the answer; whoever cancels it wants none.

        `transaction`: anybody may give it who knows that.
        """
        answer: Deferred[Message] = Deferred(lambda _: self._cancelled(id_))
        deadline = self._reactor.callLater(timeout, self._late, id_, to, timeout)
        self._waiting[id_] = to, transaction, answer, deadline
        return answer

    def heard(self, reply: Message) -> bool:
        """
        Was it awaited?
        """
        id_ = reply.id
        if id_ not in self._waiting:
            return False
        from_ = reply.from_
        asked, transaction, _, _ = self._waiting[id_]
        passed_on = transaction is not None and reply.fields.get("transaction") == transaction
        if asked != from_ and not from_.startswith("mn:") and not passed_on:
            return False
        code = _code(reply.body)
        if reply.type.lower() == "response":
            if 100 <= code < 200:
                return True  # the final answer is yet to come
            if code >= 300:
                text = reply.body.get("desc") or reply.body.get("description") or ""
                self.fail(id_, Refused(code, str(text), reply.body))
                return True
        self._take(id_).callback(reply)
        return True

    def fail(self, id_: Any, why: Exception) -> None:
        if id_ in self._waiting:
            self._take(id_).errback(why)

    def abandon(self, why: Exception) -> None:
        """
        There will be no more answers.
        """
        for id_ in list(self._waiting):
            self.fail(id_, why)

    def _late(self, id_: int, to: str, timeout: float) -> None:
        self.fail(id_, TimedOut(f"no answer from {to} within {timeout:g} s"))

    def _cancelled(self, id_: int) -> None:
        self._take(id_)

    def _take(self, id_: Any) -> Deferred[Message]:
        _, _, answer, deadline = self._waiting.pop(id_)
        if deadline.active():
            deadline.cancel()
        return answer


def _code(body: dict[str, Any]) -> int:
    """
    Some clients write it as a text, or leave it out.
    """
    try:
        return int(body.get("code", 200))
    except (TypeError, ValueError):
        return 200
