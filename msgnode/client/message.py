"""
A message as a handler gets it.  The handler may answer it, hold it, forward it, or keep it.

A request without an answer is returned to its sender with a code: 500 if the
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
from msgnode.client.records import (
    Record,
    RecordClass,
    answer_body,
    answer_class,
    blank_answer,
    is_record,
    mismatch,
    read,
)
from msgnode.protocol import lossless_json
from msgnode.protocol.address import Domain, is_multicast
from msgnode.protocol.errors import NotOffered

log = Logger()

HOLD_SECONDS = 60.0
WAIT_SECONDS = 20.0  # seconds for an answer


class _NotHandled:
    """
    The value that a handler returns for a request that it does not handle.
    """

    def __repr__(self) -> str:
        return "NOT_HANDLED"


NOT_HANDLED = _NotHandled()  # answered 501, "not processed"
# Types of messages that are not requests.
_NEWS = frozenset({"update", "response", "receipt", "event", "ack"})
# Header fields that say how nodes treat a message; they hold for what is forwarded, too.
_TREATMENT = ("priority", "bulk", "log", "compress", "encrypt", "traceparent")

encode = lossless_json.dumps  # a lone surrogate that came may go on


def decode(data: bytes) -> dict[str, Any] | None:
    """
    Returns the JSON object, or None if the data is something else.
    """
    try:
        found = msgspec.json.decode(data)
    except msgspec.DecodeError:
        try:
            # A lone surrogate, or a number of thousands of digits: msgspec rejects both.
            found = json.loads(data, parse_int=lossless_json.rough)
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

    def request(self, to: str, body: Any = None, **header: Any) -> "Deferred[Message]": ...

    def pass_on(self, request: dict[str, Any], to: str) -> None: ...


class Message:
    """
    A message as a handler gets it.

    `fields` is the whole JSON object.  `record` is the typed body, where a handler of this record got the
    message, or it is the answer to a typed request; otherwise None.
    """

    __slots__ = (
        "__weakref__",
        "_answered",
        "_client",
        "_deadline",
        "_received_at",
        "_reply",
        "fields",
        "held",
        "record",
    )

    def __init__(self, fields: dict[str, Any], client: Requester) -> None:
        self.fields = fields
        self._client = client
        self._answered = self.held = False
        self._deadline: IDelayedCall | None = None
        self._received_at = client.reactor.seconds() if "ttl" in fields else 0.0
        self._reply: Any = None
        self.record: Any = None

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
        The body of the message; empty if there is none.
        """
        return self.fields.get("body") or {}

    @property
    def wants_answer(self) -> bool:
        """
        Is it a request, whose sender waits for an answer?
        """
        is_request = self.type.lower() not in _NEWS and self.fields.get("answer") is not False
        return bool(is_request and self.from_ and not is_multicast(self.to))

    @property
    def reply(self) -> Any:
        """
        The answer to a typed request, which a handler may fill in: it is sent if the handler returns None.

        It has the request's values of the slots that both have.  None if answers have no slots.
        """
        if self._reply is None and self.record is not None:
            self._reply = blank_answer(self.record)
        return self._reply

    def answer(self, result: Any = None, code: int = 200) -> None:
        """
        Answer with a record, with a body, or with a value, which becomes the body's `value`.  Only the first
        answer counts.

        The answer to a typed request is `reply` unless it is given.  Raises TypeError or ValueError if the
        answer does not fit the record of the request.
        """
        if not self._answered:
            self._send(*self._answer(result), code)

    def _answer(self, result: Any) -> tuple[dict[str, Any], str]:
        """
        Returns the body of an answer, and the id of its record.
        """
        request: Record | None = self.record
        if request is not None:
            if result is None:
                result = self.reply
            return answer_body(request, result), request.ID
        if is_record(result):
            return result.to_body(), result.ID
        if isinstance(result, dict):
            return result, ""
        return {} if result is None else {"value": result}, ""

    def _send(self, body: dict[str, Any], record: str, code: int = 200, **header: Any) -> None:
        send_answer(self._client, self.fields, {"code": code, **body}, record, **header)
        self._answered = True
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()

    def refuse(self, code: int, text: str, reason: str = "") -> None:
        """
        Answer with an error; `reason` is one word, for programs.
        """
        said = {"desc": text, "description": text}
        self._refuse({**said, "reason": reason} if reason else said, code)

    def _refuse(self, body: dict[str, Any], code: int) -> None:
        if not self._answered:
            self._send(body, "" if self.record is None else self.record.ID, code)

    def hold(self, seconds: float = HOLD_SECONDS) -> "Message":
        """
        Answer later: the value that the handler returns is not the answer.  A request that is dropped, or
        held too long, is returned to its sender.
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
        Send no answer from this client; the value that the handler returns is ignored.
        """
        self._answered = self.held = True
        return self

    def forward(self, to: str, seconds: float = HOLD_SECONDS) -> "Deferred[None]":
        """
        Let another address answer.

        If its sender allows it (`forward`), the message is forwarded unchanged,
        and the other recipient answers the sender.  Otherwise, and for addresses
        of the node itself, this client sends the request and returns its answer,
        each treated by nodes as the other client asked: `log`, `encrypt`, `priority`.
        """
        if self.fields.get("forward") is True and not Domain(self._client.domain).owns(to):
            self._client.pass_on(self.fields, to)
            self.keep()
            return succeed(None)
        self.hold(seconds)
        header = _given(self.fields, "record", "transaction", *_TREATMENT)
        ttl = self.fields.get("ttl")
        if isinstance(ttl, int | float):
            header["ttl"] = max(0, ttl - (self._client.reactor.seconds() - self._received_at))
        body = self.fields.get("body")
        asked = self._client.request(to, body, type=self.type, timeout=seconds, **header)
        return asked.addCallbacks(self._pass_on, self.fail)

    def _pass_on(self, reply: "Message") -> None:
        if not self._answered:
            record = str(reply.fields.get("record") or "")
            self._send(reply.body, record, **_given(reply.fields, *_TREATMENT))

    def read_as(self, record: RecordClass) -> bool:
        """
        Decode the body, for a handler of this record.  A body that does not fit is refused.
        """
        try:
            self.record = read(record, self.body)
        except ValueError as why:
            log.info(
                "{type} for {to} is refused: {name}: {why}",
                type=self.type,
                to=self.to,
                name=record.NAME,
                why=why,
            )
            if self.wants_answer:
                self._send(mismatch(record, why), record.ID, 400)
            return False
        return True

    def answers(self, request: Record) -> "Message":
        """
        Decode the body, which is the answer to this request.  Refused, 502, if it does not fit.
        """
        made = answer_class(type(request))
        try:
            self.record = made and read(made, self.body)
        except ValueError as why:
            said = mismatch(request.__class__, why)
            text = f"the answer is ill-typed: {said['desc']}"
            raise Refused(502, text, {"code": 502, **said, "desc": text, "description": text}) from None
        return self

    def settle(self, result: Any) -> None:
        """
        Use the value that the handler returned.
        """
        if not self.wants_answer or self.held or self._answered:
            return
        try:
            self._send(*self._answer(result))
        except (TypeError, ValueError, RecursionError):
            self.fail(Failure())

    def not_handled(self) -> None:
        """
        Called when no handler has handled the message.
        """
        self.record = None
        if self.wants_answer and not self.held:
            self.refuse(501, "not processed", NotOffered.reason)

    def fail(self, why: Failure) -> None:
        """
        Answer with an error, because the handler failed.
        """
        error = why.value
        if not isinstance(error, ClientError):
            log.failure("the handler of {type} for {to} failed", why, type=self.type, to=self.to)
        if not self.wants_answer:
            return
        if isinstance(error, Refused):
            try:
                self._refuse({**error.body, "desc": error.text, "description": error.text}, error.code)
            except (TypeError, ValueError, RecursionError):
                log.failure("the body of a refusal is no JSON: {type} for {to}", type=self.type, to=self.to)
                self.refuse(error.code, str(error.text))
        elif isinstance(error, TimedOut):
            self.refuse(504, str(error))
        else:
            self.refuse(500, "the recipient failed over this message")


def _given(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: fields[name] for name in names if name in fields}


def send_answer(
    client: Requester, request: dict[str, Any], body: dict[str, Any], record: str = "", **header: Any
) -> None:
    """
    Send the response to a request, with its id, and its transaction if it has one; `record` is the id of the
    record in the body.
    """
    answer = {
        "id": request.get("id"),
        "type": "response",
        "from": request.get("to"),
        "to": request.get("from"),
        **header,
    }
    if "transaction" in request:
        answer["transaction"] = request["transaction"]
    if record:
        answer["record"] = record
    client.send({**answer, "body": body})


def send_error(client: Requester, request: dict[str, Any], code: int, text: str) -> None:
    send_answer(client, request, {"code": code, "desc": text, "description": text})
