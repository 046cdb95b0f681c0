"""
Normal forms of message values and policy parameters, in which they are compared.
"""

import re
from collections.abc import Callable
from typing import Any

from msgnode.policy.decision.addresses import ABOUT
from msgnode.policy.decision.attribute import DIRECTIONS, WEEKDAYS, Attribute
from msgnode.policy.decision.problems import InvalidValue
from msgnode.protocol.lossless_json import Literal
from msgnode.structures.error_words import near, shown

_INSTEAD = {"route": "in"}  # no `route` point: `in` is evaluated for each address in `to`
DEEPEST = 8  # nesting of lists that are converted to text
_CLOSED = {"direction": DIRECTIONS, "msgType": ABOUT}


def text_of(value: Any, deep: int = 0) -> str | None:
    """
    A value of a message as text, for comparison; None if it has no text form.
    """
    kind = value.__class__
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        # Python refuses to convert an integer of many thousand digits.
        return str(value) if value.bit_length() < 10_000 else None
    if kind is float:
        return str(int(value)) if value.is_integer() and abs(value) < 1e21 else repr(value)
    if kind is Literal:
        return text_of(float(value))
    if kind is list and deep < DEEPEST:
        texts = [text_of(item, deep + 1) if item is not None else "" for item in value]
        return None if None in texts else ",".join(text or "" for text in texts)
    return None


def number_of(value: Any) -> float | None:
    """
    A value as a number, also if it is a text; None if it is not a number.
    """
    if value.__class__ in (int, float, Literal):
        return None if value != value else value  # type: ignore[no-any-return]
    if value.__class__ is str and len(value) < 400 and _NUMBER.fullmatch(value):
        return float(value)
    return None


_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?\s*", re.ASCII)


def scalars(parameter: Any, what: str) -> list[str | int | float | bool]:
    """
    The parameter as a list of scalars. A test is true if any of them matches.
    """
    items = parameter if isinstance(parameter, list) else [parameter]
    if not items:
        raise InvalidValue(f"expected {what} or a list of them, found []; an empty list is never true")
    for position, item in enumerate(items):
        under = (position,) if isinstance(parameter, list) else ()
        if item is None:
            raise InvalidValue(
                f'expected {what}, found null; to test whether it exists: {{"exists": false}}', *under
            )
        if isinstance(item, dict | list):
            raise InvalidValue(f"expected {what}, found {shown(item)}", *under)
    return items


# -- normal form of a parameter ---------------------------------------------

_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", re.ASCII)
_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", re.ASCII)


def to_text(attribute: Attribute, item: Any, *under: str | int) -> str:
    """
    A parameter in the normal form of the attribute. InvalidValue if no value can equal it.
    """
    text = text_of(item) or ""
    if attribute.kind == "time":
        match = _TIME.fullmatch(text)
        if match is None:
            raise InvalidValue(f"expected a time such as '08:30' or '08:30:00', found {shown(item)}", *under)
        return f"{match[1]:0>2}:{match[2]}:{match[3] or '00'}"
    if attribute.kind == "date":
        if not _DATE.fullmatch(text):
            raise InvalidValue(f"expected a date such as '2026-11-18', found {shown(item)}", *under)
        return text
    if attribute.kind == "weekday":
        if text.casefold() not in WEEKDAYS:
            names = [day.capitalize() for day in WEEKDAYS]
            raise InvalidValue(
                f"expected a day such as 'Monday', found {shown(item)}{near(text, names)}", *under
            )
        return text.casefold()
    if attribute.kind == "flag" and text not in ("true", "false"):
        raise InvalidValue(f"expected true or false, found {shown(item)}", *under)
    known = _CLOSED.get(attribute.name)
    if known and text.casefold() not in [name.casefold() for name in known]:
        expected = ", ".join(known)
        hint = near(_INSTEAD.get(text, text), known)
        raise InvalidValue(f"expected one of {expected}; found {shown(item)}{hint}", *under)
    return attribute.fold(text)


def under_of(parameter: Any, position: int) -> tuple[int, ...]:
    return (position,) if isinstance(parameter, list) else ()


def glob(pattern: str) -> Callable[[str], bool]:
    """
    A matcher of whole texts for a pattern in which `*` matches anything. It takes linear time.
    """
    first, *middle = pattern.split("*")
    if not middle:
        return pattern.__eq__
    last = middle.pop()
    middle = [piece for piece in middle if piece]
    shortest = len(first) + len(last)

    def match(text: str) -> bool:
        if len(text) < shortest or not text.startswith(first) or not text.endswith(last):
            return False
        start, end = len(first), len(text) - len(last)
        for piece in middle:
            found = text.find(piece, start, end)
            if found < 0:
                return False
            start = found + len(piece)
        return True

    return match
