"""
A message: the header decoded, the bytes kept as they came.

What a sender wrote is what its recipients read; nothing is encoded again.
The body is decoded only when a responder asks for it.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import islice
from secrets import token_hex
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct, field

from msgnode.protocol import lossless_json
from msgnode.protocol.address import MAX_ADDRESS_CHARS, SESSION
from msgnode.protocol.decode_errors import decode_error
from msgnode.protocol.errors import Malformed

NO_BODY = Raw()
SHORT = 64 * 1024  # bytes that cost little, whatever they hold
MAX_HALVES = 100_000  # of a character, in one message
QUOTE = ord('"')
COUNTED = 512  # bytes, which are counted through before one has looked where the body stands
NO_TOKEN = Raw()
MAX_RECIPIENTS = 1000  # of one message whose `to` is a list
MAX_NESTED = 100_000  # lists and objects in a body that the node reads: they cost far more than their bytes
MAX_TEXTS = 150_000  # keys and texts in such a body: with escapes in all of them, twice as many
MAX_TYPE_CHARS = 2048  # characters
MAX_FROM_CHARS = (
    MAX_ADDRESS_CHARS + 64
)  # in `from` and `to`: no longer address is bound, and a token may stand behind it
MAX_STRINGS = 10_000  # keys and texts outside of the body
MAX_COPIED = 64 * 1024 * 1024  # bytes of all its copies

# Our own fields share the Struct with the wire's, because one allocation a
# message is all the hot path can afford.  No value from the wire fits their
# types, so a client that guesses their names sends no message.
_OURS = "\x7f"
_Number = Annotated[int, Meta(gt=0, lt=0)]
_Text = Annotated[str, Meta(pattern="$.")]
_List = Annotated[list[str], Meta(min_length=2, max_length=1)]
_Several = Annotated[tuple[Any, ...], Meta(min_length=2, max_length=1)]

MIDDLE, URGENT = 5, 7  # what a message's priority is when it does not say: a response leaves earlier,
BULK = 1  # what is only logged and the pieces of a file leave last
MAX_TRANSACTION_CHARS = 64  # characters
Transaction = (
    Annotated[str, Meta(max_length=MAX_TRANSACTION_CHARS)] | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
)


class Message(Struct, gc=False):
    """
    One message: `id`, `type`, `from_`, `to` and the undecoded `body`.

    Header fields of our own, which a sender may add: `priority` (0 to 9),
    `ttl` (seconds it may wait), `receipt` (tell me what became of it), `bulk`
    (it may leave last), `log` (false: write nothing down about it),
    `transaction` (stands in every answer, too), `forward` (who gets it may pass
    it on) and `token`, which no recipient gets to see (token_redaction.py).

    `data` is the JSON object as it is forwarded.  The rest is what became of
    it, filled in by the Router and read by the traffic log: `outcome`,
    `recipients` (connections it was handed to), `waiting` (sessions that keep
    it), `code` (of the node's own answer), `reason` (why it was not carried,
    in a word that does not change), `resources` (addresses that a
    request to the node named), `came` (nanoseconds since 1970) and `micros`
    (microseconds until it was handed on).  `origin` is the connection it
    came by, `done` what policies obliged to on its way in, `shown` what the
    tokens in it prove (message_tokens.py).
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
    data: bytes = field(name=_OURS + "data", default=b"")
    origin: Any = field(name=_OURS + "origin", default=None)
    came: _Number = field(name=_OURS + "came", default=0)
    outcome: _Text = field(name=_OURS + "outcome", default="")
    recipients: _Number = field(name=_OURS + "recipients", default=0)
    waiting: _Number = field(name=_OURS + "waiting", default=0)
    code: _Number = field(name=_OURS + "code", default=0)
    reason: _Text = field(name=_OURS + "reason", default="")
    micros: _Number = field(name=_OURS + "micros", default=0)
    resources: _List | None = field(name=_OURS + "resources", default=None)
    done: _Several = field(name=_OURS + "done", default=())
    shown: _Several = field(name=_OURS + "shown", default=())
    token: Raw = NO_TOKEN

    def fields(self, rough: bool = False) -> dict[str, Any]:
        """
        The body as a dict; empty when there is none.

        `rough`: to look at only, where a number too large to keep is about that large, or infinite.
        """
        if not memoryview(self.body).nbytes:
            return {}
        body = bytes(self.body)
        if len(body) > MAX_NESTED and body.count(b"[") + body.count(b"{") > MAX_NESTED:
            most = f"the node reads no 'body' with more than {MAX_NESTED} of '[' and '{{' in it"
            raise Malformed(most, self.id, self.from_, 413, reason="limit")
        # Of a text and its quotes at most one looks as if it were escaped.
        if len(body) > 2 * MAX_TEXTS and body.count(b'"') - body.count(b'\\"') > 2 * MAX_TEXTS:
            most = f"the node reads no 'body' with more than {MAX_TEXTS} keys and texts in it"
            raise Malformed(most, self.id, self.from_, 413, reason="limit")
        try:
            return _loads(body, rough) or {}
        except (ValueError, RecursionError):
            # What was skipped at first: a number of 5000 digits, a nesting that is just too deep.
            raise Malformed("'body' holds what cannot be read", self.id, self.from_) from None

    @property
    def effective_priority(self) -> int:
        """
        Its priority, given or not.
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
        Does the body name the stub it went through (docs/protocol.md, "Routing")?
        """
        if b'"via"' not in self.data:
            return False
        try:
            found = _only("via")(bytes(self.body))
            return found is not None and found.value is not msgspec.UNSET  # null is one, too
        except (msgspec.DecodeError, RecursionError):
            pass
        try:
            return "via" in self.fields()
        except Malformed:
            return True  # as far as can be read

    def field(self, name: str) -> Any:
        """
        One field of the body, None if it is not there or null; nothing else of the body is built.
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

    def _addressed_by_halves(self, address: str) -> bytes:
        """
        With signs for the halves, which then take their places again.
        """
        if SIGN in self.data or b"\\" in _encode(address):  # they could not be told from others
            return lossless_json.dumps({**lossless_json.loads(self.data), "to": address})
        fields = msgspec.json.decode(_whole(self.data), type=dict[str, Raw])
        halves = iter(_HALF.findall(self.data))
        return re.sub(re.escape(SIGN), lambda sign: next(halves), _encode({**fields, "to": address}))

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
        except msgspec.DecodeError:  # half a character, which msgspec does not take
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
                before + _encode(address) + after,
                came=self.came,
                origin=self.origin,
                shown=self.shown,
            )


def part(data: bytes, name: str) -> bytes | None:
    """
    One field of an object as it stands, None if it is not there; nothing is built, however much there is.

    Where there is half a character, a sign stands in its place.  ValueError if it cannot be read.
    """
    try:
        found = _only(name)(data)
    except msgspec.DecodeError:
        found = _only(name)(_whole(data))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return None if found is None or found.value is msgspec.UNSET else bytes(found.value)


@cache
def _only(name: str) -> Callable[[bytes], Any]:
    """
    Reads one field of an object.
    """
    given: Any = (
        "value",
        Raw | msgspec.UnsetType,
        field(name=name, default=msgspec.UNSET),
    )
    return msgspec.json.Decoder(msgspec.defstruct("Only", [given]) | None).decode


_decoder = msgspec.json.Decoder(Message)
_TOO_MANY = f"a header has at most {MAX_STRINGS} texts and keys; put more into the body"
_KEY = re.compile(r'[\s,]*("(?:[^"\\]|\\.)*+")\s*:\s*')
_scanner = json.JSONDecoder(parse_int=str, strict=False)
_fields_of = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.encode


_HALF = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)
SIGN = rb"\ufffd"  # in the place of half a character; as long


def _whole(data: bytes) -> bytes:
    """
    The same with a sign in the place of half a character; not a byte longer.  Beyond so many it is no text.
    """
    return _HALF.sub(rb"\\ufffd", data, MAX_HALVES)


def _loads(data: bytes, rough: bool = False) -> Any:
    """
    What this JSON says, with a sign in the place of half a character.
    """
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        whole = _whole(data)
        return json.loads(whole, parse_int=lossless_json.rough) if rough else msgspec.json.decode(whole)


def compose(
    id: int | str | None,
    type: str,
    from_: str,
    to: str | None,
    body: Mapping[str, Any],
    transaction: int | str | None = None,
) -> Message:
    """
    A message of the node's own; `transaction` is that of what it answers.
    """
    header: dict[str, Any] = {"id": id, "type": type, "from": from_, "to": to}
    if transaction is not None:
        header["transaction"] = transaction
    header["body"] = body
    return Message(
        id if id is not None else 0, type, to or "", from_, transaction=transaction, data=_encode(header)
    )


def decode(data: bytes, origin: Any = None) -> Message:
    """
    The message in `data`, which is UTF-8; Malformed, in the sender's words, if it is none.
    """
    half: Message | None = None
    try:
        message = _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as why:
        half = _with_surrogates(data)
        if half is None:
            raise decode_error(data, why) from None
        message = half
    message.data = data
    message.origin = origin
    if len(data) > MAX_TYPE_CHARS:
        _check_lengths(message)
    quotes = 16
    if message.body is NO_BODY:
        found, quotes = data.count(QUOTE), 14
    else:
        body = bytes(message.body)
        if body[0] != 123 and body != b"null":
            raise _complaint(message, "'body' must be an object")
        end = len(data) - len(body) - 1
        if len(data) < COUNTED or not _ends_in(data, end, body):
            found = data.count(QUOTE) - body.count(QUOTE)
        else:
            found = data.count(QUOTE, 0, end)
    if message.id.__class__ is str:
        quotes += 2
    # Five keys and three or four strings: that many quotes outside of the
    # body leave no room for a key that stands twice.  With any other number
    # the keys are looked at.
    plain = message.to.__class__ is str and message.from_ and half is None
    if not plain or (found != quotes and found != quotes + _ours(message)):
        if found > 2 * MAX_STRINGS and half is None:
            raise _complaint(message, _TOO_MANY, "limit")
        _check_unusual(message)
    return message


def recall(data: bytes) -> Message:
    """
    What was kept: taken before, perhaps by rules that were less strict, or written by the node itself.

    Its `id` may be null, as in the refusal of what nobody could read.  Malformed if it is no JSON object.
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
    message.log, message.transaction = known.get("log", True), known.get("transaction")
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
}


def _ends_in(data: bytes, end: int, body: bytes) -> bool:
    r"""
    Is the body the last field, and begins there?

    Without the comma `"body":` could be the end of the key `x\"body`, and the body another.
    """
    return data.startswith(b',"body":', end - 8) and data.startswith(body, end) and data[-1] == 125


def _with_surrogates(data: bytes) -> Message | None:
    r"""
    The message, if all that msgspec has against it is half a character in the body.

    JSON.stringify writes one as `\ud83d` when a text was cut inside an emoji, and JSON.parse reads it.
    """
    if b"\\u" not in data:
        return None
    whole = _whole(data)
    try:
        message = _decoder.decode(whole)
    except (msgspec.DecodeError, RecursionError):
        return None
    body = bytes(message.body)
    start = _body_at(whole, body)
    if start < 0 or not body or _HALF.search(data, 0, start) or _HALF.search(data, start + len(body)):
        return None  # half a character in the header, which is nobody's address
    message.body = Raw(data[start : start + len(body)])
    return message


def _body_at(data: bytes, body: bytes) -> int:
    """
    Where the body stands; another field may say the same.  -1 if that cannot be read.
    """
    start = data.find(body)
    if data.rfind(body) == start:
        return start
    try:
        keys = islice(_keys(data, body), MAX_STRINGS)
        return next((at for name, at in keys if name == "body"), -1)
    except (ValueError, RecursionError):
        return -1


def _keys(data: bytes, body: bytes) -> Iterator[tuple[Any, int]]:
    """
    The keys of the header, each with where its value begins.  ValueError or RecursionError.
    """
    text = data.decode("latin-1")  # as long as the bytes
    at = text.index("{") + 1
    while (key := _KEY.match(text, at)) is not None:
        at = key.end()
        yield json.loads(data[key.start(1) : key.end(1)]), at
        # No object is the beginning of another.
        at = at + len(body) if body and data.startswith(body, at) else _scanner.raw_decode(text, at)[1]


def _ours(message: Message) -> int:
    """
    The quotes of our own header fields, as far as they say anything.
    """
    given = (message.priority is not None) + (message.ttl is not None) + message.receipt
    given += message.bulk + (not message.log) + message.forward
    if message.transaction is not None:
        given += 2 if message.transaction.__class__ is str else 1
    if message.token is NO_TOKEN:
        return 2 * given
    return 2 * given + 2 + bytes(message.token).count(b'"')


def _complaint(message: Message, text: str, reason: str = "", named: bool = True) -> Malformed:
    """
    What is wrong with a message whose header can be read; the answer goes to its `from` if that is `named`.
    """
    from_ = message.from_ or None if named else None
    return Malformed(text, message.id, from_, None, message.transaction, reason, message.log)


def _check_lengths(message: Message) -> None:
    """
    Nothing that is looked at, written down and answered again and again is as long as a message may be.

    What opens a session is closed for its name, not answered.
    """
    for name, value, most in (
        ("from", message.from_ if message.to != SESSION else "", MAX_FROM_CHARS),
        ("type", message.type, MAX_TYPE_CHARS),
        ("to", message.to, MAX_FROM_CHARS),
    ):
        longest = len(value) if isinstance(value, str) else max(map(len, value), default=0)
        if longest > most:
            text = f"'{name}' has at most {most} characters, not {longest}"
            raise _complaint(message, text, "limit", name != "from")


def _check_unusual(message: Message) -> None:
    double = _doubled(message)
    if double is not None:
        raise _complaint(message, f"'{double[:80]}' stands twice in the header")
    if isinstance(message.to, list):
        if not message.to:
            raise _complaint(message, "'to' must name at least one recipient, not []")
        if len(message.to) > MAX_RECIPIENTS:
            most = f"'to' may name at most {MAX_RECIPIENTS} recipients, not {len(message.to)}"
            raise _complaint(message, most, "limit")
        if len(message.to) * len(message.data) > MAX_COPIED:
            most = f"copies for all in 'to' may have {MAX_COPIED} bytes together; send it to fewer"
            raise _complaint(message, most, "limit")


def _doubled(message: Message) -> str | None:
    """
    The header key that stands twice, in whatever escapes; None if there is none.
    """
    data = message.data
    try:
        fields = _fields_of(data)
    except (msgspec.DecodeError, RecursionError):  # half a character, or far within
        pass
    else:
        # Each key has two quotes.  If that accounts for all, no other stands beside these.
        if data.count(b'"') == sum(2 + bytes(value).count(b'"') for value in fields.values()):
            return None
    body, seen = bytes(message.body), set()
    try:
        for name, _ in _keys(data, body):
            if name in seen:
                return str(name)
            seen.add(name)
            if len(seen) > MAX_STRINGS:
                raise _complaint(message, _TOO_MANY, "limit")
    except RecursionError:
        raise _complaint(message, "nested too deeply") from None
    except ValueError:
        raise _complaint(message, "not JSON") from None
    return None
