"""
The files of stored rows.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from msgnode.mining.local.query import NotAnswered
from msgnode.mining.local.rows import local_rows
from tests.mining.engines import read
from tests.mining.rows import FIRST

SCHEMA = StructType(
    [
        StructField("n", LongType()),
        StructField("tags", ArrayType(StringType())),
        StructField("verdict", StructType([StructField("effect", StringType())])),
        StructField("kind", StringType()),
        StructField("date", StringType()),
        StructField("batch", LongType()),
    ]
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for n, name in enumerate(
        (
            "batch=1/kind=message/date=2026-07-30/part.parquet",
            "batch=1/kind=message/date=2026-07-31/part.parquet",
            "batch=1/kind=session/date=2026-07-31/part.parquet",
            "batch=1/kind=message/date=2026-07-31/_part.parquet",
            "batch=2/kind=message/date=2026-07-31/part.parquet",
        )
    ):
        path = tmp_path / "lines" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"n": [n], "tags": [["a"]], "verdict": [{"effect": "deny"}]}), path)
    return tmp_path / "lines"


def numbers(place: Path, pieces: list[int], since: int = 0, **values: str) -> list[int]:
    rows = local_rows(place, pieces, SCHEMA, since, **values)
    return [row["n"] for row in read("SELECT n FROM lines ORDER BY n", {"lines": rows}, place).to_pylist()]


def test_rows_are_of_these_batches_kinds_and_days(place: Path) -> None:
    """
    Only the batches and kinds that are asked for are read, and only days that are kept.
    """
    assert [0, 1, 2, 4] == numbers(place, [1, 2])
    assert [0, 1] == numbers(place, [1], kind="message")
    assert [1, 2, 4] == numbers(place, [1, 2], since=FIRST)


def test_directories_give_columns(place: Path) -> None:
    """
    What the names of directories say are columns of their types, beside lists and structs.
    """
    rows = local_rows(place, [2], SCHEMA, 0)

    found = {"n": 4, "tags": ["a"], "verdict": {"effect": "deny"}}
    assert [found | {"kind": "message", "date": "2026-07-31", "batch": 2}] == read(
        "SELECT * FROM lines", {"lines": rows}, place
    ).to_pylist()


def test_batch_that_is_missing_is_no_batch_without_rows(place: Path) -> None:
    """
    A directory that cannot be listed is not one without rows.
    """
    with pytest.raises(NotAnswered, match="batch=3"):
        numbers(place, [1, 3])
