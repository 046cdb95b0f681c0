"""
What the report says of ill-typed messages, and how it names records.  No Spark is needed.
"""

from types import SimpleNamespace

from msgnode.mining.report.record_chapter import ill_typed_answers, ill_typed_senders, name_records
from tests.mining.rows import ANN, BOB, START

LAMP, METER = "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a01", "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a02"
NAMES = {METER: "GET_TEMPERATURE"}


def ill_typed(address, record, direction, slot, number):
    """
    A row of the table of ill-typed senders.
    """
    last = SimpleNamespace(time=START)
    return SimpleNamespace(
        address=address, record=record, direction=direction, slot=slot, number=number, last=last
    )


ROWS = [
    ill_typed(ANN, METER, "answer", "TEMPERATURE", 46),
    ill_typed(BOB, METER, "request", "ROOM", 40),
    ill_typed(ANN, METER, "request", "UNIT", 2),
    ill_typed(BOB, LAMP, "answer", None, 1),
]


def test_refused_requests_are_said_to_come_mostly_from_their_busiest_sender():
    """
    With the slot and the record by its name.
    """
    said = ill_typed_senders(ROWS, NAMES)

    assert {("refused", 400, "record"): f"most from {BOB}: 40 with slot ROOM of GET_TEMPERATURE"} == said
    assert {} == ill_typed_senders(ROWS[:1], NAMES)


def test_each_sender_of_ill_typed_answers_is_a_finding():
    """
    A record without a known name is called by its id; the slot is missing if the whole body does not fit.
    """
    found = ill_typed_answers(ROWS, NAMES)

    assert [f"46 answers from {ANN}", f"1 answer from {BOB}"] == [each.word for each in found]
    assert found[0].text.startswith("did not fit, slot TEMPERATURE of GET_TEMPERATURE; the last at 20")
    assert found[1].text.startswith(f"did not fit, record {LAMP}; the last at")
    assert {"records"} == {each.section for each in found}
    assert found[0].weight > found[1].weight


def test_chapter_shows_a_record_by_its_name_if_that_is_known():
    """
    In whichever column it is.
    """
    table = {"columns": [["sender", "text"], ["record", "text"]], "rows": [[ANN, METER], [BOB, LAMP]]}

    named = name_records({"tables": [table]}, NAMES)

    assert [[ANN, "GET_TEMPERATURE"], [BOB, LAMP]] == named["tables"][0]["rows"]
