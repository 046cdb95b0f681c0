"""
Spark and DuckDB give the same rows for the same lines.
"""

import random

import pytest

from tests.mining.engines import InDuckDB, InSpark
from tests.mining.rows import ANN, BOB, FIRST, event, log, message, table

EVE = "hyperty://c.example/eve"
EVENTS = ("opened", "attached", "detached", "superseded", "closed", "expired", "renamed", "moved", "odd")


def messages(random, number):
    """
    Messages with few ids, addresses and times, so that many are equal in some of them.
    """
    return [
        message(
            random.choice((0.25, 1, 1, 2, 90, 121, 3500, 3599, 3599.5, 3601, 3650)),
            random.choice((ANN, BOB, EVE, None)),
            random.choice((ANN, BOB, f"{EVE}/changes", "x/children/y", None)),
            type=random.choice(("read", "READ", "response", "Response", "update", "execute", "Straße", None)),
            id=random.choice(("1", "2", "ü", None)),
            outcome=random.choice(("delivered", "waiting", "answered", "refused")),
            transaction=random.choice((None, None, "a", "b")),
            node=random.choice(("mn1", "mn2")),
            bytes=random.choice((100, 200, None)),
            record=random.choice((None, "r")),
        )
        for _ in range(number)
    ]


def events(random, number):
    """
    Events of few sessions, many of them at the same time.
    """
    return [
        event(
            random.choice((1, 1, 2, 3, 60, 3599, 3601, 3700)),
            random.choice(EVENTS),
            random.choice(("runtime://a.example/1", "runtime://a.example/2")),
            node=random.choice(("mn1", "mn2")),
        )
        for _ in range(number)
    ]


def requests(random, number):
    """
    Requests and answers of one instant or two, which differ only in what may be null.
    """
    return [
        message(
            random.choice((1, 1, 3599)),
            *random.choice(((ANN, BOB), (ANN, BOB), (BOB, ANN))),
            type=random.choice(("read", "response", "SUBSCR\u0130BE", "\u0391\u03a3", None)),
            id=str(random.randrange(number // 4)),
            transaction=random.choice((None, "a", "b")),
            bytes=random.choice((100, None)),
            record=random.choice((None, "r")),
            node=random.choice(("mn1", "mn2")),
        )
        for _ in range(number)
    ] + [message(3601, BOB, ANN, type="response", id=str(n)) for n in range(number // 4)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("question", "make"), [("exchanges", messages), ("exchanges", requests), ("lives", events)]
)
def test_both_engines_give_the_same_rows(spark, tmp_path, question, make, seed):
    """
    Both engines give the same rows for lines of two hours, with what the second carries over from the first.
    """
    lines = make(random.Random(seed), 600)
    hours = [log(spark, *[line for line in lines if line["hour"] == hour]) for hour in (0, 1)]
    found = []
    for engine in (InSpark(), InDuckDB(spark, tmp_path)):
        answer = getattr(engine, question)
        before = answer(hours[0], None, FIRST + 1)
        after = answer(hours[1], before.where("open"), FIRST + 2)
        columns = sorted(before.columns)
        found.append([sorted(table(rows, *columns), key=repr) for rows in (before, after)])

    assert found[0] == found[1]
    assert all(found[0])
