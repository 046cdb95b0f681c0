"""
Lossless JSON: decode, change and encode it again with every number as its sender wrote it.

`1e400` exceeds a float, and `0.10000000000000000001` would be rounded. Both are valid JSON and must not
change.
"""

import json
from typing import Any

import msgspec
from msgspec import Raw

MAX_DIGITS = 4000  # longest number that is decoded as an integer


class Literal(float):
    """
    A number that keeps the `text` it was written as.
    """

    text: str

    def __new__(cls, text: str) -> "Literal":
        self = super().__new__(cls, text)
        self.text = text
        return self


def loads(data: bytes) -> Any:
    """
    Decode JSON. ValueError or RecursionError if it cannot be decoded.
    """
    return json.loads(data, parse_float=_float, parse_int=_int, parse_constant=_refuse)


def dumps(value: Any) -> bytes:
    """
    Encode a value that `loads` returned. RecursionError if it is nested too deeply.
    """
    try:
        return msgspec.json.encode(value, enc_hook=_raw)
    except (UnicodeEncodeError, OverflowError, msgspec.MsgspecError):
        return _written(value).encode()  # a lone surrogate, or a long integer


def rough(text: str) -> float:
    """
    An integer, or its approximation as a float if it is too long; maybe infinity.
    """
    return int(text) if len(text) <= MAX_DIGITS else float(text)


def _float(text: str) -> float:
    value = float(text)
    return value if repr(value) == text else Literal(text)


def _int(text: str) -> float:
    return int(text) if len(text) <= MAX_DIGITS and text != "-0" else Literal(text)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def _raw(value: Any) -> Raw:
    if isinstance(value, Literal):
        return Raw(value.text.encode())
    raise TypeError(f"{type(value).__name__} is not a JSON type")


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_written(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return value.text if isinstance(value, Literal) else json.dumps(value)
