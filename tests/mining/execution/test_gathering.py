"""
Many queries in few executions, and small tables without one.
"""

import pytest

from msgnode.mining.execution.arrow_tables import parquet_of, table_of
from msgnode.mining.execution.gathering import gather, gathered, served

SCHEMA = (
    "name string, number long, hour int, share double, yes boolean, many array<string>, "
    "last struct<time: long, from: string>, runs array<struct<started: long>>"
)
FULL = ("ann", 2**62, 7, 0.25, True, ["a", "b"], (1, "x"), [(5,), (None,)])
EMPTY = (None,) * 8


@pytest.fixture
def rows(spark):
    return spark.createDataFrame([FULL, EMPTY], SCHEMA)


def test_rows_are_those_that_spark_collects(rows):
    """
    A gathered row equals a collected one, with nested rows, and with nulls.
    """
    ordered = rows.orderBy("name")

    assert [ordered.collect(), rows.limit(0).collect()] == gathered(ordered, rows.limit(0))


def test_order_of_a_query_is_kept(spark):
    """
    Rows come in the order of their query.
    """
    numbers = spark.range(100)

    [down], [first] = [gathered(numbers.orderBy(numbers.id.desc())), gathered(numbers.orderBy("id").limit(2))]

    assert (list(range(99, -1, -1)), [0, 1]) == ([row.id for row in down], [row.id for row in first])


def test_waiting_generators_share_an_execution(spark):
    """
    Queries of generators that wait at once are one job, wherever the generators stand.
    """

    def doubled(number):
        [row] = yield spark.range(number, number + 1)
        return {"twice": again(row.id * 2)}

    def again(number):
        [[one], none] = yield [spark.range(number, number + 1), spark.range(0)]
        return [one.id, none]

    def immediate():
        return "at once"
        yield

    spark.sparkContext.setJobGroup("served", "")
    found = served({"all": [doubled(1), doubled(2), immediate()], "other": 3})
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup("served")

    assert {"all": [{"twice": [2, []]}, {"twice": [4, []]}, "at once"], "other": 3} == found
    assert 2 == len(jobs)


def test_nothing_is_asked_for_nothing():
    """
    Without queries there is no execution.
    """
    assert ([], [1]) == (gather([]), served([1]))


def test_small_table_has_the_types_of_spark(spark, rows, tmp_path):
    """
    What is written without Spark is read by it with the same types and values.
    """
    [values] = gather([rows])
    (tmp_path / "part-00000.parquet").write_bytes(parquet_of(table_of(values, rows.schema)))

    stored = spark.read.parquet(str(tmp_path))

    assert rows.schema.simpleString() == stored.schema.simpleString()
    assert rows.collect() == stored.collect()
