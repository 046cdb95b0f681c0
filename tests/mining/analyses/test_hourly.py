"""
The hourly tables that the report draws: errors by code, and answers by node.
"""

import pytest

from msgnode.mining.analyses import exchanges, latency, volume
from msgnode.mining.analyses.analysis import asked
from tests.mining.rows import ANN, BOB, FIRST, log, message, table


def test_errors_are_counted_by_hour_node_code_and_reason(spark):
    """
    Refused and unroutable messages have their code and reason, and what was delivered is not among them.
    """
    rows = log(
        spark,
        message(1),
        message(2, outcome="refused", code=429, reason="rate"),
        message(3, outcome="refused", code=429, reason="rate", node="mn2"),
        message(4, outcome="no-route"),
        message(3605, outcome="refused", code=429, reason="rate"),
        message(3606, outcome="answered", code=200),
    )

    found = table(
        volume.errors(asked(volume.volume, rows)), "hour", "node", "outcome", "code", "reason", "number"
    )

    assert [
        (0, "mn1", "no-route", 0, None, 1),
        (0, "mn1", "refused", 429, "rate", 1),
        (0, "mn2", "refused", 429, "rate", 1),
        (1, "mn1", "refused", 429, "rate", 1),
    ] == found


@pytest.fixture(scope="module")
def answered(spark):
    """
    The summary of two nodes: one answers in 100 ms, the other in 3 s or not at all.
    """
    rows = []
    for node, number, wait in (("mn1", 5, 0.1), ("mn2", 3, 3.0)):
        for at in range(number):
            id = f"{node}-{at}"
            rows.append(message(10 * at, type="read", id=id, node=node))
            rows.append(message(10 * at + wait, BOB, ANN, type="response", id=id, node=node))
    rows.append(message(100, type="read", id="lost", node="mn2"))
    return asked(latency.latency, exchanges.exchanges(log(spark, *rows), None, FIRST + 1))


def test_requests_without_an_answer_are_counted_by_node(answered):
    """
    Requests and unanswered ones are counted for each node, type and destination.
    """
    found = table(latency.answered(answered), "node", "type", "destination", "requests", "unanswered")

    to = "hyperty://b.example"
    assert [("mn1", "read", to, 5, 0), ("mn2", "read", to, 4, 1)] == found


def test_latency_by_node_does_not_count_what_was_not_answered(answered):
    """
    Each node has percentiles of its own, of answered requests alone.
    """
    fast, slow = table(latency.latency_by_node(answered), "node", "number", "p99")

    assert ("mn1", 5) == fast[:2] and 100_000 <= fast[2] < 105_000
    assert ("mn2", 3) == slow[:2] and 3_000_000 <= slow[2] < 3_150_000
    assert 8 == sum(row.number for row in latency.latency_percentiles(answered).collect())
