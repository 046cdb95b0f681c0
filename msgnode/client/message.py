"""
A message as the client's program sees it; a handler may answer it, hold it, forward it, or keep it.

A request that nobody answers goes back to its sender with a code: 500 if the
handler raised, 501 if it did not handle it, 503 if it was held and dropped,
504 if it was held too long.
"""

import json
import weakref
from typing import Any, Protocol

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.client.errors import ClientError, Refused, TimedOut
from msgnode.protocol.address import Domain, is_multicast
from msgnode.protocol.errors import NotOffered

log = Logger()

HOLD = 60.0  # seconds
WAIT = 20.0  # seconds for an answer


class _NotHandled:
    """
    The value that a handler returns for a request that it does not handle.
    """

    def __repr__(self) -> str:
        return "NOT_HANDLED"


NOT_HANDLED = _NotHandled()  # answered 501, "not processed"
# Types that nobody awaits an answer to.
_NEWS = frozenset({"update", "response", "receipt", "event", "ack"})

encode = msgspec.json.encode


def decode(data: bytes) -> dict[str, Any] | None:
    """
    The JSON object; None if it is none.
    """
    try:
        found = msgspec.json.decode(data)
    except msgspec.DecodeError:
        try:
            found = json.loads(data)  # half a character, which msgspec does not take
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


class Requester(Protocol):
    """
    A client, as far as its messages, subscriptions and registrations need one (client.py).
    """

    reactor: Any
    stopped: Exception | None

    @property
    def runtime(self) -> str: ...

    @property
    def domain(self) -> str: ...

    def send(self, message: dict[str, Any]) -> None: ...

    def request(
        self,
        to: str,
        body: Any = None,
        *,
        type: str = "read",
        from_: str = "",
        timeout: float = WAIT,
        **header: Any,
    ) -> "Deferred[Message]": ...

    def pass_on(self, request: dict[str, Any], to: str) -> None: ...


class Message:
    """
    A message as a handler gets it.

    `fields` is the whole JSON object.
    """

    __slots__ = ("__weakref__", "_answered", "_client", "_deadline", "fields", "held")

    def __init__(self, fields: dict[str, Any], client: Requester) -> None:
        self.fields = fields
        self._client = client
        self._answered = self.held = False
        self._deadline: IDelayedCall | None = None

    @property
    def id(self) -> Any:
        return self.fields.get("id")

    @property
    def type(self) -> str:
        return str(self.fields.get("type", ""))

    @property
    def from_(self) -> str:
        return str(self.fields.get("from") or "")

    @property
    def to(self) -> str:
        return str(self.fields.get("to") or "")

    @property
    def body(self) -> dict[str, Any]:
        """
        Empty where there is none.
        """
        return self.fields.get("body") or {}

    @property
    def wants_answer(self) -> bool:
        """
        Is it a request, whose sender waits?
        """
        return bool(self.type.lower() not in _NEWS and self.from_ and not is_multicast(self.to))

    def answer(self, result: Any = None, code: int = 200) -> None:
        """
        Answer with a body, or with a value, which becomes the body's `value`.  Only the first answer counts.
        """
        if self._answered:
            return
        self._answered = True
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()
        if not isinstance(result, dict):
            result = {} if result is None else {"value": result}
        send_answer(self._client, self.fields, {"code": code, **result})

    def refuse(self, code: int, text: str, reason: str = "") -> None:
        """
        Answer with an error; `reason` is one word, for programs.
        """
        said = {"desc": text, "description": text}
        self.answer({**said, "reason": reason} if reason else said, code)

    def hold(self, seconds: float = HOLD) -> "Message":
        """
        Answer later: what the handler returns is no answer.  Who drops a held request, or waits too long, has
        it returned to its sender.
        """
        if not self.held:
            self.held = True
            client, request = self._client, self.fields
            weak = weakref.ref(self)

            def too_late() -> None:
                held = weak()
                if held is not None:
                    held.refuse(504, f"not answered within {seconds:g} s")

            deadline = self._deadline = client.reactor.callLater(seconds, too_late)

            def dropped() -> None:
                if deadline.active():
                    deadline.cancel()
                    send_error(client, request, 503, "dropped without an answer")

            weakref.finalize(self, dropped).atexit = False
        return self

    def keep(self) -> "Message":
        """
        Never answer it from here: what the handler returns is no answer, and nothing is sent for it.
        """
        self._answered = self.held = True
        return self

    def forward(self, to: str, seconds: float = HOLD) -> "Deferred[None]":
        """
        Let another address answer.

        Where its sender allows it (`forward`), the message is passed on as it
        is, and the other one answers the sender.  Else, and at the node
        itself, the request is sent there from here, and its answer is passed on.
        """
        if self.fields.get("forward") is True and not Domain(self._client.domain).owns(to):
            self._client.pass_on(self.fields, to)
            self.keep()
            return succeed(None)
        self.hold(seconds)
        transaction = self.fields.get("transaction")
        header = {} if transaction is None else {"transaction": transaction}
        body = self.fields.get("body")
        asked = self._client.request(to, body, type=self.type, timeout=seconds, **header)
        return asked.addCallbacks(self._pass_on, self.fail)

    def _pass_on(self, reply: "Message") -> None:
        self.answer(reply.body)

    def settle(self, result: Any) -> None:
        """
        The handler returned this.
        """
        if not self.wants_answer or self.held:
            return
        if result is NOT_HANDLED:
            self.refuse(501, "not processed", NotOffered.reason)
        else:
            self.answer(result)

    def fail(self, why: Failure) -> None:
        """
        The handler failed.
        """
        error = why.value
        if not isinstance(error, ClientError):
            log.failure("handling {type} for {to}", why, type=self.type, to=self.to)
        if not self.wants_answer:
            return
        if isinstance(error, Refused):
            self.answer({**error.body, "desc": error.text, "description": error.text}, error.code)
        elif isinstance(error, TimedOut):
            self.refuse(504, str(error))
        else:
            self.refuse(500, "the recipient failed over this message")


def send_answer(client: Requester, request: dict[str, Any], body: dict[str, Any]) -> None:
    """
    The response to a request: its id, and its transaction if it has one.
    """
    answer = {
        "id": request.get("id"),
        "type": "response",
        "from": request.get("to"),
        "to": request.get("from"),
    }
    if "transaction" in request:
        answer["transaction"] = request["transaction"]
    client.send({**answer, "body": body})


def send_error(client: Requester, request: dict[str, Any], code: int, text: str) -> None:
    send_answer(client, request, {"code": code, "desc": text, "description": text})
