"""
Comparison of two versions of definitions: does a change break programs that have the old one?

Judged apart are old senders, whose messages must fit the new definition, and old readers, which get messages
that fit the new definition only. Slots are the same if their keys are.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import UNSET

from msgnode.records.definition import ADDRESSES, INTEGERS, Definitions, Record, Slot

SENDERS = "old senders"
READERS = "old readers"
BOTH = (SENDERS, READERS)


class Change(NamedTuple):
    """
    A difference between two versions, and which programs it breaks; none if it is compatible.
    """

    name: str
    text: str
    breaks: tuple[str, ...] = ()

    def __str__(self) -> str:
        effect = f"breaks {' and '.join(self.breaks)}" if self.breaks else "compatible"
        return f"{effect}: {self.name}: {self.text}"


def compare(old: Definitions, new: Definitions) -> list[Change]:
    """
    The changes of all records, in the order of the old definitions and then of the new ones.
    """
    found: list[Change] = []
    for record in old:
        other = new.by_id.get(record.id)
        if other is None:
            found.append(Change(record.name, "the record was removed", (SENDERS,)))
        else:
            found += _record(record, other)
    return found + [Change(each.name, "a new record") for each in new if each.id not in old.by_id]


def _record(old: Record, new: Record) -> Iterator[Change]:
    if old.name != new.name:
        yield Change(old.name, f"renamed to {new.name}: policies and generated code have the old name", BOTH)
    if old.namespaces != new.namespaces:
        before, after = (" ".join(each) or "none" for each in (old.namespaces, new.namespaces))
        yield Change(old.name, f"the namespaces changed from {before} to {after}: generated code may move")
    if old.is_service != new.is_service:
        yield Change(old.name, f"isService is now {str(new.is_service).lower()}")
    now = {slot.key: slot for slot in new.slots}
    before_keys = {slot.key for slot in old.slots}
    moved = {slot.name: slot.key for slot in new.slots}
    for slot in old.slots:
        name = f"{old.name}.{slot.name}"
        other = now.get(slot.key)
        if other is not None:
            yield from _slot(name, slot, other)
        elif slot.name in moved:
            yield Change(name, f"the key changed from {slot.key} to {moved[slot.name]}", BOTH)
        else:
            kept = "" if slot.key in new.reserved else f"; list its key {slot.key} as reserved"
            breaks = (READERS,) if slot.mandatory else ()
            yield Change(name, f"the {_kind(slot)} slot was removed{kept}", breaks)
    for slot in new.slots:
        name = f"{new.name}.{slot.name}"
        if slot.key in old.reserved:
            yield Change(name, f"the key {slot.key} was reserved and is used again", BOTH)
        elif slot.key not in before_keys and slot.name not in {each.name for each in old.slots}:
            yield Change(name, f"a new {_kind(slot)} slot", (SENDERS,) if slot.mandatory else ())


def _kind(slot: Slot) -> str:
    return "mandatory" if slot.mandatory else "optional"


def _slot(name: str, old: Slot, new: Slot) -> Iterator[Change]:
    if old.name != new.name:
        yield Change(name, f"the key {old.key} is now that of {new.name}: messages have slots by name", BOTH)
    if old.full_type != new.full_type or old.record != new.record:
        breaks = _unless(old.form == new.form and _fits(old, new), old.form == new.form and _fits(new, old))
        was, now = (each.full_type + (f" {each.record}" if each.record else "") for each in (old, new))
        yield Change(name, f"the type changed from {was} to {now}", breaks)
    elif old.type == "ENUM":
        yield from _enum(name, old, new)
    yield from _needed(name, old, new)
    yield from _limits(name, old, new)
    if old.pattern != new.pattern:
        breaks = _unless(not new.pattern, not old.pattern)
        yield Change(
            name, f"the pattern changed from {old.pattern or 'none'} to {new.pattern or 'none'}", breaks
        )
    if old.default != new.default:
        was, now = ("none" if each.default is UNSET else repr(each.default) for each in (old, new))
        yield Change(name, f"the default changed from {was} to {now}: it is what an absent slot means", BOTH)


def _unless(senders: bool, readers: bool) -> tuple[str, ...]:
    return tuple(who for who, is_fine in ((SENDERS, senders), (READERS, readers)) if not is_fine)


def _fits(value: Slot, into: Slot) -> bool:
    """
    Does each value of one type, as it is written, fit another?
    """
    one, other = value.type, into.type
    if one == other:
        return value.record == into.record
    if other == "OBJECT" or (one, other) == ("FLOAT", "DOUBLE"):
        return True
    if one in INTEGERS:
        if one == "LONG":  # written as text
            return False
        wider = other in INTEGERS and INTEGERS[one][1] <= INTEGERS[other][1]
        return wider or other == "DOUBLE" or (other == "FLOAT" and one != "INTEGER")
    if other == "STRING":
        return one not in ("BOOLEAN", "FLOAT", "DOUBLE", "RECORD", "MESSAGE", "OBJECT")
    return other in ("ADDRESS", "TARGET_ADDRESS") and one in ADDRESSES


def _enum(name: str, old: Slot, new: Slot) -> Iterator[Change]:
    before, after = ([value.name for value in slot.values] for slot in (old, new))
    for value in before:
        if value not in after:
            yield Change(name, f"the value {value} was removed", (SENDERS,))
    for value in after:
        if value not in before:
            yield Change(name, f"the value {value} is new", (READERS,))


def _needed(name: str, old: Slot, new: Slot) -> Iterator[Change]:
    for direction in ("REQUEST", "ANSWER"):
        word = direction.lower() + "s"
        before, after = (slot.mandatory and slot.is_in(direction) for slot in (old, new))
        if after and not before:
            yield Change(name, f"is now mandatory in {word}", (SENDERS,))
        elif before and not after:
            yield Change(name, f"is no longer mandatory in {word}", (READERS,))
        elif old.is_in(direction) != new.is_in(direction):
            yield Change(name, f"is {'now' if new.is_in(direction) else 'no longer'} a slot of {word}")


def _limits(name: str, old: Slot, new: Slot) -> Iterator[Change]:
    for low, high, word in (
        ("minimum", "maximum", "range"),
        ("min_length", "max_length", "length"),
        ("min_items", "max_items", "number of elements"),
    ):
        before, after = ((getattr(slot, low), getattr(slot, high)) for slot in (old, new))
        if before == after:
            continue
        breaks = _unless(_within(before, after), _within(after, before))
        yield Change(name, f"the {word} changed from {_range(before)} to {_range(after)}", breaks)


_Range = tuple[float | None, float | None]


def _within(one: _Range, other: _Range) -> bool:
    low = other[0] is None or (one[0] is not None and one[0] >= other[0])
    return low and (other[1] is None or (one[1] is not None and one[1] <= other[1]))


def _range(limits: Iterable[float | None]) -> str:
    return " to ".join("any" if each is None else str(each) for each in limits)
