"""
Definitions of records that Hypothesis makes, and values that fit them.
"""

from datetime import UTC, datetime

from hypothesis import strategies as st

from msgnode.records.consistency import folded
from msgnode.records.definition import (
    FLOATS,
    INTEGERS,
    TYPES,
    Definitions,
    EnumValue,
    Record,
    Slot,
)
from msgnode.records.values import check_of

SIMPLE = [kind for kind in TYPES if kind != "RECORD"]
# All that XML can have, and no `^`, which is a line break.
texts = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff^"), max_size=12
)
names = st.from_regex(r"[A-Z][A-Z0-9]{0,5}(_[A-Z0-9]{1,5}){0,2}", fullmatch=True)
descriptions = st.lists(
    texts.map(lambda text: " ".join(text.split(" ")).strip()).filter(lambda text: text and "  " not in text),
    max_size=2,
).map("\n".join)
uuids = st.uuids().map(str)
numbers = st.floats(allow_nan=False, allow_infinity=False)
dates = st.datetimes(min_value=datetime(1000, 1, 1)).map(
    lambda when: when.replace(tzinfo=UTC).isoformat().replace("+00:00", "Z")
)
jsons = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=5,
)
messages = st.just(
    {"id": 1, "type": "update", "from": "hyperty://a.example/1", "to": "hyperty://b.example/2"}
)
addresses = st.sampled_from(["hyperty://a.example/1", "mn:/nodes", "comm://a.example/é"])


@st.composite
def slots(draw, key, name, nested):
    """
    A slot with that key and name, maybe of one of the nested records.
    """
    kind = draw(st.sampled_from([*SIMPLE, *(["RECORD"] if nested else [])]))
    made = {"key": key, "name": name, "type": kind, "form": draw(st.sampled_from(["", "", "[]", "{}"]))}
    made["direction"] = draw(st.sampled_from(["REQUEST", "BOTH"]))
    made["mandatory"] = draw(st.booleans())
    made["description"] = draw(descriptions)
    if kind == "RECORD":
        made["record"] = draw(st.sampled_from(nested)).id
    if kind == "ENUM":
        values = draw(
            st.lists(st.from_regex(r"[A-Za-z][a-z0-9]{0,5}", fullmatch=True), min_size=1, unique=True)
        )
        made["values"] = tuple(EnumValue(value, draw(descriptions)) for value in values[:4])
    if made["form"]:
        made["min_items"], made["max_items"] = draw(st.sampled_from([(None, None), (0, 5), (None, 3)]))
    if kind in INTEGERS and draw(st.booleans()):
        made["minimum"], made["maximum"] = -5, draw(st.integers(0, 100))
    if kind in ("STRING", "BYTES") and draw(st.booleans()):
        made["max_length"] = 40
    slot = Slot(**made)
    if (
        not slot.mandatory
        and not slot.form
        and kind not in ("RECORD", "MESSAGE", "OBJECT")
        and draw(st.booleans())
    ):
        value = draw(simple(slot))
        if kind in INTEGERS:
            value = int(value)
        if not check_of(slot)(value):
            slot = Slot(**made, default=float(value) if kind in FLOATS else value)
    return slot


@st.composite
def definitions(draw, direction="BOTH"):
    """
    Some records; each nests those before it.
    """
    found = []
    taken = draw(st.lists(names, min_size=1, max_size=3, unique_by=folded))
    ids = draw(st.lists(uuids, min_size=3, max_size=3, unique=True))
    for id_, name in zip(ids, taken, strict=False):
        slot_names = draw(st.lists(names, max_size=5, unique_by=folded))
        keys = draw(st.lists(st.integers(1, 200), min_size=5, max_size=5, unique=True))
        found.append(
            Record(
                id=id_,
                name=name,
                is_service=draw(st.booleans()),
                namespaces=tuple(draw(st.sampled_from([[], ["HOME"], ["OFFICE", "HOME"]]))),
                description=draw(descriptions),
                slots=tuple(
                    draw(slots(key, each, found)) for key, each in zip(keys, slot_names, strict=False)
                ),
                reserved=tuple(sorted(draw(st.sets(st.integers(201, 300), max_size=2)))),
            )
        )
    return Definitions(found, "made.records.json")


def simple(slot):
    """
    Values of a slot's type, without its form, as JSON has them; not for RECORD.
    """
    if slot.type in INTEGERS:
        low, high = INTEGERS[slot.type]
        low = low if slot.minimum is None else slot.minimum
        high = high if slot.maximum is None else slot.maximum
        whole = st.integers(low, high)
        return whole.map(str) if slot.type == "LONG" else whole
    by_type = {
        "BOOLEAN": st.booleans(),
        "FLOAT": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "DOUBLE": numbers,
        "STRING": texts,
        "UUID": uuids,
        "BYTES": st.sampled_from(["", "AAEC", "AA==", "//79"]),
        "DATE": dates,
        "URL": st.sampled_from(["https://example.org/", "urn:x:y"]),
        "NODE_ADDRESS": st.just("mn://a.example/n1"),
        "ENUM": st.sampled_from([value.name for value in slot.values] or [""]),
        "ID": texts.filter(bool),
        "MESSAGE": messages,
        "OBJECT": jsons.filter(lambda value: value is not None),
    }
    return by_type.get(slot.type, addresses)


@st.composite
def bodies(draw, found, record, is_nested=False):
    """
    Bodies that fit the requests of a record, with members that are no slots.
    """
    made = {}
    for slot in record.slots:
        kind = draw(st.sampled_from(["value", "value", "null", "absent"]))
        if kind == "absent" and not slot.mandatory:
            continue
        if kind == "null" and not slot.mandatory:
            made[slot.name] = None
            continue
        one = simple(slot) if slot.type != "RECORD" else bodies(found, found.nested(slot), True)
        if slot.form == "[]":
            one = st.lists(one, max_size=2)
        elif slot.form:
            one = st.dictionaries(texts, one, max_size=2)
        made[slot.name] = draw(one)
    if draw(st.booleans()):
        made |= {"code": 200, "NEW_SLOT_OF_LATER": draw(jsons)}
    return made
