"""
Spark and DuckDB give the same rows for the same lines.
"""

import random

import pytest

from msgnode.mining.analyses.analysis import asked
from msgnode.mining.analyses.catalogue import QUESTIONS
from msgnode.mining.execution.arrow_tables import schema_of
from msgnode.mining.execution.gathering import gathered
from msgnode.mining.pipeline.timeline import AddressTimeline, Conversation
from msgnode.mining.report.series import MINUTES
from tests.mining.engines import InDuckDB, InSpark
from tests.mining.rows import ANN, BOB, FIRST, START, event, log, message, own, table

ADDRESSES = (
    ANN, BOB, "HTTPS://A.Example?q/x/y", "comm://registry.b.example#x", "domain://msg-node.b.example/sm",
    "a:b:///c", "mn:/session", "mn://b.example/x", "mn:", "user:///ann", "user://", "global://registry",
    "a/b://c.example", "//c.example/d/e/f", "1a://c.example/", "x+.-9://idm./y", "no address", "", None,
    f"{ANN}/changes", "x/children/y", f"{BOB}/status", "comm://\u0130\u1e9e.example/changes", "c:/\n://d/e",
)  # fmt: skip
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


def anything(random, number):
    """
    Lines of all kinds and addresses, many of which are equal in most, with what may be null.
    """
    return [
        message(
            random.choice((0, 1, 1, 59.9, 60, 3500, 3601, 86_399, 86_401)),
            random.choice(ADDRESSES),
            random.choice(ADDRESSES),
            type=random.choice(("read", "READ", "response", "Subscribe", "unsubscribe", "Stra\u00dfe", None)),
            id=random.choice(("1", "2", "\u00fc", None)),
            outcome=random.choice(("delivered", "waiting", "answered", "refused", "no-route", "dropped")),
            code=random.choice((None, 0, 200, 403)),
            reason=random.choice((None, "policy", "record")),
            connector=random.choice((None, "node", "line")),
            node=random.choice(("mn1", "mn2")),
            session=random.choice((None, "runtime://a.example/1")),
            peer=random.choice((None, "127.0.0.1")),
            bytes=random.choice((None, -1, 0, 1, 63, 64, 65, 128, 2**29, 2**50 + 1)),
            micros=random.choice((None, -1, 0, 1, 2, 3, 8, 29, 2**29, 2**47, 100_001)),
            recipients=random.choice((None, 0, 1, 3)),
            waiting=random.choice((None, 0, 2)),
            record=random.choice((None, "r", "s")),
            slot=random.choice((None, "x")),
            resources=random.choice((None, [], ["a"], ["a", "\u00fc", None])),
        )
        for _ in range(number)
    ] + [
        own(
            random.choice((0, 60, 61, 400, 3500, 3601)),
            random.choice(("started", "alive", "stopped")),
            node=random.choice(("mn1", "mn2")),
            messages=random.choice((None, 1, 2)),
            started=random.choice((None, START, START + 1)),
            version=random.choice((None, "1", "2")),
        )
        for _ in range(60)
    ]


def sets(value, in_order=False):
    """
    The same with each list as a set; `in_order` leaves the order of the outermost.
    """
    if isinstance(value, dict):
        return {name: sets(each) for name, each in value.items()}
    if not isinstance(value, list):
        return value
    found = [sets(each) for each in value]
    return found if in_order else sorted(found, key=repr)


@pytest.mark.parametrize("seed", range(2))
def test_both_engines_sum_up_alike(spark, tmp_path, seed):
    """
    The summaries of all analyses, timelines and sums by minute have the same rows and types by both engines.
    """
    made = random.Random(seed)
    lines = log(spark, *anything(made, 600), *requests(made, 300), *events(made, 300)).cache()
    ours = InSpark()
    sources = {
        "lines": lines,
        "messages": lines.where("kind = 'message'"),
        "events": lines.where("kind = 'session'"),
        "exchanges": ours.exchanges(lines.where("kind = 'message'"), None, FIRST + 24),
        "lives": ours.lives(lines.where("kind = 'session'"), None, FIRST + 24),
    }
    queries = {each.name: (each.of, each.summary) for each in QUESTIONS if not each.shares} | MINUTES
    queries |= {
        f"story of {address}": ("lines", AddressTimeline(address, START + 1, 500))
        for address in ("runtime://a.example/1", "a", "user:///ann", "it's \\ {this}", "")
    }
    queries["conversation"] = "lines", Conversation("1", (ANN, BOB), START, START + 3_600 * 10**9, 50)
    queries["by id"] = "lines", Conversation("\u00fc")

    theirs = InDuckDB(spark, tmp_path).answers(queries, sources)
    asked_of = {name: asked(query, sources[of]) for name, (of, query) in queries.items()}

    rows = gathered(*asked_of.values())
    for (name, found), expected in zip(asked_of.items(), rows, strict=True):
        by_duckdb, in_order = theirs[name], name.startswith(("story", "conversation"))
        types = [(each.name, each.dataType.simpleString()) for each in schema_of(by_duckdb.schema)]
        assert found.dtypes == types
        same = [sets([row.asDict(True) for row in expected], in_order), sets(by_duckdb.to_pylist(), in_order)]
        assert same[0] == same[1], name
    assert 20 < sum(map(bool, rows))
