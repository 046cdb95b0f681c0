"""
The check of a body against the definition of its record.

Bodies have slots by name (`{"ROOM": "hall"}`) or by key (`{"1": "hall"}`), never both. Members that are
neither pass unchecked: slots of a newer definition, and fields such as `code` and `via`.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import Raw

from msgnode.records.definition import MAX_DEPTH, Definitions, Record, Slot
from msgnode.records.fast_check import Accepts, accepts
from msgnode.records.values import MAX_STEPS, check_of, is_text
from msgnode.structures.error_words import shown

_KEY = re.compile(r"[1-9][0-9]{0,9}")
_FIRST_REFUSED_CODE = 300
MAX_FAST_CHECKS = 2000  # of requests, and of answers: two for each record


class Mismatch(NamedTuple):
    """
    The first member of a body that does not fit. `slot` is its path, such as `ROUTE[2].NAME`; "" is the body.
    """

    slot: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.slot or 'body'}: expected {self.expected}, found {self.found}"

    def under(self, path: str) -> "Mismatch":
        if not path:
            return self
        separator = "." if self.slot and not self.slot.startswith("[") else ""
        return self._replace(slot=f"{path}{separator}{self.slot}")


_SlotCheck = Callable[[Any, int], Mismatch | None]  # of a value at a depth


def is_complete(code: object) -> bool:
    """
    Must an answer with this code have the mandatory slots? Refusals and provisional answers need not.
    """
    return type(code) is not int or 200 <= code < _FIRST_REFUSED_CODE


class Checker:
    """
    The compiled checks of a set of definitions. Each record is compiled once, when it is first needed.
    """

    def __init__(self, definitions: Definitions) -> None:
        self.definitions = definitions
        self._checks: dict[str, _RecordCheck] = {}
        self._accepts: dict[str, dict[str, Accepts]] = {"REQUEST": {}, "ANSWER": {}, "": {}}
        self._steps = 0  # of patterns, in the body that is checked

    def knows(self, record: str) -> bool:
        """
        Is this the id of a definition, in lower or upper case?
        """
        return record in self.definitions.by_id or record.lower() in self.definitions.by_id

    def check(
        self, record: str, body: Any, direction: str = "REQUEST", is_complete: bool = True
    ) -> Mismatch | None:
        """
        The first mismatch of a decoded body, or None. KeyError if the record is not known.

        `direction` is ANSWER for a response, else REQUEST: it says which mandatory slots must be there,
        unless the body need not be complete. Slots of the other direction may be there, and must fit too.
        """
        self._steps = 0
        return self.of(record).check(body, direction if is_complete else "", 0)

    def accepts(
        self, record: str, body: bytes | Raw, direction: str = "REQUEST", is_complete: bool = True
    ) -> bool:
        """
        Does a body in JSON fit for certain? If not, `check` decides, and says what is wrong.

        It costs a fraction of decoding and checking. KeyError if the record is not known.
        """
        made = self._accepts[direction if is_complete else ""]
        found = made.get(record)
        if found is None:
            found = self._fast_check(made, record, direction if is_complete else "")
        return found(body)

    def spend(self, steps: int) -> bool:
        """
        May patterns take so many steps more in this body?
        """
        self._steps += steps
        return self._steps <= MAX_STEPS

    def _fast_check(self, made: dict[str, Accepts], record: str, direction: str) -> Accepts:
        definition = self.definitions.by_id[record.lower()]
        found = made.get(definition.id)
        if found is None:
            if len(made) >= MAX_FAST_CHECKS:
                return lambda body: False
            found = made[definition.id] = accepts(self.definitions, definition, direction, self._slot_check)
        if record == record.upper():  # at most two forms of an id are kept
            made[record] = found
        return found

    def _slot_check(self, record: Record, slot: Slot) -> _SlotCheck:
        return self.of(record.id).slot_check(slot.name)

    def of(self, record: str) -> "_RecordCheck":
        found = self._checks.get(record)
        if found is None:
            definition = self.definitions.by_id[record.lower()]
            found = self._checks.get(definition.id)
            if found is None:
                found = self._checks[definition.id] = _RecordCheck(self, definition)
        return found


class _RecordCheck:
    """
    The check of one record: its slots by name and by key, and those that must be there.
    """

    def __init__(self, checker: Checker, record: Record) -> None:
        self.record = record
        self._names = {slot.name: _slot_check(checker, slot) for slot in record.slots}
        self._keys = {str(slot.key): slot.name for slot in record.slots}
        mandatory = [slot for slot in record.slots if slot.mandatory]
        self._needed = {
            "REQUEST": tuple(slot.name for slot in mandatory if slot.is_in("REQUEST")),
            "ANSWER": tuple(slot.name for slot in mandatory if slot.is_in("ANSWER")),
            "NESTED": tuple(slot.name for slot in mandatory),
            "": (),
        }
        self._mandatory = {slot.name: slot.full_type for slot in mandatory}

    def slot_check(self, name: str) -> _SlotCheck:
        """
        The check of the value of one slot.
        """
        return self._names[name]

    def check(self, body: Any, direction: str, depth: int) -> Mismatch | None:
        if type(body) is not dict:
            return Mismatch("", "an object with slots", shown(body))
        if depth > MAX_DEPTH:
            return Mismatch("", f"at most {MAX_DEPTH} records within each other", "more")
        get = self._names.get
        other = None
        seen = 0
        for name, value in body.items():
            check = get(name)
            if check is None:
                other = other or (name if type(name) is str and _KEY.fullmatch(name) else None)
                continue
            seen += 1
            wrong = check(value, depth)
            if wrong is not None:
                return wrong
        if other is not None:
            if seen:
                name = next(name for name in body if name in self._names)
                return Mismatch(other, f"slots by name, as {name}, or all by key", "both")
            return self._check_keys(body, direction, depth)
        for name in self._needed[direction]:
            if name not in body:
                return self._missing(name)
        return None

    def _check_keys(self, body: dict[str, Any], direction: str, depth: int) -> Mismatch | None:
        for key, value in body.items():
            name = self._keys.get(key)
            if name is not None:
                wrong = self._names[name](value, depth)
                if wrong is not None:
                    return wrong
        present = {self._keys[key] for key in body if key in self._keys}
        for name in self._needed[direction]:
            if name not in present:
                return self._missing(name)
        return None

    def _missing(self, name: str) -> Mismatch:
        return Mismatch(name, self._mandatory[name], "nothing")


def _slot_check(checker: Checker, slot: Slot) -> _SlotCheck:
    one = _one(checker, slot)
    many = {"[]": _array, "{}": _map}.get(slot.form)
    check = one if many is None else many(slot, one)
    if slot.mandatory:
        return check

    def check_optional(value: Any, depth: int) -> Mismatch | None:
        return None if value is None else check(value, depth)

    return check_optional


def _one(checker: Checker, slot: Slot) -> _SlotCheck:
    name = "" if slot.form else slot.name
    if slot.type == "RECORD":

        def check_record(value: Any, depth: int) -> Mismatch | None:
            wrong = checker.of(slot.record).check(value, "NESTED", depth + 1)
            return wrong and wrong.under(name)

        return check_record
    expected_of = check_of(slot, checker.spend)
    null = f"{slot.type} (the slot is mandatory)"

    def check(value: Any, depth: int) -> Mismatch | None:
        expected = expected_of(value)
        if not expected and (value is not None or slot.form):
            return None
        return Mismatch(name, expected or null, shown(value))

    return check


def _array(slot: Slot, one: _SlotCheck) -> _SlotCheck:
    size = _size(slot)

    def check(value: Any, depth: int) -> Mismatch | None:
        if type(value) is not list:
            return Mismatch(slot.name, f"{slot.full_type}, a list", shown(value))
        wrong = size(value)
        if wrong is not None:
            return wrong
        for index, each in enumerate(value):
            wrong = one(each, depth)
            if wrong is not None:
                return wrong.under(f"{slot.name}[{index}]")
        return None

    return check


def _map(slot: Slot, one: _SlotCheck) -> _SlotCheck:
    size = _size(slot)

    def check(value: Any, depth: int) -> Mismatch | None:
        if type(value) is not dict:
            return Mismatch(slot.name, f"{slot.full_type}, an object", shown(value))
        wrong = size(value)
        if wrong is not None:
            return wrong
        for key, each in value.items():
            if not is_text(key):
                return Mismatch(slot.name, "keys without lone surrogates", shown(key))
            wrong = one(each, depth)
            if wrong is not None:
                return wrong.under(f"{slot.name}[{shown(key)}]")
        return None

    return check


def _size(slot: Slot) -> Callable[[Any], Mismatch | None]:
    low = slot.min_items or 0
    high = slot.max_items

    def check(value: Any) -> Mismatch | None:
        if low <= len(value) and (high is None or len(value) <= high):
            return None
        most = "or more" if high is None else f"to {high}"
        return Mismatch(slot.name, f"{slot.full_type} of {low} {most} elements", f"{len(value)} elements")

    return check
