"""
The requests that are not answered yet, and the messages whose receipt has not come yet.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from msgnode.client.delivery import Delivery, whole
from msgnode.client.errors import Refused, TimedOut
from msgnode.client.message import Message

log = Logger()

M = TypeVar("M", bound=Message)


@dataclass(slots=True)
class _Pending(Generic[M]):
    """
    A request without its answer; `last` is the receipt that came and is not final.
    """

    to: str
    transaction: Any
    answer: Deferred[M]
    deadline: IDelayedCall
    waiting: Callable[[M], Any] | None
    last: M | None = None


class PendingRequests(Generic[M]):
    """
    The table of requests by their ids.

    An answer must come from the address that was asked, or from the node.  If the request could be
    forwarded, it may come from any address, with the transaction of the request.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._waiting: dict[Any, _Pending[M]] = {}

    def expect(
        self,
        id_: int,
        to: str,
        timeout: float,
        transaction: Any = None,
        waiting: Callable[[M], Any] | None = None,
    ) -> Deferred[M]:
        """
        Fires with the answer.  Cancel it to ignore the answer.

        `transaction`: an answer that has it may come from any address.  `waiting` is called with a receipt
        that is not final; if no other comes in time, the Deferred fires with that.
        """
        answer: Deferred[M] = Deferred(lambda _: self._cancelled(id_))
        deadline = self._reactor.callLater(timeout, self._late, id_, timeout)
        self._waiting[id_] = _Pending(to, transaction, answer, deadline, waiting)
        return answer

    def heard(self, reply: M) -> bool:
        """
        Is it the answer to a pending request?
        """
        id_ = reply.id
        if id_ not in self._waiting:
            return False
        from_ = reply.from_
        pending = self._waiting[id_]
        passed_on = pending.transaction is not None and reply.fields.get("transaction") == pending.transaction
        if pending.to != from_ and not from_.startswith("mn:") and not passed_on:
            return False
        if isinstance(reply, Delivery) and not reply.is_final:
            self._wait(pending, reply)
            return True
        code = whole(reply.body.get("code"), 200)
        if reply.type.lower() == "response":
            if 100 <= code < 200:
                return True  # a provisional answer: the final one follows
            if code >= 300:
                text = reply.body.get("desc") or reply.body.get("description") or ""
                self.fail(id_, Refused(code, str(text), reply.body))
                return True
        self._take(id_).callback(reply)
        return True

    def _wait(self, pending: _Pending[M], receipt: M) -> None:
        pending.last = receipt
        if pending.waiting is None:
            return
        try:
            pending.waiting(receipt)
        except Exception:
            log.failure("the function for receipts that are not final failed on one for {to}", to=pending.to)

    def fail(self, id_: Any, why: Exception) -> None:
        if id_ in self._waiting:
            self._take(id_).errback(why)

    def abandon(self, why: Exception) -> None:
        """
        Fail all requests: no more answers will come.
        """
        for id_ in list(self._waiting):
            self.fail(id_, why)

    def _late(self, id_: int, timeout: float) -> None:
        pending = self._waiting[id_]
        if pending.last is not None:
            self._take(id_).callback(pending.last)
        else:
            self.fail(id_, TimedOut(f"no answer from {pending.to} within {timeout:g} s"))

    def _cancelled(self, id_: int) -> None:
        self._take(id_)

    def _take(self, id_: Any) -> Deferred[M]:
        pending = self._waiting.pop(id_)
        if pending.deadline.active():
            pending.deadline.cancel()
        return pending.answer
