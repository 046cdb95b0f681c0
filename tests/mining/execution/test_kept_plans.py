"""
Plans that are kept, while the rows that they read change.
"""

import shutil

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from msgnode.mining.analyses import exchanges, session_lifetimes
from msgnode.mining.analyses.catalogue import QUESTIONS
from msgnode.mining.execution.kept_plans import ChangingRows, collected, planned_once, reads_anew
from msgnode.mining.execution.own_rows import OwnRows
from msgnode.mining.reading.parse import parsed

NUMBERS = StructType([StructField("number", LongType())])


@pytest.fixture
def numbers(spark, tmp_path):
    return ChangingRows(spark, tmp_path / "numbers.json", NUMBERS)


def sums(numbers, query):
    """
    The sums of two lists of numbers, each from an execution of the query, and how often it was planned.
    """
    planned, found = [], []

    def unite(query):
        planned.append(query)
        return query.select("*")

    for some in ([1], [1, 2, 3]):
        numbers.put([{"number": number} for number in some])
        found += [row.sum for row in collected((query,), unite)]
    return found, len(planned)


def test_kept_plan_gives_the_new_rows(numbers):
    """
    The second execution has the plan of the first, and the rows of then.
    """
    query = numbers.rows.agg(F.sum("number").alias("sum"))

    assert ([1, 6], 1) == sums(numbers, query)


def test_plan_with_a_shuffle_is_not_kept(numbers):
    """
    A plan that holds rows, as those of a shuffle, is made again.
    """
    query = numbers.rows.repartition(2, "number").agg(F.sum("number").alias("sum"))

    assert ([1, 6], 2) == sums(numbers, query)


def test_same_arguments_give_the_same_query(numbers):
    """
    A function that plans once makes one query for the same rows and conditions.
    """
    above = planned_once(lambda rows, least: rows.where(F.col("number") > least))

    assert above(numbers.rows, 1) is above(numbers.rows, 1)
    assert above(numbers.rows, 1) is not above(numbers.rows, 2)


def test_own_rows_need_no_directory_of_before(spark, tmp_path, monkeypatch):
    """
    Rows are found also if something removed the directory for them, and if its path has a space.
    """
    place = tmp_path / "a place"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    own, found = OwnRows(spark), []
    for number in (1, 2, 3):
        own.begin_look()
        found += own.query("numbers", NUMBERS, [{"number": number}]).collect()
        if number > 1:
            [directory] = place.iterdir()
            shutil.rmtree(directory)

    assert [(1,), (2,), (3,)] == found


def test_plan_of_each_analysis_is_kept(spark):
    """
    In one partition no analysis needs a shuffle or a broadcast.
    """
    lines = spark.createDataFrame([], "value string, path string").transform(parsed).coalesce(1)
    others = {"exchanges": exchanges.SCHEMA, "lives": session_lifetimes.SCHEMA}
    rows = {name: spark.createDataFrame([], schema).coalesce(1) for name, schema in others.items()}

    made = {each.name: each.result(each.summarise(rows.get(each.of, lines))) for each in QUESTIONS}

    assert [] == [name for name, query in made.items() if not reads_anew(query)]
