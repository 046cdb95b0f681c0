"""
Runs of one process, as with --follow: what it keeps in memory of the run before.
"""

import pytest

pytest.importorskip("pyspark")

import pyarrow.parquet as pq
from pyspark.sql.types import StructType
from synthetic.plan import generate

from msgnode.mining.execution.kept_plans import uses
from msgnode.mining.pipeline.batches import Batches
from msgnode.mining.pipeline.ingest import Ingest
from msgnode.mining.pipeline.log_files import LogFiles
from msgnode.mining.pipeline.output import Output
from msgnode.mining.pipeline.run import MiningRun, Options
from tests.mining.pipeline.test_ingest import QUESTIONS, Runs, at_once
from tests.mining.rows import table


class Following:
    """
    A process that looks at a log again and again.
    """

    def __init__(self, spark, runs, keep=0):
        self.output = Output(spark, str(runs.out))
        self.batches = Batches(spark, self.output, QUESTIONS, (), StructType([]), list().append)
        self.ingest = Ingest(self.output, self.batches, keep=keep)
        self.logs = LogFiles(spark, str(runs.logs))

    def look(self, overwrite=False):
        """
        Take what is new, and return the checkpoint with the answers.
        """
        found, _ = self.ingest.take(self.output.begin({}, overwrite), self.logs.logs(), self.logs.unpacked)
        return found, [table(self.batches.answer(question, found)) for question in QUESTIONS]


def test_later_looks_sum_up_closed_hours_once(spark, tmp_path):
    """
    From the second look on, closed hours have a part; the answers are those of one run over everything.
    """
    runs = Runs(spark, tmp_path / "runs")
    runs.write(0)
    path = runs.write(1)
    text = path.read_text()
    path.write_text("".join(text.splitlines(keepends=True)[:2]))
    following = Following(spark, runs)
    first, _ = following.look()
    path.write_text(text)

    second, _ = following.look()
    runs.write(2)
    third, answers = following.look()

    ends = [[part.end - first.batches[0].begin for part in known.parts] for known in (first, second, third)]
    assert [[], [1], [1, 2]] == ends
    assert at_once(spark, tmp_path / "once", runs) == answers == runs.answers()


def test_sums_in_memory_do_not_outlive_a_run_of_another_process(spark, tmp_path):
    """
    A process that follows goes on from what another made in its directory, also from parts of equal numbers.
    """
    runs = Runs(spark, tmp_path / "runs")
    runs.write(0)
    runs.write(1)
    following = Following(spark, runs)
    following.look()
    runs.write(2)
    following.look()
    runs.write(0, "mn2")
    other = Following(spark, runs)
    other.look(overwrite=True)
    runs.write(3)
    made, _ = other.look()

    found, answers = following.look()

    assert made == found
    assert at_once(spark, tmp_path / "once", runs) == answers


def test_lines_of_a_batch_across_the_days_that_are_kept_are_counted_again(spark, tmp_path):
    """
    When a later look removes a day of a batch, its count is that of the lines which are left.
    """
    runs = Runs(spark, tmp_path / "runs")
    for hour in (0, 1, 24, 25):
        runs.write(hour)
    following = Following(spark, runs, keep=2)
    before, _ = following.look()
    runs.write(48)

    after, _ = following.look()

    assert [12, 4] == [batch.lines for batch in before.batches]
    assert [4, 4, 4] == [batch.lines for batch in after.batches]


def test_looks_with_kept_plans_make_the_tables_of_one_run(spark, tmp_path):
    """
    After two looks at what was appended, one at a new hour and one at late files, all tables are those of one
    run over everything, and plans of a look before were used.
    """
    whole, logs = tmp_path / "whole", tmp_path / "logs"
    generate(whole, 200, 3, days=1, nodes=2, hours=2, plain=True)
    logs.mkdir()
    first, new, *late = sorted(whole.glob("traffic-*"))
    lines = first.read_bytes().splitlines(keepends=True)
    run = MiningRun(spark, Options(str(logs), str(tmp_path / "out")), list().append)
    kept = []
    for size in (len(lines) // 3, len(lines) // 2, len(lines)):
        (logs / first.name).write_bytes(b"".join(lines[:size]))
        run.run()
        kept.append(uses["kept"])
    for files in ([new], late):
        for file in files:
            (logs / file.name).write_bytes(file.read_bytes())
        run.run()

    result = MiningRun(spark, Options(str(whole), str(tmp_path / "once")), list().append).run()

    assert kept[0] <= kept[1] < kept[2]
    assert stored(tmp_path / "once", result.tables) == stored(tmp_path / "out", result.tables)


def stored(out, tables):
    return {name: pq.read_table(out / "tables" / name).to_pylist() for name in tables}
