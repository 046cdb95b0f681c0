"""
A large log: it is read and summed up in several partitions, and its results are those of a small one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from synthetic.plan import generate

from msgnode.mining.execution.planning import DUCKDB, SETTINGS, for_few_rows, in_one_partition
from msgnode.mining.pipeline.run import MiningRun, Options

_ENGINES = {"duckdb": "true", "spark": "false"}


@contextmanager
def planned_for_many_rows(spark: SparkSession, duckdb: str = "true") -> Iterator[None]:
    """
    Settings as of a session for a large log.
    """
    before = {name: spark.conf.get(name) for name in SETTINGS}
    try:
        for name in SETTINGS:
            spark.conf.unset(name)
        spark.conf.set("spark.sql.shuffle.partitions", "3")
        spark.conf.set(DUCKDB, duckdb)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))
        spark.conf.unset(DUCKDB)


def tables(out: Path) -> dict[str, list[dict[str, Any]]]:
    found = {}
    for directory in sorted((out / "tables").iterdir()):
        rows = pq.read_table(directory).to_pylist()
        found[directory.name] = sorted(rows, key=repr)
    return found


def test_a_large_log_has_the_results_of_a_small_one(spark: SparkSession, tmp_path: Path) -> None:
    """
    All tables are equal, whether queries are compiled or not, and by either engine.
    """
    generate(tmp_path / "logs", 3000, 1, 1, 2, hours=3, plain=True)
    options = {name: Options(str(tmp_path / "logs"), str(tmp_path / name)) for name in ("small", *_ENGINES)}
    small = MiningRun(spark, options["small"], lambda _: None).run()
    report = (tmp_path / "small" / "report.html").read_text()
    for engine, enabled in _ENGINES.items():
        with planned_for_many_rows(spark, enabled):
            large = MiningRun(spark, options[engine], lambda _: None, most_tail=1, few_bytes=0).run()
            assert not in_one_partition(spark)
        assert (small.lines, small.bad, small.files) == (large.lines, large.bad, large.files)
        assert tables(tmp_path / "small") == tables(tmp_path / engine)
        assert report == (tmp_path / engine / "report.html").read_text()


def test_each_look_at_a_large_log_shows_what_was_appended(spark: SparkSession, tmp_path: Path) -> None:
    """
    The report after several looks of one process is that of a first look at the same log.
    """
    generate(tmp_path / "logs", 2000, 1, 1, 2, hours=3, plain=True)
    newest = max((tmp_path / "logs").glob("*.jsonl"))
    lines = newest.read_text().splitlines(keepends=True)
    newest.write_text("".join(lines[:-60]))
    options = [Options(str(tmp_path / "logs"), str(tmp_path / name)) for name in ("looks", "fresh")]
    with planned_for_many_rows(spark):
        looking = MiningRun(spark, options[0], lambda _: None)
        looking.run()
        for begin in (60, 40, 20):
            with newest.open("a") as file:
                file.write("".join(lines[-begin : 20 - begin or None]))
            looking.run()
        MiningRun(spark, options[1], lambda _: None).run()

    found, expected = [(tmp_path / name / "report.html").read_text() for name in ("looks", "fresh")]
    assert expected == found


def test_planning_for_few_rows_ends_with_its_block(spark: SparkSession) -> None:
    """
    After the block all settings are as before, also after a failure.
    """
    with planned_for_many_rows(spark):
        before = [spark.conf.get(name, None) for name in SETTINGS]
        with pytest.raises(ZeroDivisionError), for_few_rows(spark):
            assert in_one_partition(spark)
            raise ZeroDivisionError
        assert before == [spark.conf.get(name, None) for name in SETTINGS]
        with for_few_rows(spark, False):
            assert not in_one_partition(spark)
