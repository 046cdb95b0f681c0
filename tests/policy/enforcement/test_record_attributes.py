"""
Policies that decide by the record that a message names.
"""

from typing import Any

import pytest

from msgnode.bus.records.known_records import read_records
from tests.bus.test_record_check import GET_TEMPERATURE, LAMP, PAGE, THERMOMETER
from tests.support.fakes import MemoryNode
from tests.support.made_policies import rule, use

HALL = {"ROOM": "hall", "UNIT": "KELVIN", "WHERE": {"LATITUDE": 1, "LONGITUDE": 2}}


def passes(condition: dict[str, Any], body: Any = HALL, **fields: Any) -> bool:
    """
    Does a message pass that only a rule with this condition permits?
    """
    node = MemoryNode(policy={"default_in": "deny", "mark_auth": False})
    node.known_records.use(read_records(THERMOMETER, ()))
    page, lamp = node.client(PAGE), node.client(LAMP)
    use(node, rule("permit", condition))
    page.tell({"id": 1, "type": "ping", "from": PAGE, "to": LAMP, "body": body, **fields})
    return bool(lamp.got)


@pytest.mark.parametrize(
    "condition",
    [
        {"record.id": {"equals": GET_TEMPERATURE.upper()}},
        {"record.name": {"equals": "GET_TEMPERATURE"}},
        {"record.namespace": {"equals": "HOME"}},
        {"record.slot.ROOM": {"in": ["hall", "kitchen"]}},
        {"record.slot.WHERE.LATITUDE": {"lessThan": 5}},
    ],
)
def test_a_rule_tests_the_record(condition):
    """
    A message without the record has none of these attributes.
    """
    assert passes(condition, record=GET_TEMPERATURE)
    assert not passes(condition)


def test_slots_by_key_are_the_same_slots():
    assert passes({"record.slot.ROOM": {"equals": "hall"}}, {"1": "hall"}, record=GET_TEMPERATURE)


def test_a_record_that_is_not_known_has_an_id_and_no_name():
    unknown = "00000000-0000-4000-8000-000000000001"
    assert passes({"record.id": {"equals": unknown}}, record=unknown)
    assert not passes({"record.name": {"like": "*"}}, record=unknown)


def test_a_decision_about_one_record_is_not_remembered_for_others():
    node = MemoryNode(policy={"mark_auth": False})
    page, lamp = node.client(PAGE), node.client(LAMP)
    use(node, rule("deny", {"record.slot.ROOM": {"equals": "vault"}}))
    for room in ("hall", "vault", "hall"):
        page.tell(
            {
                "id": 1,
                "type": "ping",
                "from": PAGE,
                "to": LAMP,
                "record": GET_TEMPERATURE,
                "body": {"ROOM": room},
            }
        )
    assert [message["body"]["ROOM"] for message in lamp.take()] == ["hall", "hall"]
