"""
Messages of another domain that name a record: they are checked by the definitions of the node that gets them.
"""

import pytest

from msgnode.bus.records.known_records import read_records
from tests.bus.test_record_check import GET_TEMPERATURE, THERMOMETER
from tests.support.links_exchange import MemoryNetwork

A, B = "a.example", "b.example"


@pytest.fixture
def network() -> MemoryNetwork:
    """
    Only the second domain knows the record.
    """
    network = MemoryNetwork(A, B)
    network[B].node.known_records.use(read_records(THERMOMETER, ()))
    return network


def test_a_message_that_fits_crosses_with_its_record(network):
    ann, bob = network[A].client("ann"), network[B].client("bob")

    ann.request(bob.hyperty, record=GET_TEMPERATURE, body={"ROOM": "hall"})
    network.flow()

    [got] = bob.take()
    assert (got["record"], got["body"]) == (GET_TEMPERATURE, {"ROOM": "hall"})


def test_an_ill_typed_request_is_refused_where_it_arrives_and_its_sender_is_told(network):
    ann, bob = network[A].client("ann"), network[B].client("bob")

    ann.request(bob.hyperty, record=GET_TEMPERATURE, body={"ROOM": 5})
    network.flow()

    assert bob.take() == []
    [answer] = ann.take()
    assert (answer["id"], answer["body"]["code"], answer["body"]["slot"]) == (7, 400, "ROOM")
    assert network[B].node.counts.refused[400, "record"] == 1


def test_an_ill_typed_answer_of_another_domain_becomes_502_for_the_one_who_asked(network):
    ann, bob = network[A].client("ann"), network[B].client("bob")

    bob.request(ann.hyperty, record=GET_TEMPERATURE, body={"ROOM": "hall"})
    network.flow()
    ann.take()
    answer = {"id": 7, "type": "response", "from": ann.hyperty, "to": bob.hyperty}
    ann.tell({**answer, "record": GET_TEMPERATURE, "body": {"code": 200, "TEMPERATURE": "warm"}})
    network.flow()

    [got] = bob.take()
    assert (got["from"], got["body"]["code"]) == (ann.hyperty, 502)
    assert (got["body"]["reason"], got["body"]["slot"]) == ("record", "TEMPERATURE")
