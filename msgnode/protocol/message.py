"""
Messages: the header is decoded, the bytes stay as they were received.

Recipients get the sender's bytes; nothing is encoded again. The body is decoded only when a responder needs
it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from secrets import token_hex
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct, field

from msgnode.protocol import lone_surrogates, lossless_json
from msgnode.protocol.address import MAX_ADDRESS_CHARS, SESSION
from msgnode.protocol.decode_errors import UUID, decode_error
from msgnode.protocol.errors import Malformed
from msgnode.protocol.header_members import DuplicateKey, check_keys, members

NO_BODY = Raw()
SHORT_BYTES = 64 * 1024  # bytes that are cheap to decode with any content
QUOTE, OPENING, CLOSING = b'"{}'
COUNTED_BYTES = 512  # bytes that are faster to count than to find the body in
NO_TOKEN = Raw()
NO_VERSION = Raw()
MAX_RECIPIENTS = 1000  # recipients of one message whose `to` is a list
MAX_NESTED = 100_000  # lists and objects in a body that the node reads: they cost far more than their bytes
MAX_TEXTS = 150_000  # keys and texts in such a body: with escapes in all of them, twice as many
MAX_TYPE_CHARS = 2048  # characters
MAX_FROM_CHARS = (
    MAX_ADDRESS_CHARS + 64
)  # in `from` and `to`: longer addresses are never bound, and a token may follow
MAX_STRINGS = 10_000  # keys and texts outside the body
MAX_COPIED_BYTES = 64 * 1024 * 1024  # bytes of all copies of a message

# The node's own fields share the Struct with those of the wire, because the hot path can afford only one
# allocation for a message. No value from the wire fits their types, so a client that guesses their names
# sends no valid message.
_OURS = "\x7f"
_Number = Annotated[int, Meta(gt=0, lt=0)]
_Text = Annotated[str, Meta(pattern="$.")]
_List = Annotated[list[str], Meta(min_length=2, max_length=1)]
_Several = Annotated[tuple[Any, ...], Meta(min_length=2, max_length=1)]

MIDDLE, URGENT = 5, 7  # default priorities: a response is sent before other messages,
BULK = 1  # log messages and the pieces of a file are sent last
MAX_TRANSACTION_CHARS = 64  # characters
Transaction = (
    Annotated[str, Meta(max_length=MAX_TRANSACTION_CHARS)] | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
)
RecordId = Annotated[str, Meta(pattern=rf"\A{UUID}\Z")]


class Message(Struct, gc=False):
    """
    One message: `id`, `type`, `from_`, `to` and the undecoded `body`.

    A sender may add these header fields: `priority` (0 to 9), `ttl` (time to live, in seconds), `receipt` (a
    receipt is requested), `bulk` (it may be sent last), `log` (false: it must not be logged), `transaction`
    (repeated in every answer), `forward` (recipients may forward it), `record` (the id of the record in the
    body) and `token`, which is removed for all recipients (token_redaction.py). Only the node sets `version`,
    that of a kept object.

    `data` is the JSON object as it is forwarded. The other fields describe the outcome; the Router fills them
    in and the traffic log reads them: `outcome`, `recipients` (connections it was sent on), `waiting`
    (sessions it is queued for), `code` (of the node's own answer), `reason` (why it was refused, as a stable
    word), `resources` (the addresses named in a request to the node), `received_at` (nanoseconds since 1970)
    and `handling_us` (microseconds until it was sent). `origin` is the connection it was received on,
    `applied` the obligations carried out for it, `shown` the result of validating its tokens
    (message_tokens.py), `slot` the slot for which its record was refused. `copy_id` is the id that all copies
    have which go to other nodes of the domain; empty if there are none.
    """

    id: int | str
    type: str
    to: str | list[str]
    from_: str = field(name="from", default="")
    body: Raw = NO_BODY
    priority: Annotated[int, Meta(ge=0, le=9)] | None = None
    ttl: Annotated[float, Meta(ge=0)] | None = None
    receipt: bool = False
    bulk: bool = False
    log: bool = True
    transaction: Transaction | None = None
    forward: bool = False
    record: RecordId | None = None
    data: bytes = field(name=_OURS + "data", default=b"")
    origin: Any = field(name=_OURS + "origin", default=None)
    received_at: _Number = field(name=_OURS + "received_at", default=0)
    outcome: _Text = field(name=_OURS + "outcome", default="")
    recipients: _Number = field(name=_OURS + "recipients", default=0)
    waiting: _Number = field(name=_OURS + "waiting", default=0)
    code: _Number = field(name=_OURS + "code", default=0)
    reason: _Text = field(name=_OURS + "reason", default="")
    handling_us: _Number = field(name=_OURS + "handling_us", default=0)
    resources: _List | None = field(name=_OURS + "resources", default=None)
    applied: _Several = field(name=_OURS + "applied", default=())
    shown: _Several = field(name=_OURS + "shown", default=())
    slot: _Text = field(name=_OURS + "slot", default="")
    copy_id: _Several = field(name=_OURS + "copy_id", default=())
    token: Raw = NO_TOKEN
    version: Raw = NO_VERSION

    def fields(self, lossy: bool = False) -> dict[str, Any]:
        """
        The body as a dict; empty if there is none.

        `lossy`: for reading only; a number too large to keep becomes an approximation, or infinite.
        """
        if not memoryview(self.body).nbytes:
            return {}
        body = bytes(self.body)
        if len(body) > MAX_NESTED and body.count(b"[") + body.count(b"{") > MAX_NESTED:
            most = f"the node decodes no 'body' with more than {MAX_NESTED} of '[' and '{{' in it"
            raise Malformed(most, self.id, self.from_, 413, reason="limit")
        # At most one of the two quotes of a text looks escaped.
        if len(body) > 2 * MAX_TEXTS and body.count(b'"') - body.count(b'\\"') > 2 * MAX_TEXTS:
            most = f"the node decodes no 'body' with more than {MAX_TEXTS} keys and texts in it"
            raise Malformed(most, self.id, self.from_, 413, reason="limit")
        try:
            return _loads(body, lossy) or {}
        except (ValueError, RecursionError):
            # Invalid content that was skipped before: a number of 5000 digits, nesting just too deep.
            raise Malformed("'body' has a part that cannot be decoded", self.id, self.from_) from None

    @property
    def effective_priority(self) -> int:
        """
        The priority from the header, or the default of the type.
        """
        if self.priority is not None:
            return self.priority
        kind = self.type.lower()
        if self.bulk or kind == "log":
            return BULK
        return URGENT if kind == "response" else MIDDLE

    @property
    def has_via(self) -> bool:
        """
        Does the body name the stub that the message passed through (docs/protocol.md, "Routing")?
        """
        if b'"via"' not in self.data and b"\\u00" not in self.data:  # an escape may spell it
            return False
        try:
            found = _only("via")(bytes(self.body))
            return found is not None and found.value is not msgspec.UNSET  # null counts, too
        except (msgspec.DecodeError, RecursionError):
            pass
        try:
            return "via" in self.fields()
        except Malformed:
            return True  # it cannot be decoded fully

    def field(self, name: str) -> Any:
        """
        One field of the body, None if it is missing or null; nothing else of the body is built.
        """
        if not memoryview(self.body).nbytes:
            return None
        body = bytes(self.body)
        try:
            found = _only(name)(body)
        except (msgspec.DecodeError, RecursionError):
            return self.fields().get(name)
        if found is None or found.value is msgspec.UNSET or bytes(found.value) == b"null":
            return None
        return Message(self.id, self.type, self.to, self.from_, Raw(b'{"":%s}' % found.value)).fields()[""]

    def reply(self, body: Mapping[str, Any], from_: str | None = None) -> "Message":
        """
        The response to this message: same id and transaction, from and to exchanged.
        """
        to = self.to if isinstance(self.to, str) else self.to[0]
        answer = compose(self.id, "response", from_ or to, self.from_ or None, body, self.transaction)
        answer.log = self.log
        return answer

    def copy_to(self, address: str) -> "Message":
        """
        A copy of this message for one of several recipients.
        """
        return next(self.copies([address]))

    def copies(self, addresses: Iterable[str]) -> Iterator["Message"]:
        """
        A copy for each of these; the message is decoded once for all.
        """
        place = token_hex(16)
        try:
            fields = msgspec.json.decode(self.data, type=dict[str, Raw])
            data = _encode({**fields, "to": place})
        except msgspec.DecodeError:  # a lone surrogate, which msgspec refuses
            data = lossless_json.dumps({**lossless_json.loads(self.data), "to": place})
        before, _, after = data.partition(b'"%s"' % place.encode())
        for address in addresses:
            yield Message(
                self.id,
                self.type,
                address,
                self.from_,
                self.body,
                self.priority,
                self.ttl,
                self.receipt,
                self.bulk,
                self.log,
                self.transaction,
                self.forward,
                self.record,
                before + _encode(address) + after,
                received_at=self.received_at,
                origin=self.origin,
                shown=self.shown,
                version=self.version,
            )


def part(data: bytes, name: str) -> bytes | None:
    """
    The bytes of one field of an object, None if it is missing; nothing is built, for input of any size.

    A lone surrogate becomes U+FFFD. Raises ValueError if the object cannot be decoded.
    """
    try:
        found = _only(name)(data)
    except msgspec.DecodeError:
        found = _only(name)(lone_surrogates.replaced(data))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return None if found is None or found.value is msgspec.UNSET else bytes(found.value)


@cache
def _only(name: str) -> Callable[[bytes], Any]:
    """
    A decoder of one field of an object.
    """
    given: Any = (
        "value",
        Raw | msgspec.UnsetType,
        field(name=name, default=msgspec.UNSET),
    )
    return msgspec.json.Decoder(msgspec.defstruct("Only", [given]) | None).decode


_decoder = msgspec.json.Decoder(Message)
_TOO_MANY = f"a header has at most {MAX_STRINGS} texts and keys; put more into the body"
_encode = msgspec.json.encode


def _loads(data: bytes, lossy: bool = False) -> Any:
    """
    The decoded JSON, with U+FFFD in the place of a lone surrogate.
    """
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        whole = lone_surrogates.replaced(data)
        return json.loads(whole, parse_int=lossless_json.rough) if lossy else msgspec.json.decode(whole)


def compose(
    id: int | str | None,
    type: str,
    from_: str,
    to: str | None,
    body: Mapping[str, Any],
    transaction: int | str | None = None,
    record: str = "",
) -> Message:
    """
    A message of the node's own; `transaction` is that of the message it answers, `record` the id of the
    record in the body.
    """
    header: dict[str, Any] = {"id": id, "type": type, "from": from_, "to": to}
    if transaction is not None:
        header["transaction"] = transaction
    if record:
        header["record"] = record
    header["body"] = body
    return Message(
        id if id is not None else 0,
        type,
        to or "",
        from_,
        transaction=transaction,
        record=record or None,
        data=_encode(header),
    )


def decode(data: bytes, origin: Any = None) -> Message:
    """
    The message in `data`, which is UTF-8; raises Malformed, with a text for the sender, if it is invalid.
    """
    whole = data
    try:
        message = _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as why:
        whole = lone_surrogates.replaced(data) if b"\\u" in data else data
        surrogates = None if whole is data else _with_surrogates(data, whole)
        if surrogates is None:
            raise decode_error(data, why) from None
        message = surrogates
    message.data = data
    message.origin = origin
    if len(data) > MAX_TYPE_CHARS:
        _check_lengths(message)
    body = message.body
    if body is NO_BODY:
        found, quotes = data.count(QUOTE), 14
    else:
        quotes = 16
        last = len(data) - len(body) - 1
        if data[-2] == CLOSING and data.startswith(body, last):  # the usual position
            first, found = data[last], data.count(QUOTE, 0, last)
        else:
            value = bytes(body)
            first, found = value[0], _quotes_outside(data, value)
        if first != OPENING and bytes(body) != b"null":
            raise _malformed(message, "'body' must be an object")
    if message.id.__class__ is str:
        quotes += 2
    # Five keys and three or four strings: with that many quotes outside the body, no key can occur twice.
    # With any other number the keys are checked.
    plain = message.to.__class__ is str and message.from_
    if found != quotes or not plain:
        if found > 2 * MAX_STRINGS:
            raise _malformed(message, _TOO_MANY, "limit")
        if not plain or found != quotes + _own_quotes(message):
            _check_unusual(message, whole)
    return message


def recall(data: bytes) -> Message:
    """
    Decodes a stored message: it was accepted before, perhaps by less strict rules, or composed by the node
    itself.

    Its `id` may be null, as in the refusal of a message that could not be decoded. Raises Malformed if it is
    no JSON object.
    """
    with suppress(Malformed):
        return decode(data)
    try:
        fields = lossless_json.loads(data)
    except (ValueError, RecursionError):
        raise Malformed("not JSON") from None
    if not isinstance(fields, dict):
        raise Malformed("not a JSON object")
    known: dict[str, Any] = {"id": "", "type": "", "to": ""}
    for name, kind in _RECALLED.items():
        with suppress(msgspec.ValidationError):
            known[name] = msgspec.convert(fields[name], kind) if name in fields else known.get(name)
    message = Message(known["id"], known["type"], known["to"], known.get("from") or "", data=data)
    message.priority, message.ttl = known.get("priority"), known.get("ttl")
    message.receipt, message.bulk = bool(known.get("receipt")), bool(known.get("bulk"))
    message.forward = bool(known.get("forward"))
    message.log, message.transaction = known.get("log") is not False, known.get("transaction")
    message.record = known.get("record")
    if "version" in fields:
        message.version = Raw(b"0")  # whichever it is
    return message


_RECALLED: dict[str, Any] = {
    "id": int | str,
    "type": str,
    "to": str | list[str],
    "from": str,
    "priority": Annotated[int, Meta(ge=0, le=9)],
    "ttl": Annotated[float, Meta(ge=0)],
    "receipt": bool,
    "forward": bool,
    "bulk": bool,
    "log": bool,
    "transaction": Transaction,
    "record": RecordId,
}


def _quotes_outside(data: bytes, body: bytes) -> int:
    """
    The number of quotes outside the body, wherever it is.

    Bytes that equal the body have as many quotes, so the first object of the message is enough if it is
    equal.
    """
    if len(data) > COUNTED_BYTES:
        first = data.find(OPENING, 1)
        if data.startswith(body, first):
            return data.count(QUOTE, 0, first) + data.count(QUOTE, first + len(body))
    return data.count(QUOTE) - body.count(QUOTE)


def _with_surrogates(data: bytes, whole: bytes) -> Message | None:
    """
    The message, if its only errors for msgspec are lone surrogates in its body; `whole` is without them.
    """
    try:
        message = _decoder.decode(whole)
    except (msgspec.DecodeError, RecursionError):
        return None
    if message.body is NO_BODY:
        return None
    if _quotes_outside(whole, bytes(message.body)) > 2 * MAX_STRINGS:
        raise _malformed(message, _TOO_MANY, "limit")
    try:
        start, end = next((m.start, m.end) for m in members(whole) if m.name == "body")
    except (DuplicateKey, RecursionError) as why:
        raise _unreadable(message, why) from None
    if lone_surrogates.is_between(data, 0, start) or lone_surrogates.is_between(data, end, len(data)):
        return None  # in the header, where they are not allowed
    message.body = Raw(data[start:end])
    return message


def _own_quotes(message: Message) -> int:
    """
    The number of quotes in the optional header fields that are set.
    """
    given = (message.priority is not None) + (message.ttl is not None) + message.receipt
    given += message.bulk + (not message.log) + message.forward
    if message.transaction is not None:
        given += 2 if message.transaction.__class__ is str else 1
    if message.record is not None:
        given += 2
    quotes = 2 * given
    if message.token is not NO_TOKEN:
        quotes += 2 + bytes(message.token).count(b'"')
    if message.version is not NO_VERSION:
        quotes += 2 + bytes(message.version).count(b'"')
    return quotes


def _malformed(message: Message, text: str, reason: str = "", named: bool = True) -> Malformed:
    """
    The error for a message whose header can be decoded; the answer goes to its `from` if that is `named`.
    """
    from_ = message.from_ or None if named else None
    return Malformed(text, message.id, from_, None, message.transaction, reason, message.log)


def _check_lengths(message: Message) -> None:
    """
    Limits the length of the fields that are examined, logged and repeated in answers.

    A message that opens a session with a name too long is not answered: its connection is closed.
    """
    for name, value, most in (
        ("from", message.from_ if message.to != SESSION else "", MAX_FROM_CHARS),
        ("type", message.type, MAX_TYPE_CHARS),
        ("to", message.to, MAX_FROM_CHARS),
    ):
        longest = len(value) if isinstance(value, str) else max(map(len, value), default=0)
        if longest > most:
            text = f"'{name}' has at most {most} characters, not {longest}"
            raise _malformed(message, text, "limit", name != "from")


def _check_unusual(message: Message, whole: bytes) -> None:
    """
    Checks for keys that occur twice, and checks lists of recipients; `whole` is the message without lone
    surrogates.
    """
    try:
        check_keys(whole)
    except (DuplicateKey, RecursionError) as why:
        raise _unreadable(message, why) from None
    if isinstance(message.to, list):
        if not message.to:
            raise _malformed(message, "'to' must name at least one recipient, not []")
        if len(message.to) > MAX_RECIPIENTS:
            most = f"'to' may name at most {MAX_RECIPIENTS} recipients, not {len(message.to)}"
            raise _malformed(message, most, "limit")
        if len(message.to) * len(message.data) > MAX_COPIED_BYTES:
            most = f"copies for all in 'to' may have {MAX_COPIED_BYTES} bytes together; send it to fewer"
            raise _malformed(message, most, "limit")


def _unreadable(message: Message, why: DuplicateKey | RecursionError) -> Malformed:
    if isinstance(why, DuplicateKey):
        return _malformed(message, f"'{why.key[:80]}' occurs twice in the header")
    return _malformed(message, "nested too deeply")
