"""
The check of messages that name a record, once, where they enter the node.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec

from msgnode.bus.receipts import Receipts
from msgnode.bus.records.known_records import KnownRecords
from msgnode.config.sections import RecordsOptions
from msgnode.protocol import lossless_json
from msgnode.protocol.body_edit import replace_body
from msgnode.protocol.errors import IllTyped, Malformed, error_body
from msgnode.protocol.message import Message
from msgnode.records.checker import is_complete
from msgnode.sessions.session import Session

MAX_VALUES = 30_000  # commas, lists and objects in a body that is checked: it may take 30 ms
FAST_BYTES = 16_384  # of a message whose body is decoded at once
_DIRECTIONS = ("REQUEST", "ANSWER")


class RecordCheck:
    """
    The check of a message's body against the definition of its record.

    `count` counts a refusal by its code and reason.
    """

    def __init__(
        self,
        options: RecordsOptions,
        known: KnownRecords,
        receipts: Receipts,
        count: Callable[[int, str], None],
    ) -> None:
        self._options = options
        self._known = known
        self._receipts = receipts
        self._count = count

    def check(self, message: Message, session: Session) -> None:
        """
        Checks a message that has a record. IllTyped if it does not fit, Malformed (413) if it is too long.

        An answer that does not fit becomes an error, 502, for the one who asked.
        """
        kind = message.type
        is_answer = kind == "response" or kind.lower() == "response"
        known = self._known
        if len(message.data) <= FAST_BYTES:
            try:
                if known.checker.accepts(message.record or "", message.body, _DIRECTIONS[is_answer]):
                    known.checked += 1
                    return
            except KeyError:
                pass  # a record that is not known
        try:
            self._check(message, is_answer)
        except IllTyped as why:
            if not is_answer:
                raise
            self._replace_answer(message, session, why)

    def _check(self, message: Message, is_answer: bool) -> None:
        record = message.record or ""
        checker = self._known.checker
        if not checker.knows(record):
            if self._options.check == "all":
                raise IllTyped(f"this node knows no record {record}", "", "the id of a record it knows")
            return
        self._known.checked += 1
        body = self._body(message)
        if is_answer:
            wrong = checker.check(record, body, "ANSWER", is_complete(body.get("code")))
        else:
            wrong = checker.check(record, body)
        if wrong is not None:
            name = checker.of(record).record.name
            raise IllTyped(f"this is no {name}: {wrong}"[:2000], wrong.slot[:500], wrong.expected[:500])

    def _body(self, message: Message) -> dict[str, Any]:
        body = bytes(message.body)
        most = self._options.max_body_bytes
        if len(body) > most:
            raise _too_long(message, f"the node checks no 'body' of a record with more than {most} bytes")
        if len(body) > MAX_VALUES and sum(map(body.count, (b",", b"[", b"{"))) > MAX_VALUES:
            many = f"more than {MAX_VALUES} of ',', '[' and '{{' in it"
            text = f"the node checks no 'body' of a record with {many}"
            raise _too_long(message, text)
        fields = message.fields(lossy=True)
        if b"\\ud" in body or b"\\uD" in body:  # lone surrogates, which fields() replaces, must be seen
            try:
                fields = json.loads(body, parse_int=lossless_json.rough)
            except RecursionError:  # nested just too deep for this decoder
                text = "'body' has a part that cannot be decoded"
                raise Malformed(text, message.id, message.from_) from None
        return fields

    def _replace_answer(self, message: Message, session: Session, why: IllTyped) -> None:
        """
        Puts the error into the answer's place: the asker waits for one, and must not get an ill-typed one.
        """
        self._count(502, why.reason)
        self._receipts.give(message, why.code, session, 0, why.reason, str(why))
        header: dict[str, Any] = {"id": message.id, "type": message.type}
        header |= {"from": message.from_, "to": message.to}
        if message.transaction is not None:
            header["transaction"] = message.transaction
        text = f"the answer is ill-typed: {why}"
        header["body"] = {**why.body(), **error_body(502, text)}
        replace_body(message, msgspec.json.encode(header))
        message.receipt = False
        message.code, message.reason, message.slot = 502, why.reason, why.slot_name


def _too_long(message: Message, text: str) -> Malformed:
    return Malformed(
        text, message.id, message.from_, 413, message.transaction, reason="limit", log=message.log
    )
