"""
Consistency of a set of records: ids, names and keys that repeat or collide, nested records, cycles.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgnode.records.definition import MAX_RECORDS, Record, Slot
from msgnode.records.problems import Place, Problem
from msgnode.structures.error_words import near

MAX_HINTS = 5  # similar ids that are looked for
NO_NAMESPACE = "COMMON"  # where records without a namespace are, in generated code


class Placed(NamedTuple):
    """
    A record, its position, and those of its slots.
    """

    record: Record
    place: Place
    slot_places: tuple[Place, ...]

    def slots(self) -> Iterator[tuple[Slot, Place]]:
        return zip(self.record.slots, self.slot_places, strict=True)


def folded(name: str) -> str:
    """
    A form of a name that is the same for names whose generated forms differ by nothing or by case only.
    """
    return name.replace("_", "").casefold()


def inconsistencies(records: Sequence[Placed]) -> list[Problem]:
    """
    The problems between records, and between the slots of one record.
    """
    if len(records) > MAX_RECORDS:
        return [Problem(records[MAX_RECORDS].place, f"more than {MAX_RECORDS} records: {len(records)}")]
    problems: list[Problem] = []
    by_id: dict[str, Placed] = {}
    by_name: dict[tuple[str, str], Record] = {}
    for placed in records:
        record, place, _ = placed
        other = by_id.setdefault(record.id, placed)
        if other is not placed:
            at = f"{other.place.where}:{other.place.line}"
            problems.append(Problem(place, f"the id {record.id} is that of {other.record.name} at {at}, too"))
            continue
        for namespace in record.namespaces or (NO_NAMESPACE,):
            named = by_name.setdefault((folded(namespace), folded(record.name)), record)
            if named is not record:
                text = f"the name {record.name} is the same in generated code as {named.name} of {named.id}"
                problems.append(Problem(place, text))
        problems += _slots(placed)
    return problems + _nested(by_id) + _cycles(by_id)


def _slots(placed: Placed) -> list[Problem]:
    problems = []
    keys: dict[int, str] = {}
    names: dict[str, str] = {}
    for slot, place in placed.slots():
        full = f"{placed.record.name}.{slot.name}"
        if slot.key in keys:
            problems.append(Problem(place, f"{full}: the key {slot.key} is that of {keys[slot.key]}, too"))
        elif slot.key in placed.record.reserved:
            text = f"{full}: the key {slot.key} is reserved: it belonged to a slot that was removed"
            problems.append(Problem(place, text))
        if folded(slot.name) in names:
            other = names[folded(slot.name)]
            how = "occurs again" if other == slot.name else f"is the same in generated code as {other}"
            problems.append(Problem(place, f"the slot {full} {how}"))
        keys.setdefault(slot.key, slot.name)
        names.setdefault(folded(slot.name), slot.name)
    return problems


def _nested(by_id: dict[str, Placed]) -> list[Problem]:
    problems: list[Problem] = []
    for placed in by_id.values():
        for slot, place in placed.slots():
            if slot.type != "RECORD" or not slot.record:
                continue
            full = f"{placed.record.name}.{slot.name}"
            inner = by_id.get(slot.record)
            if inner is None:
                # Each search for a similar id compares all.
                hint = near(slot.record, by_id) if len(problems) < MAX_HINTS else ""
                problems.append(Problem(place, f"{full}: no record has the id {slot.record}{hint}"))
            elif any(each.direction == "ANSWER" for each in inner.record.slots):
                text = f"{full}: the nested record {inner.record.name} has slots of direction ANSWER"
                problems.append(Problem(place, text))
    return problems


def _cycles(by_id: dict[str, Placed]) -> list[Problem]:
    """
    Records that contain themselves by mandatory slots: no finite message fits them.
    """
    needed = {
        id_: {
            slot.record
            for slot in placed.record.slots
            if slot.type == "RECORD" and slot.mandatory and not slot.form and slot.record in by_id
        }
        for id_, placed in by_id.items()
    }
    # A record that contains none of those left is finite, and is taken out.
    while finite := [id_ for id_, inner in needed.items() if not inner & needed.keys()]:
        for id_ in finite:
            del needed[id_]
    return [
        Problem(
            by_id[id_].place,
            f"{by_id[id_].record.name} contains itself by mandatory slots: nothing can fit it",
        )
        for id_ in needed
        if _returns(id_, needed)
    ]


def _returns(start: str, needed: dict[str, set[str]]) -> bool:
    seen: set[str] = set()
    waiting = list(needed[start])
    while waiting:
        each = waiting.pop()
        if each == start:
            return True
        if each in needed and each not in seen:
            seen.add(each)
            waiting += needed[each]
    return False
