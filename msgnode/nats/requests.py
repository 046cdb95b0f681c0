"""
Requests: one subscription to `INBOX.*` gets the answers to all of them.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from msgnode.nats.errors import BufferFull, NoResponders, RequestTimeout
from msgnode.nats.wire.message import NO_RESPONDERS, Message


class Requests:
    """
    The requests of a client that wait for their answers. `prefix` is the inbox, without the last token.
    """

    def __init__(self, clock: IReactorTime, prefix: str, most: int) -> None:
        self.prefix = prefix
        self._clock = clock
        self._most = most
        self._waiting: dict[str, Deferred[Message]] = {}
        self._made = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def subject(self) -> str:
        """
        The subject to subscribe to.
        """
        return f"{self.prefix}.*"

    def send(self, publish: Callable[[str], None], subject: str, timeout: float) -> Deferred[Message]:
        """
        Publish with a reply subject of its own; fires with the first answer.

        It fails with RequestTimeout after so many seconds, or NoResponders.
        """
        if len(self._waiting) >= self._most:
            raise BufferFull(f"{self._most} requests wait for their answers")
        self._made += 1
        token = f"{self._made:x}"
        publish(f"{self.prefix}.{token}")
        answer: Deferred[Message] = Deferred(lambda _: self._forget(token))
        self._waiting[token] = answer
        timer = self._clock.callLater(timeout, self._late, token, subject, timeout)
        return answer.addBoth(_stop, timer)

    def received(self, message: Message) -> None:
        """
        An answer came. One that nothing waits for is ignored.
        """
        answer = self._waiting.pop(message.subject.rpartition(".")[2], None)
        if answer is None:
            return
        if not message.payload and message.status == NO_RESPONDERS:
            answer.errback(NoResponders("no subscriber has the subject of the request"))
        else:
            answer.callback(message)

    def fail_all(self, why: Exception) -> None:
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            answer.errback(why)

    def _forget(self, token: str) -> None:
        self._waiting.pop(token, None)

    def _late(self, token: str, subject: str, timeout: float) -> None:
        self._waiting.pop(token).errback(RequestTimeout(f"no answer from {subject} within {timeout:g} s"))


def _stop(result: Any, timer: Any) -> Any:
    if timer.active():
        timer.cancel()
    return result
