"""
Lines of files as stored rows: Arrow and Spark store the two halves of one log.
"""

import json
from pathlib import Path

from pyspark.sql import SparkSession

from msgnode.mining.pipeline.run import MiningRun, Options

TIME = 495_984 * 3600 * 10**9  # 2026-08-01T00
LINE = '{"v":1,"kind":"message","time":%d,"node":"mn1","outcome":"delivered","id":%s}\n'
NO_JSON = "not JSON of the log"


def test_odd_lines_are_stored_beside_those_that_arrow_reads(spark: SparkSession, tmp_path: Path) -> None:
    """
    A line with an id that no node writes is a row, and invalid lines have their file, whoever read them; also
    in a directory whose name means something in URIs.
    """
    logs, out = tmp_path / "a b%20é", tmp_path / "c d%20é"
    logs.mkdir()
    path = logs / "traffic-mn1-20260801T00.jsonl"
    invalid = ["no line", LINE[:20], '{"v":2}', '{"v":1.5}']  # the last one is for Spark
    texts = [LINE % (TIME, "7"), LINE % (TIME + 1, "1.5"), LINE % (TIME + 2, '"x"')]
    texts.append(LINE.replace("message", "bad") % (TIME + 3, "1.5"))  # of a kind that is not known
    path.write_text("\ufeff" + "".join(texts) + "\n".join(invalid))
    result = MiningRun(spark, Options(str(logs), str(out)), lambda _: None).run()
    assert (result.lines, result.bad) == (3, 4)
    ids = spark.read.parquet(str(out / "lines")).where("kind = 'message'").select("id").collect()
    assert sorted(row.id for row in ids) == ["1.5", "7", "x"]
    told = [json.loads(text) for file in out.glob("_bad/*/*.json") for text in file.read_text().splitlines()]
    assert {row["path"] for row in told} == {f"file:{path}"}
    reasons = dict(zip(invalid, (NO_JSON, NO_JSON, "version 2", NO_JSON), strict=True))
    assert {row["text"]: row["why"] for row in told} == reasons
    assert not (out / "_tails").exists()
