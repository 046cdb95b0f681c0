"""
The reference: a slow reader of messages, by `json.loads` and docs/protocol.md.

It keeps every key of every object, however often it stands there.
"""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

MAX_STRINGS = 10_000  # keys and texts in a header
MAX_RECIPIENTS = 1000
MAX_TYPE_CHARS, MAX_ADDRESS_CHARS = 2048, 2112
MAX_SURROGATES = 100_000
INT64 = range(-(2**63), 2**63)
REQUIRED = {"id", "type", "to"}
ACCEPTED, DUPLICATE, REFUSED = "accepted", "duplicate key", "refused"


class Pairs(list[tuple[str, Any]]):
    """
    An object: its keys and values in their order.
    """

    def last(self) -> dict[str, Any]:
        """
        The value that counts for each key.
        """
        return dict(self)


class Verdict(NamedTuple):
    """
    What a message is: one of ACCEPTED, DUPLICATE and REFUSED, its header, and the keys that stand twice.
    """

    kind: str
    header: Pairs
    doubled: frozenset[str] = frozenset()


class NotJSON(Exception):
    """
    It cannot be read.
    """


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_decode = json.JSONDecoder(object_pairs_hook=Pairs, parse_constant=_refuse).decode


def parsed(data: bytes) -> Any:
    """
    What the JSON says; every object is Pairs.
    """
    try:
        return _decode(data.decode())
    except (ValueError, RecursionError) as why:
        raise NotJSON(str(why)) from None


def verdict(data: bytes) -> Verdict:
    """
    What docs/protocol.md says of these bytes.
    """
    try:
        header = parsed(data)
    except NotJSON:
        return Verdict(REFUSED, Pairs())
    if not isinstance(header, Pairs) or not _fits(header, data):
        return Verdict(REFUSED, Pairs())
    if len(header.last()) < len(header):
        doubled = frozenset(key for key, number in Counter(key for key, _ in header).items() if number > 1)
        return Verdict(DUPLICATE, header, doubled)
    to = header.last()["to"]
    if isinstance(to, list) and not 0 < len(to) <= MAX_RECIPIENTS:
        return Verdict(REFUSED, header)
    return Verdict(ACCEPTED, header)


def _fits(header: Pairs, data: bytes) -> bool:
    """
    Is each value what its key may have, and each required key there?
    """
    if not header.last().keys() >= REQUIRED:
        return False
    for key, value in header:
        if key in FITS and not FITS[key](value):
            return False
    if len(data) < MAX_STRINGS and b"\\ud" not in data.lower():
        return True  # what is short and spells no surrogate has not too many of anything
    outside = [text for key, value in header for text in (key, *([] if key == "body" else strings(value)))]
    if len(outside) > MAX_STRINGS or any(surrogates(text) for text in outside):
        return False
    inside = (text for key, value in header if key == "body" for text in strings(value))
    return sum(map(surrogates, inside)) <= MAX_SURROGATES


def strings(value: Any) -> list[str]:
    """
    Every text and every key in this.
    """
    if isinstance(value, str):
        return [value]
    if isinstance(value, Pairs):
        return [text for key, inner in value for text in (key, *strings(inner))]
    if isinstance(value, list):
        return [text for inner in value for text in strings(inner)]
    return []


def surrogates(text: str) -> int:
    """
    How many lone surrogates are in a text.
    """
    return 0 if text.isascii() else sum("\ud800" <= character <= "\udfff" for character in text)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_time(value: Any) -> bool:
    if value is None:
        return True
    try:
        return (
            not isinstance(value, bool)
            and isinstance(value, int | float)
            and 0 <= float(value) < float("inf")
        )
    except OverflowError:
        return False


def _is_address(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_ADDRESS_CHARS


def _is_transaction(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= 64
    return value is None or (_is_integer(value) and value in INT64)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


FITS: dict[str, Callable[[Any], bool]] = {
    "id": lambda value: isinstance(value, str) or _is_integer(value),
    "type": lambda value: isinstance(value, str) and len(value) <= MAX_TYPE_CHARS,
    "from": _is_address,
    "to": lambda value: (
        _is_address(value)
        or (isinstance(value, list) and not isinstance(value, Pairs) and all(map(_is_address, value)))
    ),
    "body": lambda value: value is None or isinstance(value, Pairs),
    "priority": lambda value: value is None or (_is_integer(value) and 0 <= value <= 9),
    "ttl": _is_time,
    "receipt": _is_flag,
    "bulk": _is_flag,
    "log": _is_flag,
    "forward": _is_flag,
    "transaction": _is_transaction,
}
