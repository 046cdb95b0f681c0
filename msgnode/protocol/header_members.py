"""
The members of a message's header: each key, and where its value begins and ends in the bytes.

msgspec decodes the last value of each key. A comparison with the bytes shows exactly whether a key occurs
twice: if none does, these values follow one another from the first byte to the last.
"""

import json
import re
from typing import NamedTuple

import msgspec
from msgspec import Raw

_KEY = rb'("[^"\\]*+(?:\\.[^"\\]*+)*+")[ \t\r\n]*+:[ \t\r\n]*+'
_FIRST = re.compile(rb"[ \t\r\n]*+\{[ \t\r\n]*+" + _KEY)
_NEXT = re.compile(rb"[ \t\r\n]*+,[ \t\r\n]*+" + _KEY)
_END = re.compile(rb"[ \t\r\n]*+\}")

QUOTE = ord('"')
fields_of = msgspec.json.Decoder(dict[str, Raw]).decode


class DuplicateKey(Exception):
    """
    A key of the header occurs twice; `key` is one that does.
    """

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class Member(NamedTuple):
    """
    A key and its position: from `key`, its value from `start` to `end`; the member before ends at `after`.
    """

    name: str
    after: int
    key: int
    start: int
    end: int


def check_keys(data: bytes) -> None:
    """
    Raises DuplicateKey, as `members` does, but is faster.
    """
    # Each key has two quotes.  If they account for all quotes, there is no further key.
    if data.count(QUOTE) != sum(2 + bytes(value).count(QUOTE) for value in fields_of(data).values()):
        members(data)


def members(data: bytes) -> list[Member]:
    """
    The members of a JSON object that is not empty, in their order.

    Raises DuplicateKey; or msgspec.DecodeError or RecursionError if it cannot be decoded.
    """
    found: list[Member] = []
    pattern, at, last = _FIRST, 0, ""
    for name, value in fields_of(data).items():
        key = pattern.match(data, at)
        if key is None:  # the value before begins with the last value, as 12 begins with 1
            raise DuplicateKey(last)
        last, start = _spelt(key[1]), key.end()
        if last != name or not data.startswith(value, start):
            raise DuplicateKey(last)
        end = start + len(value)
        found.append(Member(name, at, key.start(1), start, end))
        pattern, at = _NEXT, end
    if _END.match(data, at) is None:
        key = _NEXT.match(data, at)
        raise DuplicateKey(last if key is None else _spelt(key[1]))
    return found


def _spelt(key: bytes) -> str:
    return str(json.loads(key)) if b"\\" in key else key[1:-1].decode()
