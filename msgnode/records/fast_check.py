"""
The fast check: msgspec decodes bytes straight into the types of a record, and checks most of them in C.

It only says yes. What it does not accept is decoded and checked slot by slot (checker.py), which decides, and
says what is wrong.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from msgnode.records.definition import FLOATS, INTEGERS, Definitions, Record, Slot
from msgnode.records.values import check_of

_EXACT = 2**53  # whole numbers below this are exact as floats
_BY_KEY = re.compile(rb'"[0-9]+"[ \t\r\n]*:')  # a member that may be a slot by its key
_ESCAPE = rb"\u00"  # which may spell such a member
_Post = Callable[[Any], object]  # a true value if something is wrong
Accepts = Callable[[bytes], bool]


class _NoFastCheck(Exception):
    """
    A record that msgspec has no type for: it nests itself, or compares numbers that floats cannot.
    """


def refuse_all(data: bytes) -> bool:
    return False


def accepts(definitions: Definitions, record: Record, direction: str) -> Accepts:
    """
    A function that accepts bodies in JSON which fit the record. It may refuse others that fit, too.
    """
    try:
        kind, post = _Types(definitions).struct(record, direction)
    except _NoFastCheck:
        return refuse_all
    decode = msgspec.json.Decoder(kind).decode
    by_key = _BY_KEY.search

    def accept(data: bytes) -> bool:
        if by_key(data) is not None or _ESCAPE in data:
            return False
        try:
            made = decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return False
        return post is None or not post(made)

    return accept


class _Types:
    """
    Makes types of records; `open` are those that are being made.
    """

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._open: set[str] = set()

    def struct(self, record: Record, direction: str) -> tuple[type[Struct], _Post | None]:
        """
        The Struct of a record, and the check of what msgspec did not check.
        """
        if record.id in self._open:
            raise _NoFastCheck
        self._open.add(record.id)
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        names: dict[str, str] = {}
        posts: list[tuple[str, _Post]] = []
        for number, slot in enumerate(record.slots):
            field = f"s{number}"
            names[field] = slot.name
            kind, post = self._type(slot)
            if post is not None:
                posts.append((field, post))
            if not slot.mandatory:
                fields.append((field, kind | None | UnsetType, UNSET))
            elif direction and (direction == "NESTED" or slot.is_in(direction)):
                fields.append((field, kind))
            else:
                fields.append((field, kind | UnsetType, UNSET))
        self._open.discard(record.id)
        made = msgspec.defstruct("Body", fields, rename=names, kw_only=True, gc=False)
        return made, _all(posts) if posts else None

    def _type(self, slot: Slot) -> tuple[Any, _Post | None]:
        kind: Any
        kind, post = self._one(slot)
        if not slot.form:
            return kind, post
        low, high = slot.min_items, slot.max_items
        if slot.form == "[]":
            return Annotated[list[kind], Meta(min_length=low, max_length=high)], post and _elements(post)
        mapping = Annotated[dict[str, kind], Meta(min_length=low, max_length=high)]
        return mapping, post and _values(post)

    def _one(self, slot: Slot) -> tuple[Any, _Post | None]:
        match slot.type:
            case "BOOLEAN":
                return bool, None
            case "LONG":
                return int | str, check_of(slot)
            case "ENUM":
                return Literal[tuple(value.name for value in slot.values)], None
            case "RECORD":
                return self.struct(self._definitions.nested(slot), "NESTED")
            case "STRING" if not slot.pattern:
                return Annotated[str, Meta(min_length=slot.min_length, max_length=slot.max_length)], None
            case "MESSAGE" | "OBJECT":
                raise _NoFastCheck
        if slot.type in INTEGERS or slot.type in FLOATS:
            return _number(slot), None
        return str, check_of(slot)


def _number(slot: Slot) -> Any:
    if slot.type in INTEGERS:
        low, high = INTEGERS[slot.type]
        return Annotated[int, Meta(ge=_limit(slot.minimum, low), le=_limit(slot.maximum, high))]
    limits = [limit for limit in (slot.minimum, slot.maximum) if limit is not None]
    if any(abs(limit) > _EXACT for limit in limits):
        raise _NoFastCheck
    most = FLOATS[slot.type]
    return Annotated[float, Meta(ge=_limit(slot.minimum, -most), le=_limit(slot.maximum, most))]


def _limit(given: float | None, of_type: float) -> float:
    return of_type if given is None else given


def _all(posts: list[tuple[str, _Post]]) -> _Post:
    def check(made: Any) -> bool:
        for field, post in posts:
            value = getattr(made, field)
            if value is not UNSET and value is not None and post(value):
                return True
        return False

    return check


def _elements(post: _Post) -> _Post:
    return lambda values: any(map(post, values))


def _values(post: _Post) -> _Post:
    return lambda values: any(map(post, values.values()))
