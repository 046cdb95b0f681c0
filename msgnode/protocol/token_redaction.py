"""
Redaction: session and device tokens are removed from messages and logs.

A message is redacted before policies check it, and the redacted message is delivered. The header field
`token` is removed. In the values of the body, asterisks replace each character of a token. Anywhere else, in
another header field or in a key, a token is refused: a key or an address with asterisks might be another
valid one.

JSON escapes can spell any character of a token (`\u006dns_...`), so the search decodes escapes where there
are some.
"""

import re

import msgspec

from msgnode.protocol import lone_surrogates
from msgnode.protocol.address import SESSION, split_token
from msgnode.protocol.errors import Malformed
from msgnode.protocol.header_members import members
from msgnode.protocol.message import NO_TOKEN, Message, decode

UNDERSCORE, BACKSLASH = b"_\\"  # searching for a byte takes a seventh of the time of a string
SPELT_LINE = b"\\u005"  # the beginning of an escaped underscore
MARK = "*"
MAX_TOKENS = 1000  # in one message
TOKEN_STATES = ("none", "valid", "invalid", "unknown")  # the results for identity tokens in messages

_SHAPE = r"mn[sd]_[A-Za-z0-9_-]{43,}"  # also inside a longer word
_IN_TEXT = re.compile(_SHAPE)
_PLAIN = re.compile(_SHAPE.encode())
_SPELT = rb"\\u00(?:2[dD]|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aA])"
_WORD = rb"[A-Za-z0-9_-]"
_ESCAPED = re.compile(
    rb"(?:m|\\u006[dD])(?:n|\\u006[eE])(?:[sd]|\\u00(?:73|64))(?:_|\\u005[fF])"
    # Most characters are not escaped; that alternative is faster and comes first.
    rb"(?:%(word)s{43}|(?=%(word)s{0,42}+\\u00)(?:%(word)s|%(spelt)s){43}+)(?:%(word)s++|%(spelt)s)*+"
    % {b"word": _WORD, b"spelt": _SPELT}
)
_IS_KEY = re.compile(rb'"\s*:')


def redacted(message: Message) -> Message:
    """
    The message without tokens. Malformed if a token is in a place where it is refused.
    """
    data = message.data
    if message.token is NO_TOKEN and not may_hold_token(data):
        return message
    cleaned = _cleaned(message)
    if cleaned is data:
        return message
    again = decode(cleaned, message.origin)
    again.received_at = message.received_at
    return again


def may_hold_token(data: bytes) -> bool:
    """
    Might the bytes contain a token? A fast check without false negatives.
    """
    if b"mn" in data and (b"mns_" in data or b"mnd_" in data):
        return True
    # Else one of the first four characters must be an escape.
    return BACKSLASH in data and (SPELT_LINE in data or b"\\u006" in data or b"\\u0073" in data)


def loggable(text: str) -> str:
    """
    The text with each token replaced by asterisks.
    """
    return _IN_TEXT.sub(_asterisks, text) if "mn" in text else text


def without_secrets(message: Message) -> None:
    """
    Redact the header of a refused message, in place: it appears in logs and in the reply.
    """
    if message.to == SESSION:
        message.from_ = split_token(message.from_)[0]  # the `from` of a re-open ends in the token
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
    The bytes of the message without tokens; `message.data` itself if it has none.
    """
    data = message.data
    # A copy of the same length, in which every quote delimits a string, and every backslash begins an escape
    # other than an escaped backslash or quote.
    even = data
    if b"\\" in data:
        even = data.replace(b"\\\\", b"//").replace(b'\\"', b"//")
    search = _ESCAPED if b"\\u00" in even else _PLAIN
    if message.token is NO_TOKEN and search.search(even) is None:
        return data
    token, body = _places(message)
    edits = [(*token, b"")] if token[1] else []
    known, number = 0, 0
    for found in search.finditer(even):
        at, end = found.span()
        if token[0] <= at < token[1]:
            continue
        if not body[0] <= at < body[1]:
            raise _refusal(message, "elsewhere in the header")
        if at >= known:  # in another string than the previous token
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


def _places(message: Message) -> tuple[tuple[int, int], tuple[int, int]]:
    """
    The start and end of the field `token` with its comma, and of the value of `body`.

    No key occurs twice in the header: decoding would have refused it.
    """
    try:
        try:
            header = members(message.data)
        except msgspec.DecodeError:
            header = members(lone_surrogates.replaced(message.data))
    except RecursionError:
        raise Malformed("nested too deeply", message.id, message.from_) from None
    token = body = (0, 0)
    for number, member in enumerate(header):
        if member.name == "body":
            body = member.start, member.end
        elif member.name == "token":
            token = (member.after, member.end) if number else (member.key, header[1].key)
    return token, body


def _edited(data: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    pieces: list[bytes] = []
    at = 0
    for start, end, instead in sorted(edits):
        pieces += data[at:start], instead
        at = end
    return b"".join([*pieces, data[at:]])
