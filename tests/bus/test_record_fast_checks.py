"""
The fast checks of bodies: what they accept, the checker accepts too.
"""

import json

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from msgnode.bus.records.fast_checks import FastChecks
from msgnode.records.checker import Checker, is_complete
from msgnode.records.definition import Definitions, Record, Slot
from tests.support.made_records import bodies, definitions, jsons

ID = "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a12"
strange = jsons | st.sampled_from(
    [2**63, -(2**63) - 1, 5.0, 1e300, "", "\ud800", "9" * 19, "-0", [[]], {"": 1}]
)


@given(st.data(), definitions(), st.booleans())
def test_no_body_is_accepted_that_the_checker_refuses(data, found, is_answer):
    """
    Bodies that fit, and bodies in which one member has any other value, name or key.
    """
    checker = Checker(found)
    fast = FastChecks(checker)
    record = data.draw(st.sampled_from(found.records))
    body = data.draw(bodies(found, record))
    if data.draw(st.booleans()):
        members = [*(slot.name for slot in record.slots), *(str(slot.key) for slot in record.slots)]
        body[data.draw(st.sampled_from([*members, "77", "code"]))] = data.draw(strange)
    direction = "ANSWER" if is_answer else "REQUEST"

    if fast.fits(record.id, Raw(json.dumps(body).encode()), is_answer):
        complete = not is_answer or is_complete(body.get("code"))
        assert checker.check(record.id, body, direction, complete) is None


def test_bodies_that_fit_are_accepted_without_the_checker():
    """
    Of every type; a member that is unusual is left to the checker.
    """
    types = {"BOOLEAN": True, "INTEGER": 5, "DOUBLE": 1, "STRING": "é", "LONG": "5", "UUID": ID}
    slots = [Slot(key=n, name=f"S{n}", type=kind, mandatory=True) for n, kind in enumerate(types, 1)]
    fast = FastChecks(Checker(Definitions([Record(id=ID, name="ANY", slots=tuple(slots))])))
    body = {slot.name: types[slot.type] for slot in slots}

    assert fast.fits(ID, Raw(json.dumps(body).encode()), False)
    assert fast.fits(ID, Raw(json.dumps({**body, "via": "x", "code": 200}).encode()), True)
    for refused in (b"", b"null", b"[]", b"{}", json.dumps({**body, "2": 5}).encode()):
        assert not fast.fits(ID, Raw(refused), False)
    assert not fast.fits("00000000-0000-4000-8000-000000000001", Raw(b"{}"), False)
