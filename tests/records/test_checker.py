"""
Bodies are checked against the definition of their record.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.protocol import lossless_json
from msgnode.records.checker import Checker, is_complete
from msgnode.records.definition import Definitions, EnumValue, Record, Slot
from msgnode.records.values import compiled
from tests.support.made_records import bodies, definitions, jsons

ID = "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a11"
INNER = "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a12"
TREE = "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a13"
NAMED = Record(id=INNER, name="NAMED", slots=(Slot(key=1, name="NAME", type="STRING", mandatory=True),))
NODES = Record(id=TREE, name="TREE", slots=(Slot(key=1, name="LEFT", type="RECORD", record=TREE),))


def checker(*slots):
    return Checker(Definitions([Record(id=ID, name="ASK", slots=slots), NAMED, NODES]))


def one(kind, **given):
    return Slot(key=1, name="SLOT", type=kind, mandatory=True, **given)


def wrong(slot, value):
    """
    The words in which this value of one slot is refused, or None.
    """
    found = checker(slot).check(ID, {"SLOT": value})
    return found and str(found)


def fits(slot, value):
    return checker(slot).check(ID, {"SLOT": value}) is None


# -- types -------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind, good, bad",
    [
        ("BOOLEAN", [True, False], [1, "true", 0.0]),
        ("BYTE", [-128, 127], [-129, 128, 1.0, True, "1"]),
        ("SHORT", [-32768, 32767], [32768, -32769]),
        ("INTEGER", [-(2**31), 2**31 - 1], [2**31, 1.5, 10**400]),
        (
            "LONG",
            [2**63 - 1, -(2**63), str(2**63 - 1), str(-(2**63)), "0"],
            [2**63, str(2**63), "01", "+1", "1.0", "", "9" * 5000, 1.0, "-0", " 1", "١"],
        ),
        ("FLOAT", [0.5, 3, -3.4e38], [3.5e38, "1", True]),
        ("DOUBLE", [1e308, 0, -0.0], [float("inf"), float("nan"), 10**400, "NaN", False]),
        ("STRING", ["", "é😀", "x" * 10_000], [1, "\ud83d", "a\udc00"]),
        ("UUID", [ID, ID.upper()], [ID[:-1], ID.replace("-", ""), ID + "0", "{" + ID[1:]]),
        ("BYTES", ["", "AAEC", "AA==", "//79"], ["A", "AB==", "A A=", "AA=A", "-_79", 5]),
        (
            "DATE",
            ["2026-11-18T10:00:00Z", "2026-11-18t10:00:00.123456+01:00"],
            ["2026-11-18", "2026-02-30T10:00:00Z", "2026-11-18T10:00:00", "2026-11-18T10:00:00.1234567Z", 5],
        ),
        ("URL", ["https://example.org/x", "urn:a:b"], ["example", "", "http://a b", 5]),
        ("ADDRESS", ["hyperty://a.example/1", "mn:/nodes"], ["x", "Hyperty://a", "a b:c", 5]),
        ("NODE_ADDRESS", ["mn://a.example/n1"], ["hyperty://a.example/1", "mn:/nodes", "mn://a/b/c"]),
        ("TARGET_ADDRESS", ["hyperty://a.example/1"], ["", 5, "x" * 3000]),
        ("ID", ["a", "é"], ["", "x" * 257, 5, "a\n"]),
        ("MESSAGE", [{"id": 1, "type": "x", "from": "a", "to": "b"}], [{}, [], "x", {"id": 1, "type": "x"}]),
        ("OBJECT", [{}, [], "x", 0, False, {"a": [None]}], [{"a": "\ud800"}, {"\ud800": 1}]),
    ],
)
def test_types(kind, good, bad):
    """
    A value of the type passes; any other is refused with the name of its slot and the type.
    """
    for value in good:
        assert fits(one(kind), value), value
    for value in bad:
        assert str(wrong(one(kind), value)).startswith(f"SLOT: expected {kind}"), value


def test_an_enum_has_only_its_values():
    """
    A value that the definition does not have is refused with those that it has.
    """
    slot = one("ENUM", values=(EnumValue("CLIENT"), EnumValue("class")))

    assert fits(slot, "class")
    assert wrong(slot, "Client") == "SLOT: expected one of CLIENT, class, found 'Client'"


@pytest.mark.parametrize(
    "given, good, bad, expected",
    [
        ({"kind": "INTEGER", "minimum": 1, "maximum": 3}, 3, 4, "INTEGER from 1 to 3, found 4"),
        ({"kind": "LONG", "maximum": 3}, "3", "4", "LONG from -9223372036854775808 to 3, found '4'"),
        ({"kind": "DOUBLE", "minimum": 0.5}, 0.5, 0.4, "DOUBLE from 0.5 to any, found 0.4"),
        ({"kind": "STRING", "max_length": 2}, "éé", "abc", "STRING of 0 to 2 characters, found 'abc'"),
        (
            {"kind": "BYTES", "min_length": 1, "max_length": 2},
            "AA==",
            "AAEC",
            "BYTES of 1 to 2 bytes, found 'AAEC'",
        ),
        ({"kind": "STRING", "pattern": "[a-z]+"}, "abc", "abc1", "STRING that matches [a-z]+, found 'abc1'"),
        (
            {"kind": "BYTE", "form": "[]", "max_items": 1},
            [1],
            [1, 2],
            "BYTE[] of 0 to 1 elements, found 2 elements",
        ),
        (
            {"kind": "BYTE", "form": "{}", "min_items": 1},
            {"a": 1},
            {},
            "BYTE{} of 1 or more elements, found 0 elements",
        ),
    ],
)
def test_limits(given, good, bad, expected):
    """
    Ranges, lengths, patterns and numbers of elements are checked, and the refusal has them.
    """
    slot = one(given.pop("kind"), **given)

    assert fits(slot, good)
    assert wrong(slot, bad) == f"SLOT: expected {expected}"


@pytest.mark.parametrize(
    "slot, value, expected",
    [
        (one("BYTE", form="[]"), [1, 2, 300], "SLOT[2]: expected BYTE from -128 to 127, found 300"),
        (one("BYTE", form="[]"), {"a": 1}, "SLOT: expected BYTE[], a list, found an object"),
        (one("BYTE", form="{}"), {"a": "x"}, "SLOT['a']: expected BYTE from -128 to 127, found 'x'"),
        (one("BYTE", form="{}"), [1], "SLOT: expected BYTE{}, an object, found a list"),
        (one("STRING", form="{}"), {"\ud800": ""}, "SLOT: expected keys without lone surrogates"),
        (one("RECORD", record=INNER), {"NAME": 5}, "SLOT.NAME: expected STRING, found 5"),
        (
            one("RECORD", record=INNER, form="[]"),
            [{"NAME": ""}, {}],
            "SLOT[1].NAME: expected STRING, found nothing",
        ),
        (
            one("RECORD", record=INNER, form="{}"),
            {"a": []},
            "SLOT['a']: expected an object with slots, found []",
        ),
        (one("STRING"), None, "SLOT: expected STRING, found null"),
        (one("OBJECT"), None, "SLOT: expected OBJECT (the slot is mandatory), found null"),
        (one("STRING", form="[]"), [None], "SLOT[0]: expected STRING, found null"),
    ],
)
def test_a_refusal_names_the_place(slot, value, expected):
    """
    The path leads to the element, the key or the slot of a nested record.
    """
    assert str(wrong(slot, value)).startswith(expected)


# -- slots -------------------------------------------------------------------

BOTH_WAYS = (
    Slot(key=1, name="ROOM", type="STRING", mandatory=True),
    Slot(key=2, name="UNIT", type="STRING"),
    Slot(key=3, name="TEMPERATURE", type="DOUBLE", direction="ANSWER", mandatory=True),
    Slot(key=4, name="TRACE", type="STRING", direction="BOTH", mandatory=True),
)


@pytest.mark.parametrize(
    "body, direction, expected",
    [
        ({"ROOM": "hall", "TRACE": "x"}, "REQUEST", None),
        ({"ROOM": "hall"}, "REQUEST", "TRACE: expected STRING, found nothing"),
        ({"TEMPERATURE": 1, "TRACE": "x", "code": 200}, "ANSWER", None),
        ({"ROOM": "hall", "TRACE": "x"}, "ANSWER", "TEMPERATURE: expected DOUBLE, found nothing"),
        ({"ROOM": 5, "TEMPERATURE": 1, "TRACE": "x"}, "ANSWER", "ROOM: expected STRING, found 5"),
        ({"1": "hall", "4": "x"}, "REQUEST", None),
        ({"1": "hall"}, "REQUEST", "TRACE: expected STRING, found nothing"),
        ({"1": 5, "4": "x"}, "REQUEST", "ROOM: expected STRING, found 5"),
        (
            {"ROOM": "hall", "4": "x"},
            "REQUEST",
            "4: expected slots by name, as ROOM, or all by key, found both",
        ),
        ({"ROOM": "hall", "99": 1, "TRACE": "x"}, "REQUEST", "99: expected slots by name, as ROOM"),
        ({"1": "hall", "4": "x", "99": 1, "LATER": {}, "via": 5}, "REQUEST", None),
        ({"ROOM": "hall", "TRACE": "x", "UNIT": None, "LATER": 5}, "REQUEST", None),
        ([], "REQUEST", "body: expected an object with slots, found []"),
    ],
)
def test_slots_of_a_body(body, direction, expected):
    """
    Mandatory slots are those of the direction, names and keys are not mixed, other members pass.
    """
    found = checker(*BOTH_WAYS).check(ID, body, direction)

    assert found is None if expected is None else str(found).startswith(expected)


def test_an_answer_that_refuses_needs_no_slots():
    """
    Slots of an incomplete answer may be absent, but those that are there must fit.
    """
    check = checker(*BOTH_WAYS).check

    assert [code for code in (100, 199, 200, 204, 299, 300, 404, None) if is_complete(code)] == [
        200,
        204,
        299,
        None,
    ]
    assert check(ID, {"code": 404}, "ANSWER", is_complete(404)) is None
    assert check(ID, {"code": 200}, "ANSWER", is_complete(200)) is not None
    assert check(ID, {"TEMPERATURE": "x"}, "ANSWER", is_complete(404)) is not None


def test_ids_are_known_in_both_cases():
    """
    The id of a record may have upper-case letters.
    """
    made = checker(one("STRING"))

    assert made.knows(ID) and made.knows(ID.upper()) and not made.knows(INNER[:-1] + "f")
    assert made.check(ID.upper(), {}) == made.check(ID, {}) is not None
    with pytest.raises(KeyError):
        made.check("x", {})


# -- bounds ------------------------------------------------------------------


def test_records_nest_to_a_bounded_depth():
    """
    A tree of records deeper than 32 is refused; the stack does not overflow.
    """
    body: dict = {}
    for _ in range(900):
        body = {"LEFT": body}

    found = checker().check(TREE, body)

    assert found is not None and found.expected == "at most 32 records within each other"
    assert found.slot.count("LEFT") == 33


def test_open_values_nest_to_a_bounded_depth():
    """
    Any JSON fits an OBJECT, to 64 levels.
    """
    deep: Any = 1
    for _ in range(64):
        deep = [deep]

    assert fits(one("OBJECT"), deep) is False
    assert fits(one("OBJECT"), deep[0][0])


def test_a_pattern_that_backtracks_takes_no_time():
    """
    A pattern on which Python's `re` needs 2 to the power of the length answers, for any length.
    """
    matches = compiled("(a+)+b").matches

    assert not matches("a" * 100_000)
    assert matches("a" * 100_000 + "b")


def test_patterns_take_a_bounded_time():
    """
    RE2 takes time in proportion to a text and to the pattern: a body has at most so much text to match.
    """
    found = checker(one("STRING", form="[]", pattern="[ab]*a[ab]{500}"))
    some = "a" * 1000

    assert found.check(ID, {"SLOT": [some] * 9}) is None
    assert found.check(ID, {"SLOT": [some] * 9}) is None
    wrong = found.check(ID, {"SLOT": [some] * 10})
    assert wrong is not None and wrong.slot == "SLOT[9]"
    assert "less text to match" in wrong.expected
    assert not found.accepts(ID, b'{"SLOT": ["%s"]}' % (b"a" * 12_000))


def test_numbers_that_exceed_a_float_are_refused():
    """
    The node decodes 1e400 as infinite: it fits no slot of numbers.
    """
    body = lossless_json.loads(b'{"SLOT": 1e400}')

    assert checker(one("DOUBLE")).check(ID, body) is not None
    assert checker(one("FLOAT")).check(ID, body) is not None


# -- whatever comes ----------------------------------------------------------


@given(st.data())
def test_bodies_of_a_definition_fit_it(data):
    """
    A body made for a record fits it, by name and by key, and so does what JSON makes of it.
    """
    found = data.draw(definitions())
    record = data.draw(st.sampled_from(found.records))
    body = data.draw(bodies(found, record))
    made = Checker(found)

    assert made.check(record.id, body) is None
    assert not made.accepts(record.id, b"[]")
    assert made.check(record.id, json.loads(json.dumps(body))) is None
    keys = {slot.name: str(slot.key) for slot in record.slots}
    assert made.check(record.id, {keys.get(name, name): value for name, value in body.items()}) is None


@given(st.data())
def test_any_body_is_answered(data):
    """
    The check of any JSON returns, and names a slot or the body.
    """
    found = data.draw(definitions())
    record = data.draw(st.sampled_from(found.records))
    names = [each.name for each in record.slots] + [str(each.key) for each in record.slots]
    body = data.draw(jsons | st.dictionaries(st.sampled_from([*names, "x", "7"]), jsons))

    wrong = Checker(found).check(record.id, body)

    assert wrong is None or (wrong.expected and str(wrong))


@given(st.data())
def test_the_fast_check_accepts_only_bodies_that_fit(data):
    """
    A body in JSON that the fast check accepts fits, in requests, in answers and incomplete.
    """
    found = data.draw(definitions())
    record = data.draw(st.sampled_from(found.records))
    names = [each.name for each in record.slots] + [str(each.key) for each in record.slots]
    body = data.draw(bodies(found, record))
    body |= data.draw(st.dictionaries(st.sampled_from([*names, "x", "7"]), jsons, max_size=1))
    text = json.dumps(body).encode()
    made = Checker(found)

    for direction, complete in (("REQUEST", True), ("ANSWER", True), ("ANSWER", False)):
        if made.accepts(record.id, text, direction, complete):
            assert made.check(record.id, body, direction, complete) is None


@pytest.mark.parametrize(
    "text, fits",
    [
        (b'{"ROOM": "hall", "TRACE": "x"}', True),
        (b'{"ROOM": "hall", "TRACE": "x", "via": [1], "UNIT": null}', True),
        (b'{"ROOM": "hall"}', False),
        (b'{"ROOM": 5, "TRACE": "x"}', False),
        (b'{"ROOM": "hall", "TRACE": "x", "99": 1}', False),
        (rb'{"ROOM": "hall", "TRACE": "x", "\u0034": 1}', False),
        (b'{"ROOM": null, "TRACE": "x"}', False),
        (b'{"ROOM": "hall", "TRACE": "x"', False),
        (rb'{"ROOM": "\ud800", "TRACE": "x"}', False),
        (b"[" * 5000, False),
    ],
)
def test_the_fast_check_of_a_body(text, fits):
    """
    A body by names is accepted without decoding it in Python; one by keys, or with escaped names, is not.
    """
    assert checker(*BOTH_WAYS).accepts(ID, text) is fits
    assert checker(*BOTH_WAYS).accepts(ID.upper(), text) is fits


def test_ids_in_any_case_are_compiled_once():
    """
    A sender that spells an id in many ways does not fill the memory of the node.
    """
    made = checker(one("STRING"))

    assert made.of(ID) is made.of(ID.upper()) is made.of(ID.replace("a", "A"))
    assert made.accepts(ID.replace("a", "A"), b'{"SLOT": ""}')
