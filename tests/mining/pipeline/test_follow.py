"""
Runs of one process, as with --follow: what it keeps in memory of the run before.
"""

import json
import shutil

import pytest

pytest.importorskip("pyspark")

import pyarrow.parquet as pq
from pyspark.sql.types import StructType
from synthetic.plan import generate

from msgnode.mining.analyses import latency
from msgnode.mining.execution.kept_plans import planned_once, uses
from msgnode.mining.execution.planning import DUCKDB
from msgnode.mining.pipeline.batches import Batches
from msgnode.mining.pipeline.ingest import Ingest
from msgnode.mining.pipeline.output import Output
from msgnode.mining.reading.log_files import LogFiles
from msgnode.mining.report.series import MINUTES, minutes
from tests.mining.pipeline.test_ingest import QUESTIONS, Runs, at_once
from tests.mining.rows import message, own, table


class Following:
    """
    A process that looks at a log again and again.
    """

    def __init__(self, spark, runs, keep=0, out="out"):
        self.output = Output(spark, str(runs.out.with_name(out)))
        self.batches = Batches(spark, self.output, QUESTIONS, (), StructType([]), list().append)
        self.ingest = Ingest(self.output, self.batches, keep=keep)
        self.logs = LogFiles(spark, str(runs.logs))

    def look(self, overwrite=False):
        """
        Take what is new, and return the checkpoint with the answers.
        """
        found, _ = self.ingest.take(self.output.begin({}, overwrite), self.logs.logs(), self.logs.unpacked)
        return found, [table(self.batches.answer(question, found)) for question in QUESTIONS]

    def tables(self):
        """
        Take what is new, write all tables as a run does, and return their rows.
        """
        found, _ = self.ingest.take(self.output.begin({}, False), self.logs.logs(), self.logs.unpacked)
        summaries = self.batches.summaries(found)
        self.output.write_tables({each.name: combined(each, summaries(each)) for each in QUESTIONS})
        return [
            pq.read_table(f"{self.output.files.local()}/_tables/{each.name}").to_pylist()
            for each in QUESTIONS
        ]

    def minutes(self):
        """
        Take what is new, and return the sums by minute.
        """
        found, _ = self.ingest.take(self.output.begin({}, False), self.logs.logs(), self.logs.unpacked)
        sums = minutes(self.batches.ask(MINUTES, found.batches))
        return {
            name: sorted(
                (row.asDict() for row in rows.collect()), key=lambda row: sorted(map(str, row.items()))
            )
            for name, rows in sums.items()
        }

    def unanswered(self):
        """
        Take what is new, and return the number of requests without an answer.
        """
        found, _ = self.ingest.take(self.output.begin({}, False), self.logs.logs(), self.logs.unpacked)
        asked = {"unanswered": ("exchanges", latency.unanswered)}
        return sum(row.unanswered for row in self.batches.ask(asked, found.batches)["unanswered"].collect())


@planned_once
def combined(question, summaries):
    return question.result(summaries)


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


@pytest.fixture(params=["true", "false"], ids=["duckdb", "spark"])
def either_engine(request, spark):
    """
    Looks of which DuckDB answers what is asked of rows, and looks of which Spark does.
    """
    spark.conf.set(DUCKDB, request.param)
    yield
    spark.conf.unset(DUCKDB)


@pytest.mark.usefixtures("either_engine")
def test_looks_with_kept_plans_make_the_tables_of_one_run(spark, tmp_path):
    """
    After looks at what was appended, at a new hour and at late files, tables are those of one run over
    everything; and the plan of a look before was used.
    """
    generate(tmp_path / "whole", 200, 3, days=1, nodes=2, hours=2, plain=True)
    first, new, *late = sorted((tmp_path / "whole").glob("traffic-*"))
    runs = Runs(spark, tmp_path / "runs")
    following, kept = Following(spark, runs), []
    lines = first.read_bytes().splitlines(keepends=True)
    for size in (len(lines) // 3, len(lines) // 2, len(lines)):
        (runs.logs / first.name).write_bytes(b"".join(lines[:size]))
        following.tables()
        kept.append(uses["kept"])
    shutil.copy(new, runs.logs)
    following.tables()
    for path in late:
        shutil.copy(path, runs.logs)

    assert Following(spark, runs, out="once").tables() == following.tables()
    assert kept[0] == kept[1] < kept[2]


def test_sums_by_minute_of_looks_are_those_of_one_run(spark, tmp_path):
    """
    After looks at what was appended, at a new hour, at a late file, and after a run of another process, sums
    by minute are those of one run over everything.
    """
    generate(tmp_path / "whole", 300, 3, days=1, nodes=2, hours=3, plain=True)
    by_hour = sorted((tmp_path / "whole").glob("traffic-*"), key=lambda path: path.name[-9:])
    first, late, second, _, new, newest = by_hour
    runs = Runs(spark, tmp_path / "runs")
    following = Following(spark, runs)
    shutil.copy(first, runs.logs)
    lines = second.read_bytes().splitlines(keepends=True)

    for size in (len(lines) // 3, len(lines) // 2, len(lines)):
        (runs.logs / second.name).write_bytes(b"".join(lines[:size]))
        following.minutes()
    shutil.copy(new, runs.logs)
    shutil.copy(late, runs.logs)
    found = following.minutes()
    Following(spark, runs).look(overwrite=True)
    shutil.copy(newest, runs.logs)

    assert following.minutes() == Following(spark, runs, out="once").minutes() != found


@pytest.mark.usefixtures("either_engine")
def test_newest_requests_count_as_unanswered_once_the_log_goes_on(spark, tmp_path):
    """
    A request without an answer is none of the unanswered ones while the log ends within two minutes of it.
    """
    runs = Runs(spark, tmp_path / "runs")
    path = runs.logs / "traffic-mn1-20260731T00.jsonl"
    following, found = Following(spark, runs), []

    for line in (message(10, type="read"), own(129, "alive"), own(131, "alive"), message(132, type="read")):
        with path.open("a") as file:
            file.write(
                json.dumps({key: value for key, value in line.items() if key not in ("date", "hour")}) + "\n"
            )
        found.append(following.unanswered())

    assert [0, 0, 1, 1] == found
