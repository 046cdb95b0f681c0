"""
Delta tables: the same rows as in Parquet, also if a run is killed, in the versions of the checkpoint.
"""

import importlib.util

import pytest
from pyspark.sql.types import StructType
from synthetic.plan import generate

from msgnode.mining.mined.directory import MinedDirectory
from msgnode.mining.pipeline.batches import Batches
from msgnode.mining.pipeline.delta import settings
from msgnode.mining.pipeline.ingest import Ingest
from msgnode.mining.pipeline.output import Output, OutputRefused
from msgnode.mining.reading.log_files import LogFiles, Unreadable

LINES = 200


class Killed(Exception):
    """
    The end of a run.
    """


def nothing(said):
    pass


def killed_at(text):
    """
    A progress report that ends the run at the step with this text.
    """

    def say(said):
        if said.startswith(text):
            raise Killed

    return say


def ingest(spark, logs, out, format, say=nothing):
    """
    Read and store the log, as a run does before its analyses. Returns the checkpoint.
    """
    output = Output(spark, str(out))
    batches = Batches(spark, output, (), (), StructType([]), say)
    checkpoint = output.begin({"format": format}, overwrite=False)
    return Ingest(output, batches).take(checkpoint, LogFiles(spark, str(logs)).logs(), lambda file: -1)[0]


def stored(spark, out):
    """
    The stored rows of a directory, sorted.
    """
    views = MinedDirectory(spark, str(out)).views()
    answers = [views.select(f"SELECT * FROM {name}", 0) for name in ("lines", "exchanges", "lives")]
    return [
        sorted(repr(sorted(zip(names, row, strict=True))) for row in answer.rows)
        for answer in answers
        if (names := [name for name, _ in answer.columns])
    ]


def history(spark, out, name):
    """
    How many versions a table has.
    """
    return len(list((out / name / "_delta_log").glob("*.json")))


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    """
    A log that was stored as Parquet, and as Delta by a run that was killed twice; and the last checkpoint.
    """
    pytest.importorskip("delta")
    directory = tmp_path_factory.mktemp("delta")
    generate(directory / "logs", LINES, 3, 1, 1, hours=1)
    ingest(spark, directory / "logs", directory / "parquet", "")
    for stage in ("pairing", "following"):
        with pytest.raises(Killed):
            ingest(spark, directory / "logs", directory / "out", "delta", killed_at(stage))
        assert 1 == history(spark, directory / "out", "lines")
    return directory, ingest(spark, directory / "logs", directory / "out", "delta")


def test_repeated_batch_writes_nothing(spark, lake):
    """
    A run that was killed after a write is repeated: that batch is not written again, and the rows are those
    of a run to Parquet.
    """
    directory, checkpoint = lake

    [batch] = checkpoint.batches
    assert (LINES, 4) == (batch.lines, batch.bad)
    assert [1, 1, 1] == [history(spark, directory / "out", name) for name in ("lines", "exchanges", "lives")]
    assert stored(spark, directory / "parquet") == stored(spark, directory / "out")
    texts = [path.read_text() for path in (directory / "out/_bad").rglob("*.json")]
    assert 4 == len("".join(texts).splitlines())


def test_reader_sees_the_versions_of_the_checkpoint(spark, lake):
    """
    What is written to a table after the checkpoint does not count for a reader; another format is refused.
    """
    directory, checkpoint = lake
    out = directory / "out"
    assert {"lines": 0, "exchanges": 0, "lives": 0} == checkpoint.versions
    before = stored(spark, out)

    rows = spark.read.format("delta").load(f"{out}/lines").limit(1)
    rows.write.format("delta").mode("append").save(f"{out}/lines")

    assert before == stored(spark, out)
    with pytest.raises(OutputRefused, match="in another format; use --overwrite"):
        ingest(spark, directory / "logs", out, "")


def test_missing_packages_are_one_sentence():
    """
    Without the packages of Delta, or with another Spark, it says what to install.
    """
    if importlib.util.find_spec("delta") is None:
        with pytest.raises(Unreadable, match=r"pip install 'msgnode\[delta\]'"):
            settings([])
    else:
        both = dict(text.partition("=")[::2] for text in settings(["spark.jars.packages=a:b:1"]))
        assert both["spark.jars.packages"].startswith("a:b:1,io.delta:delta-spark_4.2_2.13:")
        assert "spark.jars.packages" not in " ".join(
            settings(["spark.jars=/x/delta-spark_4.2_2.13-4.4.0.jar"])
        )
