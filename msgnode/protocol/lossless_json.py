"""
JSON that is read, changed and written again, with every number as its sender wrote it.

`1e400` is more than a float holds, and `0.10000000000000000001` less than one
shows.  Both are JSON, and not ours to round.
"""

import json
from typing import Any

import msgspec
from msgspec import Raw

MAX_DIGITS = 4000  # digits of a number that Python reads and writes as an integer


class Literal(float):
    """
    A number with the `text` it was written in.
    """

    text: str

    def __new__(cls, text: str) -> "Literal":
        self = super().__new__(cls, text)
        self.text = text
        return self


def loads(data: bytes) -> Any:
    """
    What the JSON says; ValueError or RecursionError if it cannot be read.
    """
    return json.loads(data, parse_float=_float, parse_int=_int, parse_constant=_refuse)


def dumps(value: Any) -> bytes:
    """
    The JSON of what `loads` gave; RecursionError if it is nested too deeply.
    """
    try:
        return msgspec.json.encode(value, enc_hook=_raw)
    except (UnicodeEncodeError, OverflowError, msgspec.MsgspecError):
        return _written(value).encode()  # half a character, or a long integer


def rough(text: str) -> float:
    """
    An integer, or about that much of one that is too long to be one; it may be infinite.
    """
    return int(text) if len(text) <= MAX_DIGITS else float(text)


def _float(text: str) -> float:
    value = float(text)
    return value if repr(value) == text else Literal(text)


def _int(text: str) -> float:
    return int(text) if len(text) <= MAX_DIGITS and text != "-0" else Literal(text)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _raw(value: Any) -> Raw:
    if isinstance(value, Literal):
        return Raw(value.text.encode())
    raise TypeError(f"{type(value).__name__} is not of JSON")


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_written(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return value.text if isinstance(value, Literal) else json.dumps(value)
