"""
The fast check: msgspec decodes a body straight into the types of a record, and checks most of them in C.

A body that it accepts fits. A body that it does not accept may fit as well: it is decoded and checked slot by
slot (checker.py), which decides, and says what is wrong.
"""

import math
import re
from collections.abc import Callable
from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from msgnode.records.definition import FLOATS, INTEGERS, MAX_DEPTH, Definitions, Record, Slot
from msgnode.records.values import MAX_ADDRESS_CHARS, MAX_ID_CHARS, check_of, compiled

MAX_SLOTS = 200  # of a record and those that it nests; more would take too long to make types of
_VALUES_LIKE_A_SLOT = 20  # of an enum, which take as long as a slot
MAX_FAST_SIZE = 300  # of a pattern; the checker counts the steps of larger ones
_EXACT = 2**53  # whole numbers below this are exact as floats
# Members that many bodies have in addition to slots. With any other the checker decides.
_OTHERS = ("code", "desc", "description", "reason", "via", "auth", "identity", "value", "resource")
_SEPARATOR = "\n"  # between texts that are matched together; no pattern below matches it
_HEX = "[0-9a-fA-F]"
_BASE64 = "[A-Za-z0-9+/]"
# Most values of these types look so; with any other the checker decides.
_PATTERNS = {
    "LONG": "(?:0|-?[1-9][0-9]{0,17})",
    "UUID": f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}",
    "DATE": (
        r"(?!0000)[0-9]{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"
        r"|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
        r"[Tt](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
        r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
    ),
    "BYTES": f"(?:{_BASE64}{{4}})*(?:{_BASE64}[AQgw]==|{_BASE64}{{2}}[AEIMQUYcgkosw048]=)?",
    "URL": "[A-Za-z][A-Za-z0-9+.-]*:[!-~]+",
    "ID": r"[^\x00-\x1f]+",
    "ADDRESS": "[a-z][a-z0-9+.-]*:[!-~]+",
    "TARGET_ADDRESS": "[a-z][a-z0-9+.-]*:[!-~]+",
    "NODE_ADDRESS": "mn://[!-.0-~]+/[!-.0-~]+",
}
_MAX_CHARS = {"ID": MAX_ID_CHARS}

_Fits = Callable[[Any], object]  # a true value if the value of a slot fits
SlotCheck = Callable[[Any, int], object]  # of a value at a depth; None if it fits
Accepts = Callable[[bytes | Raw], bool]


class _Plan(NamedTuple):
    """
    A type for one value of a slot, and what msgspec does not check: the pattern of a text, or a function.
    """

    type: Any
    pattern: str = ""
    fits: _Fits | None = None


def accepts(
    definitions: Definitions,
    record: Record,
    direction: str,
    slot_check: Callable[[Record, Slot], SlotCheck],
) -> Accepts:
    """
    A function that accepts bodies in JSON which fit the record. It may refuse others that fit, too.

    `slot_check` is the checker's, for slots that msgspec has no type for. Without a direction the mandatory
    slots need not be there.
    """
    if _weight(record) > MAX_SLOTS:
        return lambda body: False
    kind, fits = _Types(definitions, slot_check).struct(record, direction, 0)
    decode = msgspec.json.Decoder(kind).decode

    def decodes(body: bytes | Raw) -> bool:
        try:
            decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return False
        return True

    def accept(body: bytes | Raw) -> bool:
        try:
            return bool(fits(decode(body)))  # type: ignore[misc]
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return False

    return decodes if fits is None else accept


def _weight(record: Record) -> int:
    """
    The number of slots that take as long to make types of as this record.
    """
    return len(record.slots) + sum(len(slot.values) for slot in record.slots) // _VALUES_LIKE_A_SLOT


class _Types:
    """
    Makes types of records; `_open` are those that are being made, `_slots` counts the slots of all.
    """

    def __init__(self, definitions: Definitions, slot_check: Callable[[Record, Slot], SlotCheck]) -> None:
        self._definitions = definitions
        self._slot_check = slot_check
        self._open: list[str] = []
        self._slots = 0

    def struct(self, record: Record, direction: str, depth: int) -> tuple[type[Struct], _Fits | None]:
        """
        The Struct of a record, and the check of what msgspec does not check.
        """
        self._open.append(record.id)
        self._slots += _weight(record)
        fields: list[Any] = []
        together: list[tuple[str, str]] = []
        singly: list[tuple[str, _Fits]] = []
        unsure: list[tuple[str, _Fits]] = []
        for number, slot in enumerate(record.slots):
            field = f"slot{number}"
            kind, pattern, fits = self._plan(record, slot, depth)
            is_needed = slot.mandatory and (direction == "NESTED" or slot.is_in(direction))
            if kind is not Any:
                kind = kind if slot.mandatory else kind | None
                kind = kind if is_needed else kind | UnsetType
            fields.append((field, kind) if is_needed else (field, kind, UNSET))
            if pattern and is_needed:
                together.append((field, pattern))
            elif pattern:
                singly.append((field, _matcher(slot, pattern)))
            elif fits is not None:
                (unsure if kind is Any else singly).append((field, fits))
        self._open.pop()
        if not depth:
            fields += [(name, Raw | UnsetType, UNSET) for name in _OTHERS]
        names = {f"slot{number}": slot.name for number, slot in enumerate(record.slots)}
        made = msgspec.defstruct(
            "Body", fields, rename=names, forbid_unknown_fields=True, kw_only=True, gc=False
        )
        return made, _all(_joined(together), _each(singly), _each(unsure, has_null=True))

    def _plan(self, record: Record, slot: Slot, depth: int) -> _Plan:
        one = self._one(slot, depth)
        if one is None:
            check = self._slot_check(record, slot)
            return _Plan(Any, fits=lambda value: check(value, depth) is None)
        if not slot.form:
            return one
        kind: Any = one.type
        fits = _matcher(slot, one.pattern) if one.pattern else one.fits
        size = Meta(min_length=slot.min_items, max_length=slot.max_items)
        if slot.form == "[]":
            return _Plan(Annotated[list[kind], size], fits=fits and _elements(fits))
        return _Plan(Annotated[dict[str, kind], size], fits=fits and _values(fits))

    def _one(self, slot: Slot, depth: int) -> _Plan | None:
        """
        The plan of one value of a slot; None: only the checker can decide.
        """
        match slot.type:
            case "BOOLEAN":
                return _Plan(bool)
            case "LONG":
                return _long_plan(slot)
            case "ENUM":
                return _Plan(Literal[tuple(value.name for value in slot.values)])
            case "RECORD":
                return self._nested(slot, depth)
            case "STRING" if not slot.pattern:
                return _Plan(Annotated[str, Meta(min_length=slot.min_length, max_length=slot.max_length)])
            case "MESSAGE" | "OBJECT":
                return None
        if slot.type in INTEGERS or slot.type in FLOATS:
            return _number(slot)
        if slot.pattern and compiled(slot.pattern).size > MAX_FAST_SIZE:
            return _Plan(Any, fits=lambda value: False)
        if slot.pattern or slot.min_length is not None or slot.max_length is not None:
            expected_of = check_of(slot)
            return _Plan(str, fits=lambda value: not expected_of(value))
        most = _MAX_CHARS.get(slot.type, MAX_ADDRESS_CHARS)
        limited = str if slot.type == "BYTES" else Annotated[str, Meta(max_length=most)]
        return _Plan(limited, _PATTERNS[slot.type])

    def _nested(self, slot: Slot, depth: int) -> _Plan | None:
        record = self._definitions.nested(slot)
        is_too_much = depth + 1 >= MAX_DEPTH or self._slots + _weight(record) > MAX_SLOTS
        if is_too_much or record.id in self._open:
            return None
        kind, fits = self.struct(record, "NESTED", depth + 1)
        return _Plan(kind, fits=fits)


def _long_plan(slot: Slot) -> _Plan:
    if slot.minimum is None and slot.maximum is None:
        return _Plan(int | str, _PATTERNS["LONG"])
    expected_of = check_of(slot)
    return _Plan(int | str, fits=lambda value: not expected_of(value))


def _number(slot: Slot) -> _Plan | None:
    if slot.type in INTEGERS:
        low, high = INTEGERS[slot.type]
        low = low if slot.minimum is None else max(low, math.ceil(slot.minimum))
        high = high if slot.maximum is None else min(high, math.floor(slot.maximum))
        return _Plan(Annotated[int, Meta(ge=low, le=high)])
    limits = [limit for limit in (slot.minimum, slot.maximum) if limit is not None]
    if any(abs(limit) > _EXACT for limit in limits):
        return None
    most = FLOATS[slot.type]
    least = -most if slot.minimum is None else max(-most, slot.minimum)
    largest = most if slot.maximum is None else min(most, slot.maximum)
    return _Plan(Annotated[float, Meta(ge=least, le=largest)])


_long_text = re.compile(_PATTERNS["LONG"]).fullmatch


def _long(value: int | str) -> object:
    return _long_text(value if type(value) is str else str(value))


def _matcher(slot: Slot, pattern: str) -> _Fits:
    return _long if slot.type == "LONG" else re.compile(pattern).fullmatch


def _joined(texts: list[tuple[str, str]]) -> _Fits | None:
    """
    The check of all texts that are there for certain, by one regular expression.
    """
    if not texts:
        return None
    get = attrgetter(*(field for field, _ in texts))
    matches = re.compile(_SEPARATOR.join(pattern for _, pattern in texts)).fullmatch
    if len(texts) == 1:
        return lambda made: matches(str(get(made)))
    join = _SEPARATOR.join

    def check(made: Any) -> object:
        values = get(made)
        try:
            return matches(join(values))
        except TypeError:  # a LONG may be a number
            return matches(join(map(str, values)))

    return check


def _each(checks: list[tuple[str, _Fits]], has_null: bool = False) -> _Fits | None:
    """
    The check of each of these members that has a value; `has_null`: null may be wrong.
    """
    if not checks:
        return None

    def check(made: Any) -> bool:
        for field, fits in checks:
            value = getattr(made, field)
            if value is not UNSET and (value is not None or has_null) and not fits(value):
                return False
        return True

    return check


def _all(*checks: _Fits | None) -> _Fits | None:
    found = [check for check in checks if check is not None]
    if len(found) < 2:
        return found[0] if found else None
    first, *others = found
    second = _all(*others)
    return lambda made: first(made) and second(made)  # type: ignore[misc]


def _elements(fits: _Fits) -> _Fits:
    return lambda values: all(map(fits, values))


def _values(fits: _Fits) -> _Fits:
    return lambda values: all(map(fits, values.values()))
