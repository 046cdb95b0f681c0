"""
Many runs: what they keep stays small, adds up, and outlives a kill.
"""

import gzip
import itertools
import json
import shutil

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from msgnode.mining.analyses import latency, subscription_graph
from msgnode.mining.pipeline.batches import Batches
from msgnode.mining.pipeline.checkpoint import Checkpoint, load
from msgnode.mining.pipeline.ingest import Ingest
from msgnode.mining.pipeline.output import CHECKPOINT, Output, OutputRefused
from msgnode.mining.reading.log_files import LogFiles
from tests.mining.rows import ANN, BOB, event, message, table

QUESTIONS = (latency.QUESTIONS[0], subscription_graph.QUESTIONS[0])
SM = "domain://msg-node.a.example/sm"
HOURS, MOST = 3, 2
MAX_TAIL = 1  # batches without a part


class Killed(BaseException):
    """
    Nobody catches this.
    """


class Life:
    """
    Ends at the change after so many.
    """

    def __init__(self, changes=10**6):
        self.changes = changes

    def live(self):
        if self.changes <= 0:
            raise Killed
        self.changes -= 1


class MortalFiles(LogFiles):
    """
    Deletes and renames until its process is killed.
    """

    life = Life()

    def delete(self, name):
        self.life.live()
        super().delete(name)

    def _rename(self, name, to):
        self.life.live()
        super()._rename(name, to)


class MortalOutput(Output):
    """
    Writes until its process is killed.
    """

    def __init__(self, spark, where, life):
        super().__init__(spark, where)
        self.files = self.mortal_files = MortalFiles(spark, where)
        self.mortal_files.life = self.life = life

    def write(self, rows, name, number, *by, once="", more=False):
        self.life.live()
        return super().write(rows, name, number, *by, once=once, more=more)

    def write_parts(self, found, number, size):
        self.life.live()
        super().write_parts(found, number, size)

    def save(self, checkpoint):
        self.life.live()
        super().save(checkpoint)


class Runs:
    """
    A log, and an output that is brought up to date with it again and again.
    """

    def __init__(self, spark, where):
        self.spark = spark
        self.logs, self.out = where / "logs", where / "out"
        self.logs.mkdir(parents=True)

    def write(self, hour, node="mn1"):
        """
        A file of the log: in each hour a request that the next one answers, and a subscription.
        """
        begin = hour * 3600
        lines = [
            message(begin, BOB, ANN, type="response", id=str(hour - 1), node=node),
            event(begin + 1, "attached", f"runtime://a.example/{node}", node=node),
            message(
                begin + 2, ANN, SM, type="subscribe", outcome="answered", node=node,
                session=f"runtime://a.example/{node}", resources=[f"comm://a.example/{hour % 3}/changes"],
            ),
            message(begin + 3599.5, type="read", id=str(hour), node=node),
        ]  # fmt: skip
        text = "".join(json.dumps(line) + "\n" for line in lines)
        name = f"traffic-{node}-{lines[1]['date'].replace('-', '')}T{hour % 24:02}.jsonl"
        (self.logs / name).write_text(text)
        return self.logs / name

    def take(self, life=None, keep=0):
        """
        A run, which may be killed; returns the checkpoint.
        """
        output = MortalOutput(self.spark, str(self.out), life or Life())
        batches = Batches(self.spark, output, QUESTIONS, (), StructType([]), list().append)
        logs = LogFiles(self.spark, str(self.logs))
        checkpoint, _ = Ingest(output, batches, MOST, MAX_TAIL, keep).take(
            output.begin({}, False), logs.logs(), logs.unpacked
        )
        return checkpoint

    def answers(self):
        """
        What the next run would answer.
        """
        output = Output(self.spark, str(self.out))
        batches = Batches(self.spark, output, QUESTIONS, (), StructType([]), list().append)
        known = output.begin({}, False)
        batches.since = known.since
        return [table(batches.answer(question, known)) for question in QUESTIONS]

    def kept(self, name):
        """
        How many files each batch or part has.
        """
        found = (self.out / name).glob("batch=*")
        return {
            int(path.name.removeprefix("batch=")): sum(1 for file in path.rglob("*") if file.is_file())
            for path in found
        }


@pytest.fixture(scope="module")
def runs(spark, tmp_path_factory):
    """
    Runs over three hours, and a fourth that was written since: the next run has three parts, and merges two.
    """
    made = Runs(spark, tmp_path_factory.mktemp("hourly"))
    for hour in range(HOURS):
        made.write(hour)
        if hour:
            made.take()
    made.write(HOURS)
    return made


def at_once(spark, where, runs):
    """
    What one run over all the same files answers.
    """
    other = Runs(spark, where)
    for path in runs.logs.iterdir():
        shutil.copy(path, other.logs)
    other.take()
    return other.answers()


def test_run_that_is_killed_before_one_of_its_steps_leaves(spark, runs, tmp_path):
    """
    A run that is killed before one of its steps leaves what was there before, or all that it made.
    """
    before, after = runs.answers(), at_once(spark, tmp_path, runs)
    seen = []

    for steps in itertools.count(0, 5):
        try:
            runs.take(Life(steps))
        except Killed:
            seen.append(runs.answers())
        else:
            break

    assert before == seen[0] != after == seen[-1]
    assert seen == sorted(seen, key=[before, after].index)
    assert after == runs.answers()


def test_many_runs_leave_few_parts(runs):
    """
    After many runs there are few parts, each of one file, and nothing is left that no checkpoint names.
    """
    runs.take()
    known = load((runs.out / CHECKPOINT).read_text())

    assert HOURS + 1 == len(known.batches)
    assert [(2, 1), (1, 0)] == [(part.end - part.begin, part.level) for part in known.parts]
    for question in QUESTIONS:
        assert {part.number: 1 for part in known.parts} == runs.kept(f"parts/{question.name}")
    for name in ("lines", "exchanges", "lives"):
        assert {batch.number for batch in known.batches} == set(runs.kept(name))


def test_late_file_takes_merged_sums_apart(spark, runs, tmp_path):
    """
    A file that comes late takes merged sums apart; what was before it needs no file of the log.
    """
    runs.write(1, "mn2")
    expected = at_once(spark, tmp_path, runs)
    runs.write(0).unlink()

    known = runs.take()

    assert runs.kept("lines").keys() == {batch.number for batch in known.batches}
    assert expected == runs.answers()


def test_only_appended_bytes_are_read(spark, tmp_path):
    """
    What was appended to the newest hour is read, not what was read before; the answers are those of one run.

    A line of a kind that is not known is skipped, and one that is none is kept aside under its file.
    """
    runs = Runs(spark, tmp_path / "runs")
    runs.write(0)
    path = runs.write(1)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:2]))
    runs.take()
    damaged = "x" * (path.stat().st_size - 1) + "\n"
    unknown = json.dumps(message(3700) | {"kind": "weather"}) + "\n"
    path.write_text(damaged + "".join(lines[2:3]) + "not a line\n" + unknown)

    known = runs.take()

    path.write_text("".join(lines[:3]))
    assert [(4, 0), (3, 1)] == [(batch.lines, batch.bad) for batch in known.batches]
    assert 2 == len(known.batches[-1].pieces)
    [aside] = [json.loads(line) for file in runs.out.glob("_bad/*/*.json") for line in file.open()]
    assert "not a line" == aside["text"] and str(path) in aside["path"]
    assert at_once(spark, tmp_path / "once", runs) == runs.answers()


def test_appended_lines_of_many_nodes(spark, tmp_path):
    """
    The logs of forty nodes may grow at once, and an invalid line is kept aside under the file it is from.
    """
    runs = Runs(spark, tmp_path)
    paths = [runs.write(0, f"mn {node}") for node in range(40)]
    whole = [path.read_text() for path in paths]
    for path, text in zip(paths, whole, strict=True):
        path.write_text(text.partition("\n")[0] + "\n")
    runs.take()
    for path, text in zip(paths, whole, strict=True):
        path.write_text(text + "not a line\n")

    [batch] = runs.take().batches

    assert (4 * 40, 40) == (batch.lines, batch.bad)
    aside = [json.loads(line)["path"] for file in runs.out.glob("_bad/*/*.json") for line in file.open()]
    assert {f"file:{path}" for path in paths} == set(aside)


def test_batches_of_a_day_that_is_over_become_one(spark, tmp_path):
    """
    Batches of a day become one when it is over; the answers stay as they were, and no other file is left.
    """
    runs = Runs(spark, tmp_path / "runs")
    for hour in (0, 1, 2, 24, 49, 72):
        runs.write(hour)
        runs.take()

    known = load((runs.out / CHECKPOINT).read_text())

    spans = [(batch.begin % 24, batch.end - batch.begin) for batch in known.batches]
    assert spans[0] in ((0, 2), (0, 3))
    for name in ("lines", "exchanges", "lives"):
        assert {batch.number for batch in known.batches} == set(runs.kept(name))
    assert at_once(spark, tmp_path / "once", runs) == runs.answers()


def test_keep_removes_whole_days_everywhere(spark, tmp_path):
    """
    Only the last days are kept: what is left is that of a run over these days alone.
    """
    runs, other = Runs(spark, tmp_path / "runs"), Runs(spark, tmp_path / "other")
    for hour in (0, 1, 24, 25, 48):
        runs.write(hour)
    runs.take()
    runs.write(49)
    for hour in (24, 25, 48, 49):
        other.write(hour)
    other.take()

    known = runs.take(keep=2)
    again = runs.take()

    assert other.answers() == runs.answers()
    assert known == again and 16 == sum(batch.lines for batch in known.batches)
    assert known.since == known.batches[0].begin
    days = {path.name for path in runs.out.glob("*/batch=*/**/date=*")}
    assert {"date=2026-08-01", "date=2026-08-02"} == days
    text = "".join(path.read_bytes().decode("latin1") for path in runs.out.glob("parts/*/batch=*/*"))
    assert "2026-07-31" not in text


def test_first_killed(spark, tmp_path):
    """
    So does a first run that could not read a file: the next goes on, it needs no --overwrite.
    """
    runs = Runs(spark, tmp_path)
    path = runs.write(0)
    whole = path.read_bytes()
    path.with_suffix(".jsonl.gz").write_bytes(gzip.compress(whole)[:-20])
    path.unlink()
    with pytest.raises(Exception, match="traffic-mn1"):
        runs.take()

    path.with_suffix(".jsonl.gz").write_bytes(gzip.compress(whole))

    assert 4 == runs.take().batches[0].lines


def test_unpacked(spark, tmp_path):
    """
    A compressed file says how long it was; one that is damaged says nothing.
    """
    path = tmp_path / "traffic-mn1-20260731T00.jsonl.gz"
    logs = LogFiles(spark, str(tmp_path))

    path.write_bytes(gzip.compress(bytes(70_000)))
    assert [70_000] == [logs.unpacked(file) for file in logs.logs()]

    path.write_bytes(b"\x1f\x8b")
    assert [-1] == [logs.unpacked(file) for file in logs.logs()]


class StubbornFiles(MortalFiles):
    """
    Does not rename a file to what is there already, as HDFS does not.
    """

    def _replaced(self, part, name):
        self.life.live()
        return not self._system.exists(name) and super()._replaced(part, name)

    def _remove(self, name):
        super()._remove(name)
        self.life.live()


def test_checkpoint_interrupted(spark, tmp_path):
    """
    There is a checkpoint, the old or the new, also if a run is killed where it must delete one for the other.
    """
    output = Output(spark, str(tmp_path))
    output.files = files = StubbornFiles(spark, str(tmp_path))
    files.life = Life(2)
    output.save(Checkpoint({}))
    files.life = Life(1)
    with pytest.raises(Killed):
        output.save(Checkpoint({}, next=7))

    assert not (tmp_path / CHECKPOINT).exists()
    assert 7 == Output(spark, str(tmp_path)).begin({}, False).next


def test_overwrite_interrupted(spark, tmp_path):
    """
    A run with --overwrite that is killed leaves nothing that a later one would go on from.
    """
    output = MortalOutput(spark, str(tmp_path), Life())
    (tmp_path / "lines/batch=1").mkdir(parents=True)
    output.save(Checkpoint({}))
    output.mortal_files.life.changes = 2
    with pytest.raises(Killed):
        output.begin({}, True)

    with pytest.raises(OutputRefused, match="--overwrite"):
        Output(spark, str(tmp_path)).begin({}, False)


def test_other_version(spark, tmp_path):
    """
    What another version of the tool wrote is no damage.
    """
    (tmp_path / CHECKPOINT).write_text('{"format": 9, "options": {}, "pages": []}')

    with pytest.raises(OutputRefused, match="another version of this tool"):
        Output(spark, str(tmp_path)).begin({}, False)


def test_tables_interrupted(spark, tmp_path):
    """
    Tables are there as they were before or as they are after, whenever a run is killed.
    """
    output = MortalOutput(spark, str(tmp_path), Life())
    output.save(Checkpoint({}))
    for name in ("tables", "_tables"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "from").write_text(name)
    seen = []

    for steps in range(5):
        output.mortal_files.life.changes = steps
        try:
            output.publish()
        except Killed:
            Output(spark, str(tmp_path)).begin({}, False)
            seen.append((tmp_path / "tables/from").read_text())
            if seen[-1] == "_tables":
                break

    assert ["tables", "tables", "tables", "_tables"] == seen


def test_order_of_files(spark, tmp_path):
    """
    A table is read in the order it was written in, also when its second file is larger.
    """
    several = spark.newSession()
    several.conf.set("spark.sql.shuffle.partitions", "2")
    rows = several.range(0, 100, 1, 2).selectExpr(
        "id", "if(id < 50, '', sha2(cast(id as string), 256)) as text"
    )

    found = Output(several, str(tmp_path)).write_tables({"numbers": rows})["numbers"].rows

    assert 2 == len(list((tmp_path / "_tables/numbers").glob("*.parquet")))
    assert [0, 1, 2] == [row.id for row in found.limit(3).collect()]
    assert [1, 3, 5] == [row.id for row in found.where("id % 2 = 1").limit(3).collect()]
