"""
The fast check of bodies: what it accepts, the checker accepts too.
"""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from msgnode.records.checker import Checker, is_complete
from msgnode.records.definition import Definitions, EnumValue, Record, Slot
from msgnode.records.fast_check import MAX_SLOTS
from tests.support.made_records import bodies, definitions, jsons

ID = "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a12"
OTHER = "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a13"
strange = jsons | st.sampled_from(
    [2**63, -(2**63) - 1, 5.0, 1e300, "", "\ud800", "9" * 19, "-0", [[]], {"": 1}]
)
GOOD: dict[str, list[Any]] = {
    "BOOLEAN": [True],
    "BYTE": [-128],
    "INTEGER": [5],
    "LONG": ["5", "-123456789012345678", 5, -5],
    "DOUBLE": [1, -2.5],
    "STRING": ["é", ""],
    "UUID": [ID, ID.upper()],
    "DATE": ["2026-11-30T10:00:00Z", "2026-12-31t23:59:59.123456+01:00"],
    "BYTES": ["", "AAEC", "AA=="],
    "URL": ["https://example.org/?a=b"],
    "ID": ["é x"],
    "ADDRESS": ["comm://a.example/1"],
    "NODE_ADDRESS": ["mn://a.example/n1"],
    "OBJECT": [{"a": [1, None]}],
}
NEAR: dict[str, list[Any]] = {
    "LONG": ["05", "-0", "+5", " 5", "5\n", "5.0", 5.0, "٣", "", "1e3", "9223372036854775808", True, None],
    "UUID": [ID.replace("-", ""), ID + "\n", "{" + ID[1:-1] + "}", ID[:-1], ID[:-1] + "g", None],
    "DATE": [
        "2026-11-18 10:00:00Z",
        "2026-11-18T10:00:00+0100",
        "2026-11-18T10:00:00.1234567Z",
        "2026-02-29T10:00:00Z",
        "2026-11-31T10:00:00Z",
        "0000-01-01T10:00:00Z",
        "2026-11-18T10:00:60Z",
        "2026-11-18T10:00:00Z\n",
        "2026-11-18T10:00:00",
        "２026-11-18T10:00:00Z",
        1700000000,
    ],
    "BYTES": ["AA", "AB==", "AAB=", "AA==AA==", "A-EC", "AAEC\n"],
    "URL": ["example.org", "1a:b", "a:", "a: b"],
    "ID": ["", "x" * 257, "a\nb"],
    "ADDRESS": ["Comm://a", "a", "a:" + "b" * 2048, "a:\n"],
    "NODE_ADDRESS": ["mn://a.example/n1/x", "mn:/nodes", "mn://a.example/"],
    "OBJECT": [None],
}


def checker(*slots: Slot) -> Checker:
    return Checker(Definitions([Record(id=ID, name="ANY", slots=slots)]))


def slot(kind: str, number: int = 1, mandatory: bool = True, **others: object) -> Slot:
    return Slot(key=number, name=f"S{number}", type=kind, mandatory=mandatory, **others)


@given(st.data(), definitions(), st.booleans())
def test_no_body_is_accepted_that_the_checker_refuses(data, found, is_answer):
    """
    Bodies that fit, and bodies in which one member has any other value, name or key.
    """
    made = Checker(found)
    record = data.draw(st.sampled_from(found.records))
    body = data.draw(bodies(found, record))
    if data.draw(st.booleans()):
        members = [*(slot.name for slot in record.slots), *(str(slot.key) for slot in record.slots)]
        body[data.draw(st.sampled_from([*members, "77", "code"]))] = data.draw(strange)
    direction = "ANSWER" if is_answer else "REQUEST"

    if made.accepts(record.id, Raw(json.dumps(body).encode()), direction):
        complete = not is_answer or is_complete(body.get("code"))
        assert made.check(record.id, body, direction, complete) is None


@pytest.mark.parametrize("kind", [*NEAR])
@pytest.mark.parametrize("form", ["", "[]", "{}"])
@pytest.mark.parametrize("mandatory", [True, False])
def test_values_that_nearly_fit_are_not_accepted(kind, form, mandatory):
    """
    Texts that a looser reader would take, alone, in an array, in a map, and next to one that fits.
    """
    made = checker(slot(kind, 1, mandatory, form=form), slot("UUID", 2, mandatory))
    for value in NEAR[kind]:
        if value is None and (kind == "OBJECT" if form else not mandatory):
            continue  # null fits
        many = {"": value, "[]": [value], "{}": {"a": value}}[form]
        body = {"S1": many, "S2": ID}
        assert made.check(ID, body) is not None, value
        assert not made.accepts(ID, json.dumps(body).encode()), value


@given(st.data())
@example(None)
def test_texts_are_not_taken_for_others(data):
    """
    Two texts are matched together; no text of one slot passes because of what another slot has.
    """
    made = checker(slot("ID", 1), slot("LONG", 2), slot("ID", 3))
    parts = st.text(st.sampled_from("a5\n"), max_size=5)
    body = {name: "a\n5\na" if data is None else data.draw(parts) for name in ("S1", "S2", "S3")}

    if made.accepts(ID, json.dumps(body).encode()):
        assert made.check(ID, body) is None


@pytest.mark.parametrize("mandatory", [True, False])
def test_bodies_that_fit_are_accepted_without_the_checker(mandatory):
    """
    Of every type, single and in arrays, in requests and answers; an unusual member is left to the checker.
    """
    forms = [(kind, form) for kind in GOOD for form in ("", "[]", "{}")]
    slots = [slot(kind, n, mandatory, form=form) for n, (kind, form) in enumerate(forms, 1)]
    made = checker(*slots)
    for at in range(4):
        body = {}
        for each in slots:
            value = GOOD[each.type][at % len(GOOD[each.type])]
            body[each.name] = {"": value, "[]": [value], "{}": {"é": value}}[each.form]
        assert made.check(ID, body) is None
        assert made.accepts(ID, Raw(json.dumps(body).encode()))
    assert made.accepts(ID, json.dumps({**body, "via": "x", "code": 200}).encode(), "ANSWER")
    assert made.accepts(ID, b"{}") is not mandatory
    for refused in (b"", b"null", b"[]", json.dumps({**body, "2": 5}).encode()):
        assert not made.accepts(ID, refused)
    with pytest.raises(KeyError):
        made.accepts(OTHER, b"{}")


def test_records_that_nest_too_much_are_left_to_the_checker():
    """
    A record within itself and one with very many slots are checked, but no types are made of all that.
    """
    child = Slot(key=1, name="CHILD", type="RECORD", record=ID)
    many = tuple(Slot(key=n, name=f"S{n}", type="RECORD", record=ID) for n in range(1, MAX_SLOTS + 2))
    made = Checker(
        Definitions([Record(id=ID, name="SELF", slots=(child,)), Record(id=OTHER, name="MANY", slots=many)])
    )

    assert made.accepts(ID, b'{"CHILD": {"CHILD": null}}')
    assert not made.accepts(ID, b'{"CHILD": {"CHILD": 5}}')
    assert not made.accepts(ID, b'{"CHILD":' * 40 + b"null" + b"}" * 40)
    assert not made.accepts(OTHER, b"{}")


def test_records_with_very_many_values_are_left_to_the_checker():
    """
    Types of enums take long to make, too, and the first message of a record would wait for them.
    """
    values = tuple(EnumValue(f"V{n}") for n in range(1000))
    enums = tuple(
        Slot(key=n, name=f"S{n}", type="ENUM", values=values if n > 1 else values[:2]) for n in range(1, 6)
    )

    assert checker(enums[0]).accepts(ID, b'{"S1": "V1"}')
    assert not checker(*enums).accepts(ID, b'{"S1": "V1"}')
    assert checker(*enums).check(ID, {"S1": "V1"}) is None
