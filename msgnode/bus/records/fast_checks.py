"""
Fast checks of bodies: a decoder of msgspec for each record, which accepts most bodies that fit.

A body that it accepts fits. A body that it does not accept may fit as well; the checker of `msgnode.records`
decides, and names the slot that is wrong.
"""

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from msgnode.records.checker import Checker
from msgnode.records.definition import FLOATS, INTEGERS, Record, Slot
from msgnode.records.values import check_of

MAX_SLOTS = 100  # of a record with a fast check, which takes time to make
MAX_CHECKS = 1000  # records with fast checks
# Members that many bodies have in addition to slots. With any other the checker decides.
_OTHERS = ("code", "desc", "description", "reason", "via", "auth", "identity", "value", "resource")

Fits = Callable[[Raw], bool]


def _never(body: Raw) -> bool:
    return False


class FastChecks:
    """
    The fast checks of a set of definitions. Each is made when it is first needed.
    """

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._requests: dict[str, Fits] = {}
        self._answers: dict[str, Fits] = {}

    def fits(self, record: str, body: Raw, is_answer: bool) -> bool:
        """
        Does the body fit for sure? False: the checker decides.
        """
        checks = self._answers if is_answer else self._requests
        check = checks.get(record)
        if check is None:
            check = self._make(record, "ANSWER" if is_answer else "REQUEST")
            if len(checks) < MAX_CHECKS and record in self._checker.definitions.by_id:
                checks[record] = check
        return check(body)

    def _make(self, id: str, direction: str) -> Fits:
        record = self._checker.definitions.by_id.get(id)
        if record is None or len(record.slots) > MAX_SLOTS:
            return _never
        fields: list[Any] = []
        unsure: list[tuple[str, Slot]] = []
        for number, slot in enumerate(record.slots):
            type_ = _type(slot)
            field = f"slot{number}"
            if type_ is None:
                type_ = Any
                unsure.append((field, slot))
            fields.append(_field(field, slot, type_, direction))
        fields += [(name, Raw | UnsetType, UNSET) for name in _OTHERS]
        names = {f"slot{number}": slot.name for number, slot in enumerate(record.slots)}
        body = msgspec.defstruct(
            "Body", fields, rename=names, forbid_unknown_fields=True, kw_only=True, gc=False
        )
        decode = msgspec.json.Decoder(body).decode
        return self._with_unsure(record, decode, unsure) if unsure else _decodes(decode)

    def _with_unsure(
        self, record: Record, decode: Callable[[Raw], Any], unsure: list[tuple[str, Slot]]
    ) -> Fits:
        """
        The check that has the checker decide about those slots that the decoder cannot.
        """
        of_slot = self._checker.of(record.id).slot_check
        structured = [(field, of_slot(slot.name)) for field, slot in unsure if _has_parts(slot)]
        simple = [(field, check_of(slot), slot.mandatory) for field, slot in unsure if not _has_parts(slot)]

        def fits(body: Raw) -> bool:
            try:
                found = decode(body)
            except (msgspec.DecodeError, RecursionError):
                return False
            for field, expected_of, is_mandatory in simple:
                value = getattr(found, field)
                if value is None:
                    if is_mandatory:
                        return False
                elif value is not UNSET and expected_of(value):
                    return False
            for field, check in structured:
                value = getattr(found, field)
                if value is not UNSET and check(value, 0) is not None:
                    return False
            return True

        return fits


def _has_parts(slot: Slot) -> bool:
    return bool(slot.form) or slot.type == "RECORD"


def _decodes(decode: Callable[[Raw], Any]) -> Fits:
    def fits(body: Raw) -> bool:
        try:
            decode(body)
        except (msgspec.DecodeError, RecursionError):
            return False
        return True

    return fits


def _field(name: str, slot: Slot, type_: Any, direction: str) -> Any:
    if not slot.mandatory:
        return name, type_ | None | UnsetType if type_ is not Any else Any, UNSET
    if slot.is_in(direction):
        return name, type_
    return name, type_ | UnsetType if type_ is not Any else Any, UNSET


def _type(slot: Slot) -> Any:
    """
    The type that has the same values as the slot; None if msgspec has none.
    """
    one: Any = _one(slot)
    if one is None or not slot.form:
        return one
    size = Meta(min_length=slot.min_items, max_length=slot.max_items)
    many = list.__class_getitem__(one) if slot.form == "[]" else dict.__class_getitem__((str, one))
    return Annotated[many, size]


def _one(slot: Slot) -> Any:
    if slot.type == "BOOLEAN":
        return bool
    if slot.type in INTEGERS and slot.type != "LONG":
        low, high = INTEGERS[slot.type]
        low = low if slot.minimum is None else max(low, math.ceil(slot.minimum))
        high = high if slot.maximum is None else min(high, math.floor(slot.maximum))
        return Annotated[int, Meta(ge=low, le=high)]
    if slot.type in FLOATS:
        most = FLOATS[slot.type]
        low_ = -most if slot.minimum is None else max(-most, slot.minimum)
        high_ = most if slot.maximum is None else min(most, slot.maximum)
        return Annotated[float, Meta(ge=low_, le=high_)]
    if slot.type == "STRING" and not slot.pattern:
        return Annotated[str, Meta(min_length=slot.min_length, max_length=slot.max_length)]
    if slot.type == "ENUM":
        return Literal[tuple(value.name for value in slot.values)]
    return None
