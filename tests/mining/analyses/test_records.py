"""
Messages with records in a log, counted by Spark and by plain Python.
"""

import random
from collections import Counter, defaultdict

from msgnode.mining.analyses.analysis import asked
from msgnode.mining.analyses.exchanges import exchanges
from msgnode.mining.analyses.records import by_record, ill_typed
from msgnode.mining.sql.expressions import FAILED
from tests.mining.rows import ANN, BOB, FIRST, log, message, table

LAMP, METER = "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a01", "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a02"


def lines(number):
    """
    Messages by chance, some of which have a record, and some of those do not fit it.
    """
    chance = random.Random(number)
    found = []
    for each in range(number):
        more = {"type": chance.choice(["read", "Response", "update"]), "bytes": chance.randrange(1000)}
        if chance.random() < 0.8:
            more["record"] = chance.choice([LAMP, METER])
        kind = chance.randrange(5)
        if kind == 0 and "record" in more:
            more |= {"outcome": "refused", "code": 400, "reason": "record", "recipients": 0}
            more["slot"] = chance.choice(["ROOM", "UNIT", None])
        elif kind == 1:
            more |= {"outcome": "refused", "code": 403, "reason": "policy", "recipients": 0}
        elif kind == 2 and "record" in more and more["type"] == "Response":
            more |= {"code": 502, "reason": "record", "slot": "ROOM"}  # an answer that became an error
        found.append(message(each, chance.choice([ANN, BOB]), id=str(each), **more))
    return found


def test_volume_and_refusals_by_record_are_those_of_a_plain_count(spark):
    """
    Messages without a record are in neither; an ill-typed answer is, though it was delivered as an error.
    """
    made = lines(300)
    volume = defaultdict(Counter)
    causes = Counter()
    for line in made:
        if line.get("record") is None:
            continue
        key = line["record"], "answer" if line["type"] == "Response" else "request"
        is_failed, is_ill = line["outcome"] in FAILED, line.get("reason") == "record"
        volume[key].update(
            messages=1, bytes=line["bytes"], copies=line["recipients"], failed=is_failed, ill_typed=is_ill
        )
        if is_failed or is_ill:
            causes[(*key, line["outcome"], line["code"], line["reason"])] += 1
    names = ("messages", "bytes", "copies", "failed", "ill_typed")
    expected = [(*key, *(counts[name] for name in names)) for key, counts in volume.items()]

    found = table(by_record.records_in_all(asked(by_record.records, log(spark, *made))))
    refused = table(by_record.record_refusals_in_all(asked(by_record.record_refusals, log(spark, *made))))

    assert sorted(expected) == sorted(found)
    assert [row[2] for row in found] == sorted((row[2] for row in found), reverse=True)
    assert dict(causes) == {row[:-1]: row[-1] for row in refused}


def test_senders_of_ill_typed_messages_are_those_of_a_plain_count(spark):
    """
    By sender, record and slot, with the latest example; who sends most comes first.
    """
    made = [line for line in lines(300) if line.get("reason") == "record"]
    numbers, latest = Counter(), {}
    for line in made:
        direction = "answer" if line["type"] == "Response" else "request"
        key = line["from"], line["record"], direction, line.get("slot")
        numbers[key] += 1
        latest[key] = line["id"]

    found = table(
        ill_typed.most_ill_typed(asked(ill_typed.ill_typed, log(spark, *lines(300)))),
        "address",
        "record",
        "direction",
        "slot",
        "number",
        "last.id",
    )

    assert {key: (number, latest[key]) for key, number in numbers.items()} == {
        row[:4]: row[4:] for row in found
    }
    assert [row[4] for row in found] == sorted(numbers.values(), reverse=True)


def test_latency_by_record_is_that_of_its_requests(spark):
    """
    The record of the request counts, whether the answer has one or not; other requests are not counted.
    """

    def request(id, seconds, record, answered_after=None):
        yield message(seconds, ANN, BOB, id=id, type="read", record=record)
        if answered_after is not None:
            yield message(seconds + answered_after, BOB, ANN, id=id, type="response")

    made = [
        *request("1", 1, LAMP, 0.001),
        *request("2", 2, LAMP, 0.001),
        *request("3", 3, LAMP),
        *request("4", 4, METER, 1),
        *request("5", 5, None, 1),
    ]

    found = exchanges(log(spark, *made), None, FIRST + 1)
    rows = table(
        by_record.record_latency_percentiles(asked(by_record.record_latency, found)),
        "record",
        "requests",
        "unanswered",
        "p50",
        "p999",
    )

    (lamp, *lamps), (meter, *meters) = rows
    assert [(lamp, lamps[:2]), (meter, meters[:2])] == [(LAMP, [3, 1]), (METER, [1, 0])]
    assert 1000 <= lamps[2] <= lamps[3] <= 1045 and 1_000_000 <= meters[2] <= 1_045_000
