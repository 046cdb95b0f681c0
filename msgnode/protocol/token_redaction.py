r"""
Redaction: no message carries a token of the node's to others, and no log holds one.

A message is cleaned before it is checked, and what was checked is delivered.
The header field `token` is taken out.  In the values of a body asterisks
stand in a token's place, as many as it has characters.  Anywhere else, in
another header field or in a key, a token is refused: what is left of a key or
of an address without it might be another's.

An escape may spell any character of a token (`\u006dns_...`), so the search
reads escapes too, and only where there are some.
"""

import json
import re

import msgspec
from msgspec import Raw

from msgnode.protocol.address import SESSION, split_token
from msgnode.protocol.errors import Malformed
from msgnode.protocol.message import NO_TOKEN, Message, decode

UNDERSCORE, BACKSLASH = b"_\\"  # a byte is found in a seventh of the time of a string
SPELT_LINE = b"\\u005"  # what an underscore begins with where it is an escape
MARK = "*"
MAX_TOKENS = 1000  # in one message
TOKEN_STATES = ("none", "valid", "invalid", "unknown")  # what the identity tokens in a message may prove

_SHAPE = r"mn[sd]_[A-Za-z0-9_-]{43,}"  # a longer word holds one, too
_IN_TEXT = re.compile(_SHAPE)
_PLAIN = re.compile(_SHAPE.encode())
_SPELT = rb"\\u00(?:2[dD]|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aA])"
_WORD = rb"[A-Za-z0-9_-]"
_ESCAPED = re.compile(
    rb"(?:m|\\u006[dD])(?:n|\\u006[eE])(?:[sd]|\\u00(?:73|64))(?:_|\\u005[fF])"
    # Most are plain, and quicker to look at so.
    rb"(?:%(word)s{43}|(?=%(word)s{0,42}+\\u00)(?:%(word)s|%(spelt)s){43}+)(?:%(word)s++|%(spelt)s)*+"
    % {b"word": _WORD, b"spelt": _SPELT}
)
_KEY = re.compile(rb'[\s,{]*("[^"]*")\s*:\s*')
_IS_KEY = re.compile(rb'"\s*:')

_fields_of = msgspec.json.Decoder(dict[str, Raw]).decode


def redacted(message: Message) -> Message:
    """
    The message without tokens; Malformed if one stands where it must not.
    """
    data = message.data
    if message.token is NO_TOKEN and not may_hold_token(data):
        return message
    cleaned = _cleaned(message)
    if cleaned is data:
        return message
    again = decode(cleaned, message.origin)
    again.came = message.came
    return again


def may_hold_token(data: bytes) -> bool:
    """
    Is this worth a closer look?
    """
    if b"mn" in data and (b"mns_" in data or b"mnd_" in data):
        return True
    # Else one of the first four characters is an escape.
    return BACKSLASH in data and (SPELT_LINE in data or b"\\u006" in data or b"\\u0073" in data)


def loggable(text: str) -> str:
    """
    The text with asterisks in the place of tokens.
    """
    return _IN_TEXT.sub(_asterisks, text) if "mn" in text else text


def without_secrets(message: Message) -> None:
    """
    Let nothing of a refused message's header tell a token: it goes into logs, and into the answer.
    """
    if message.to == SESSION:
        message.from_ = split_token(message.from_)[0]  # a re-open's ends in it
    message.from_, message.type = loggable(message.from_), loggable(message.type)
    if isinstance(message.id, str):
        message.id = loggable(message.id)
    if isinstance(message.transaction, str):
        message.transaction = loggable(message.transaction)
    if isinstance(message.to, str):
        message.to = loggable(message.to)
    else:
        message.to = [loggable(address) for address in message.to]


def _asterisks(found: re.Match[str]) -> str:
    return MARK * len(found[0])


def _cleaned(message: Message) -> bytes:
    """
    The message's bytes without tokens; all others as they came.
    """
    data = message.data
    # The same, with every quote the end or the beginning of a string, and every backslash before an
    # escape that is no backslash.
    even = data
    if b"\\" in data:
        even = data.replace(b"\\\\", b"//").replace(b'\\"', b"//")
    search = _ESCAPED if b"\\u00" in even else _PLAIN
    if message.token is NO_TOKEN and search.search(even) is None:
        return data
    token, body = _places(message, even)
    edits = [(*token, b"")] if token[1] else []
    known, number = 0, 0
    for found in search.finditer(even):
        at, end = found.span()
        if token[0] <= at < token[1]:
            continue
        if not body[0] <= at < body[1]:
            raise _refusal(message, "elsewhere in the header")
        if at >= known:  # in another string than the one before
            known = even.index(b'"', end)
            if _IS_KEY.match(even, known):
                raise _refusal(message, "in a key")
        number += 1
        if number > MAX_TOKENS:
            raise _refusal(message, f"more than {MAX_TOKENS} times")
        edits.append((at, end, MARK.encode() * (end - at - 5 * even.count(b"\\", at, end))))
    return _edited(data, edits)


def _refusal(message: Message, where: str) -> Malformed:
    allowed = "a token may stand in the field 'token' and in the values of a body"
    return Malformed(f"{allowed}, not {where}", message.id, message.from_)


def _places(message: Message, even: bytes) -> tuple[tuple[int, int], tuple[int, int]]:
    """
    From where to where the field `token` reaches, with its comma, and the value of `body`.

    The header has no key twice, or it would have been refused.
    """
    try:
        fields = _fields_of(message.data)
    except (msgspec.DecodeError, RecursionError):
        fields = _fields_of(even.replace(b"\\u", b"//"))  # half a character; as long without
    token = body = (0, 0)
    at = even.index(b"{") + 1
    for value in fields.values():
        key = _KEY.match(even, at)
        if key is None:
            raise Malformed("not JSON", message.id, message.from_)
        start = key.end()
        end = start + memoryview(value).nbytes
        name = key[1]
        if b"\\" in name:
            name = json.dumps(json.loads(message.data[key.start(1) : key.end(1)])).encode()
        if name == b'"body"':
            body = start, end
        elif name == b'"token"':
            is_first = b"," not in even[at : key.start(1)]
            token = (key.start(1), even.index(b'"', end)) if is_first else (at, end)
        at = end
    return token, body


def _edited(data: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    pieces: list[bytes] = []
    at = 0
    for start, end, instead in sorted(edits):
        pieces += data[at:start], instead
        at = end
    return b"".join([*pieces, data[at:]])
