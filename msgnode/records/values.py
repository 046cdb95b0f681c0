"""
Values of slots: a check of each type, which returns nothing or what was expected.
"""

import base64
import binascii
import math
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

import re2

from msgnode.records.definition import FLOATS, INTEGERS, MEASURED, TEXTS, Slot

MAX_PATTERN_CHARS = 1000
_MAX_PATTERN_BYTES = 1 << 20  # of one compiled pattern
MAX_STEPS = 5_000_000  # of the patterns of one body, each its size times its characters: 25 ms at worst
MAX_ID_CHARS = 256
MAX_ADDRESS_CHARS = 2048
MAX_OPEN_DEPTH = 64  # lists and objects within each other in a MESSAGE or OBJECT
LONG_TEXT = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
UUID_TEXT = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DATE = re.compile(
    r"\d{4}-(?:0[1-9]|1[0-2])-([0-3]\d)[Tt](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?"
    r"(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s\x00-\x1f]+")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:[^\s\x00-\x1f]+")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:.")
_NODE = re.compile(r"mn://[^\s/\x00-\x1f]+/[^\s/\x00-\x1f]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")

# Python's `re` backtracks: `(a+)+b` takes hours on forty characters, and a definition or a message could
# stop the node. RE2 takes time proportional to the text; it has neither back references nor lookaround, and
# JavaScript and Java understand its syntax, too.
_options = re2.Options()
_options.log_errors = False
_options.max_mem = _MAX_PATTERN_BYTES

Check = Callable[[Any], str]  # "" if the value fits, else what was expected
Spend = Callable[[int], bool]  # may patterns take so many steps more?


class Pattern(NamedTuple):
    """
    A compiled pattern: `matches` returns a true value for a text that fits, in at most `size` steps for each
    character.
    """

    matches: Callable[[str], Any]
    size: int


def spend_on_one(steps: int) -> bool:
    """
    The budget of one text by itself.
    """
    return steps <= MAX_STEPS


def check_of(slot: Slot, spend: Spend = spend_on_one) -> Check:
    """
    The check of one value of a slot's type, without its form, with its limits; not for RECORD.

    `spend` is asked before a pattern is matched.
    """
    if slot.type in INTEGERS:
        return _integer(slot)
    if slot.type in FLOATS:
        return _float(slot)
    if slot.type == "ENUM":
        return _enum(slot)
    check = _SIMPLE[slot.type]
    return _limited(slot, check, spend) if slot.type in MEASURED else check


def is_text(value: object) -> bool:
    """
    Is the value a text without lone surrogates?
    """
    return type(value) is str and (value.isascii() or _SURROGATE.search(value) is None)


def _integer(slot: Slot) -> Check:
    low, high = INTEGERS[slot.type]
    low = low if slot.minimum is None else max(low, math.ceil(slot.minimum))
    high = high if slot.maximum is None else min(high, math.floor(slot.maximum))
    expected = f"{slot.type} from {low} to {high}"
    if slot.type == "LONG":

        def check_long(value: Any) -> str:
            if type(value) is str and LONG_TEXT.fullmatch(value) and value != "-0":
                value = int(value)
            return "" if type(value) is int and low <= value <= high else expected

        return check_long

    def check(value: Any) -> str:
        return "" if type(value) is int and low <= value <= high else expected

    return check


def _float(slot: Slot) -> Check:
    most = FLOATS[slot.type]
    low = -most if slot.minimum is None else max(-most, slot.minimum)
    high = most if slot.maximum is None else min(most, slot.maximum)
    expected = slot.type
    if slot.minimum is not None or slot.maximum is not None:
        least, largest = ("any" if each is None else each for each in (slot.minimum, slot.maximum))
        expected = f"{slot.type} from {least} to {largest}"

    def check(value: Any) -> str:
        # A comparison with NaN is false.
        return (
            ""
            if isinstance(value, (int, float))
            and value is not True
            and value is not False
            and (low <= value <= high)
            else expected
        )

    return check


def _enum(slot: Slot) -> Check:
    names = frozenset(value.name for value in slot.values)
    listed = [value.name for value in slot.values[:10]]
    expected = "one of " + ", ".join(listed) + (", ..." if len(slot.values) > len(listed) else "")
    return lambda value: "" if type(value) is str and value in names else expected


def _limited(slot: Slot, check: Check, spend: Spend) -> Check:
    low, high = slot.min_length or 0, math.inf if slot.max_length is None else slot.max_length
    pattern = compiled(slot.pattern) if slot.pattern else None
    if not low and slot.max_length is None and pattern is None:
        return check
    unit = "bytes" if slot.type == "BYTES" else "characters"
    most = f" to {slot.max_length}" if slot.max_length is not None else " or more"
    expected = f"{slot.type} of {low}{most} {unit}"
    size = _decoded_bytes if slot.type == "BYTES" else len

    def check_limited(value: Any) -> str:
        wrong = check(value)
        if wrong:
            return wrong
        if not low <= size(value) <= high:
            return expected
        if pattern is None:
            return ""
        if not spend(len(value) * pattern.size):
            return f"{slot.type} in a body with less text to match with {slot.pattern}"
        return "" if pattern.matches(value) else f"{slot.type} that matches {slot.pattern}"

    return check_limited


def _decoded_bytes(text: str) -> int:
    return len(text) * 3 // 4 - text.count("=")


def _boolean(value: Any) -> str:
    return "" if value is True or value is False else "BOOLEAN"


def _address(kind: str) -> Check:
    slow = _text(kind, _ADDRESS.fullmatch, MAX_ADDRESS_CHARS)

    def check(value: Any) -> str:
        if type(value) is str and value.isascii() and value.isprintable() and " " not in value:
            return "" if len(value) <= MAX_ADDRESS_CHARS and _SCHEME.match(value) else kind
        return slow(value)

    return check


def _text(kind: str, matches: Callable[[str], Any], most: int) -> Check:
    def check(value: Any) -> str:
        return "" if type(value) is str and len(value) <= most and matches(value) and is_text(value) else kind

    return check


def _string(value: Any) -> str:
    return "" if is_text(value) else "STRING without lone surrogates" if type(value) is str else "STRING"


def _bytes(value: Any) -> str:
    if type(value) is not str or not _BASE64.fullmatch(value):
        return "BYTES in base64"
    try:
        # The unused bits at the end must be zero, so that there is one form of the same bytes.
        return (
            "" if value[-4:] == base64.b64encode(base64.b64decode(value[-4:])).decode() else "BYTES in base64"
        )
    except binascii.Error:
        return "BYTES in base64"


def _date(value: Any) -> str:
    expected = "DATE such as 2026-11-18T10:00:00Z (RFC 3339, at most 6 decimals)"
    found = _DATE.fullmatch(value) if type(value) is str else None
    if found is None:
        return expected
    if "01" <= found[1] <= "28" and value[:4] != "0000":
        return ""  # a day that each month has
    try:
        datetime.fromisoformat(value.upper())
    except ValueError:
        return expected
    return ""


def _open(value: Any) -> str:
    """
    The check of an OBJECT: any JSON value of bounded depth.
    """
    level = [value]
    for _ in range(MAX_OPEN_DEPTH):
        deeper: list[Any] = []
        for each in level:
            if type(each) is dict:
                if not all(map(is_text, each)):
                    return "OBJECT without lone surrogates"
                deeper.extend(each.values())
            elif type(each) is list:
                deeper.extend(each)
            elif type(each) is str and not is_text(each):
                return "OBJECT without lone surrogates"
            elif isinstance(each, float) and not math.isfinite(each):
                return "OBJECT with finite numbers"
        if not deeper:
            return ""
        level = deeper
    return f"OBJECT of at most {MAX_OPEN_DEPTH} levels"


def _message(value: Any) -> str:
    expected = "MESSAGE: an object with 'id', 'type', 'from' and 'to'"
    if type(value) is not dict or not all(key in value for key in ("id", "type", "from", "to")):
        return expected
    return _open(value).replace("OBJECT", "MESSAGE")


_SIMPLE: dict[str, Check] = {
    "BOOLEAN": _boolean,
    "STRING": _string,
    "UUID": _text("UUID", UUID_TEXT.fullmatch, 36),
    "BYTES": _bytes,
    "DATE": _date,
    "URL": _text("URL", _URL.fullmatch, MAX_ADDRESS_CHARS),
    "ID": _text(
        f"ID of 1 to {MAX_ID_CHARS} characters", re.compile(r"[^\x00-\x1f]+").fullmatch, MAX_ID_CHARS
    ),
    "MESSAGE": _message,
    "OBJECT": _open,
} | {
    "ADDRESS": _address("ADDRESS"),
    "TARGET_ADDRESS": _address("TARGET_ADDRESS"),
    "NODE_ADDRESS": _text("NODE_ADDRESS", _NODE.fullmatch, MAX_ADDRESS_CHARS),
}
assert {*_SIMPLE} >= TEXTS


def compiled(pattern: str) -> Pattern:
    """
    A pattern that matches whole texts. ValueError if RE2 refuses it.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ValueError(f"expected at most {MAX_PATTERN_CHARS} characters, found {len(pattern)}")
    try:
        made = re2.compile(pattern, _options)
    except re2.error as why:
        text = why.args[0] if why.args else why
        raise ValueError(text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)) from None
    return Pattern(made.fullmatch, made.programsize)
