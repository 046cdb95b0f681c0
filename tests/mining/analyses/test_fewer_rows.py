"""
Sums of a large log, whose rows are summed up first, and those of a small log, whose rows are not.
"""

import pytest

from msgnode.mining.analyses import anomalies, exchanges, latency, presence, volume
from msgnode.mining.analyses.columns import destination, domain, origin
from tests.mining.rows import ANN, BOB, FIRST, event, log, message, own

_ADDRESSES = (
    ANN, "HTTPS://A.Example?q/x/y", "comm://registry.b.example#x", "domain://msg-node.b.example/sm",
    "a:b:///c", "mn:/session", "mn://b.example/x", "mn:", "user:///ann", "user://",
    "a/b://c.example", "//c.example/d/e/f", "1a://c.example/", "x+.-9://idm./y", "no address", "", None,
)  # fmt: skip


@pytest.fixture(scope="module")
def lines(spark):
    """
    Lines of each kind, of several hours and nodes, some of which differ in little.
    """
    calls = [message(n, to=to, type="read", id=str(n), micros=n) for n, to in enumerate(_ADDRESSES)]
    failed = [message(n, to=BOB, outcome="refused", code=code) for n in range(3) for code in (403, None)]
    answers = [message(n + 0.5, to, ANN, type="response", id=str(n)) for n, to in enumerate(_ADDRESSES[:4])]
    latest = [message(9, type="read", id=str(n), node=f"mn{n}") for n in range(4)] * 2
    sparse = [message(n * 700, from_, micros=200_000, bytes=None) for n, from_ in enumerate(_ADDRESSES)]
    events = [event(n * 1000, name) for n in range(4) for name in ("attached", "expired", "opened")]
    of_node = [own(n * 400, name, messages=n) for n in range(9) for name in ("started", "alive", "stopped")]
    return log(spark, *calls, *failed, *answers, *latest, *sparse, *events, *of_node, own(400, "alive"))


def sums(spark, summarise, rows, partitions):
    """
    The sums, as a log with shuffles of so many partitions gets them; one is for a small log.
    """
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    try:
        return sorted(map(repr, summarise(rows.repartition(3)).collect()))
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "1")


@pytest.mark.parametrize("summarise", [volume.matrix, anomalies.hours, presence.presence])
def test_large_log_has_the_sums_of_a_small_one(spark, lines, summarise):
    """
    The sums of lines are the same, whether or not rows are summed up first.
    """
    rows = lines.where("kind = 'message'") if summarise is volume.matrix else lines

    small, large = (sums(spark, summarise, rows, partitions) for partitions in ("1", "3"))

    assert len(small) > 1
    assert small == large


def test_large_log_has_the_same_unanswered_requests(spark, lines):
    """
    The unanswered requests, and the latest of each recipient, are the same, too.
    """
    rows = exchanges.exchanges(lines.where("kind = 'message'"), None, FIRST + 9)

    small, large = (sums(spark, latency.unanswered, rows, partitions) for partitions in ("1", "3"))

    assert {True, False} == {"last=None" in row for row in small}
    assert small == large


def test_path_of_an_address_does_not_matter(spark):
    """
    An address has the domain and the destination that it has without its path.
    """
    rows = spark.createDataFrame([(address,) for address in _ADDRESSES], "address string")
    found = rows.select("address", origin("address").alias("origin"))

    table = found.select(
        *[of(name) for name in ("address", "origin") for of in (domain, destination)]
    ).collect()

    assert {"a.example", "b.example", "node", "none"} == {row[0] for row in table}
    assert [row[:2] for row in table] == [row[2:] for row in table]
