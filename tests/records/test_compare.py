"""
Two versions of definitions are compared for old senders and for old readers.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from msgnode.records.checker import Checker
from msgnode.records.compare import BOTH, READERS, SENDERS, compare
from msgnode.records.definition import Definitions, EnumValue, Record, Slot
from tests.support.made_records import bodies, definitions, slots

ID = "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a11"
OTHER = "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a12"
ROOM = Slot(key=1, name="ROOM", type="STRING")
NEEDED = replace(ROOM, mandatory=True)
BYTE = Slot(key=1, name="N", type="BYTE", minimum=0, maximum=5)
UNIT = Slot(key=1, name="UNIT", type="ENUM", values=(EnumValue("A"), EnumValue("B")))


def one(*found, **given):
    return Definitions([Record(id=ID, name="ASK", slots=found, **given)])


def broken(old, new):
    """
    The programs that break by any of the changes.
    """
    return tuple(who for who in BOTH if any(who in change.breaks for change in compare(old, new)))


@pytest.mark.parametrize(
    "old, new, expected",
    [
        (one(), one(ROOM), ()),
        (one(), one(NEEDED), (SENDERS,)),
        (one(), one(replace(NEEDED, direction="ANSWER")), (SENDERS,)),
        (one(ROOM), one(reserved=(1,)), ()),
        (one(NEEDED), one(reserved=(1,)), (READERS,)),
        (one(replace(NEEDED, direction="ANSWER")), one(reserved=(1,)), (READERS,)),
        (one(ROOM), one(NEEDED), (SENDERS,)),
        (one(NEEDED), one(ROOM), (READERS,)),
        (one(NEEDED), one(replace(NEEDED, direction="BOTH")), (SENDERS,)),
        (one(ROOM), one(replace(ROOM, direction="BOTH")), ()),
        (one(ROOM), one(replace(ROOM, description="other")), ()),
        (one(ROOM), one(replace(ROOM, name="HALL")), BOTH),
        (one(ROOM), one(replace(ROOM, key=2)), BOTH),
        (one(ROOM), one(replace(ROOM, type="BOOLEAN")), BOTH),
        (one(ROOM), one(replace(ROOM, form="[]")), BOTH),
        (one(ROOM), one(replace(ROOM, type="UUID")), (SENDERS,)),
        (one(ROOM), one(replace(ROOM, type="OBJECT")), (READERS,)),
        (one(ROOM), one(replace(ROOM, max_length=5)), (SENDERS,)),
        (one(replace(ROOM, max_length=5)), one(replace(ROOM, max_length=6)), (READERS,)),
        (one(ROOM), one(replace(ROOM, pattern="a")), (SENDERS,)),
        (one(replace(ROOM, pattern="b")), one(replace(ROOM, pattern="a")), BOTH),
        (one(ROOM), one(replace(ROOM, default="x")), BOTH),
        (one(BYTE), one(replace(BYTE, maximum=4)), (SENDERS,)),
        (one(BYTE), one(replace(BYTE, minimum=None)), (READERS,)),
        (one(BYTE), one(replace(BYTE, minimum=-1, maximum=4)), BOTH),
        (one(replace(BYTE, type="INTEGER")), one(replace(BYTE, type="DOUBLE")), (READERS,)),
        (one(replace(BYTE, type="LONG")), one(replace(BYTE, type="INTEGER")), (SENDERS,)),
        (one(UNIT), one(replace(UNIT, values=UNIT.values[:1])), (SENDERS,)),
        (one(UNIT), one(replace(UNIT, values=(*UNIT.values, EnumValue("C")))), (READERS,)),
        (one(UNIT), one(replace(UNIT, values=UNIT.values[::-1])), ()),
        (one(reserved=(1,)), one(ROOM), BOTH),
        (one(ROOM), Definitions([]), (SENDERS,)),
        (Definitions([]), one(NEEDED), ()),
        (one(), Definitions([Record(id=ID, name="B")]), BOTH),
        (one(), one(namespaces=("HOME",)), ()),
    ],
)
def test_changes(old, new, expected):
    """
    A change breaks old senders if their messages may not fit, and old readers if new messages may not.
    """
    assert broken(old, new) == expected


def test_a_removed_key_should_be_reserved():
    """
    The removal of a slot says which key to reserve, if that is not done.
    """
    [change] = compare(one(ROOM), one())

    assert str(change) == ("compatible: ASK.ROOM: the optional slot was removed; list its key 1 as reserved")


@given(definitions())
def test_the_same_definitions_have_no_changes(made):
    """
    Nothing changed, nothing is reported.
    """
    assert compare(made, made) == []


@given(st.data())
def test_messages_of_unbroken_senders_fit(data):
    """
    If old senders are not broken, each message that fits the old definition fits the new one; if old
    readers are not, each that fits the new one fits the old one.
    """
    old_slot = data.draw(slots(1, "SLOT", []))
    new_slot = (
        data.draw(slots(1, "SLOT", []))
        if data.draw(st.booleans())
        else replace(
            old_slot,
            mandatory=data.draw(st.booleans()),
            maximum=data.draw(st.sampled_from([old_slot.maximum, 3]))
            if old_slot.minimum is not None
            else None,
            default=UNSET,
        )
    )
    old, new = one(old_slot), one(new_slot)
    breaks = broken(old, new)

    for who, before, after in ((SENDERS, old, new), (READERS, new, old)):
        if who not in breaks:
            body = data.draw(bodies(before, before.records[0]))
            assert Checker(after).check(ID, body) is None
