"""
Queries of Parquet files by DuckDB.
"""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from msgnode.mining.local.query import AtHand, NotAnswered, StoredFiles, StoredRows, answers, store
from tests.mining.engines import read

TYPES = {"n": "bigint", "word": "string", "day": "string"}


def stored(path: Path, **columns: list[object]) -> StoredFiles:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return StoredFiles([path], {"day": "2026-07-31"})


def rows(place: Path, query: str, *parts: StoredFiles) -> list[dict[str, object]]:
    found: list[dict[str, object]] = read(query, {"rows": StoredRows(TYPES, parts)}, place).to_pylist()
    return found


def test_column_that_an_older_file_lacks_is_null(tmp_path: Path) -> None:
    """
    A column that an older file lacks is null, also if all lack it, and other columns are ignored.
    """
    older, newer = stored(tmp_path / "1", n=[1]), stored(tmp_path / "2", n=[2], word=["a"], other=[True])

    assert [{"n": 1, "word": None, "day": "2026-07-31"}] == rows(tmp_path, "SELECT * FROM rows", older)
    assert [(1, None), (2, "a")] == [
        (row["n"], row["word"]) for row in rows(tmp_path, "SELECT * FROM rows ORDER BY n", older, newer)
    ]


def test_no_files_are_no_rows(tmp_path: Path) -> None:
    """
    Without files there are no rows, and the types are known.
    """
    assert [] == rows(tmp_path, "SELECT n + 1, word || '' FROM rows")


def test_directory_may_have_any_name(tmp_path: Path) -> None:
    """
    The name of a directory may have quotes, characters of a pattern, and the form of a partition.
    """
    directory = tmp_path / "day=it's [ab]*? {x}"
    part = stored(directory / "1.parquet", n=[1])
    stored(tmp_path / "day=it's a {x}" / "1.parquet", n=[2])
    store("SELECT * FROM rows", {"rows": StoredRows(TYPES, [part])}, directory / "out", ["day"], tmp_path, 1)

    assert [{"n": 1, "word": None, "day": "2026-07-31"}] == rows(tmp_path, "SELECT * FROM rows", part)
    [written] = (directory / "out" / "day=2026-07-31").iterdir()
    assert [1] == pq.ParquetFile(written).read()["n"].to_pylist()


def test_query_without_rows_leaves_an_empty_directory(tmp_path: Path) -> None:
    """
    A query without rows leaves a directory without files.
    """
    store("SELECT * FROM rows", {"rows": StoredRows(TYPES, [])}, tmp_path / "out", ["day"], tmp_path, 1)

    assert [] == list((tmp_path / "out").iterdir())


def test_backslash_in_a_path_is_left_to_spark(tmp_path: Path) -> None:
    """
    DuckDB takes a backslash for a slash: nothing is written to such a path, nor beside it.
    """
    (tmp_path / "a" / "b").mkdir(parents=True)

    with pytest.raises(NotAnswered, match="backslash"):
        store("SELECT * FROM rows", {"rows": StoredRows(TYPES, [])}, tmp_path / "a\\b", ["day"], tmp_path, 1)

    assert [] == list((tmp_path / "a" / "b").iterdir())


def test_file_that_cannot_be_read_is_left_to_spark(tmp_path: Path) -> None:
    """
    A file that is no Parquet is left to Spark, with DuckDB's sentence.
    """
    part = stored(tmp_path / "1.parquet", n=[1])
    part.files[0].write_bytes(b"no Parquet")

    with pytest.raises(NotAnswered, match=r"1\.parquet"):
        rows(tmp_path, "SELECT * FROM rows", part)


def test_signal_ends_a_query(tmp_path: Path) -> None:
    """
    Ctrl-C ends a query, and is no answer of DuckDB.
    """
    query = "SELECT 1 FROM range(10_000_000_000) AS many(i) WHERE md5(i::VARCHAR) = 'a'"
    code = (
        "import os, signal, threading\n"
        "from pathlib import Path\n"
        "from msgnode.mining.local.query import AtHand, answers\n"
        "threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "try:\n"
        f"    answers({{'one': {query!r}}}, {{}}, {{}}, Path, Path({str(tmp_path)!r}), 1, AtHand(1, 1), 0)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert ("interrupted\n", "") == (done.stdout, done.stderr)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small file system")
def test_full_disk_is_an_error_of_the_system(tmp_path: Path) -> None:
    """
    A full disk is an error of the operating system, not of the query.
    """
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", small], check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        query = "SELECT hash(n) AS n, md5(n::VARCHAR) AS word, 'a' AS day FROM range(100000) AS many(n)"
        with pytest.raises(OSError, match="No space left"):
            store(query, {}, small / "out", ["day"], tmp_path, 1)
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.parametrize("number", [5, 5_000_000])
def test_failure_of_a_query_is_left_to_spark_however_late(tmp_path: Path, number: int) -> None:
    """
    A query that fails is left to Spark, also if it has given rows before.
    """
    query = (
        f"SELECT CASE WHEN i = {number} THEN error('too much') ELSE i END FROM range(10_000_000) AS many(i)"
    )

    with pytest.raises(NotAnswered, match="too much"):
        read(query, {}, tmp_path)


def test_many_rows_are_in_a_file(tmp_path: Path) -> None:
    """
    An answer with more rows than asked for is a file, and is complete.
    """
    found = read("SELECT i FROM range(300_000) AS many(i)", {}, tmp_path, AtHand(299_999, 2**30))

    assert (tmp_path / "one").is_file()
    assert list(range(300_000)) == sorted(found["i"].to_pylist())


def test_as_many_rows_as_asked_for_make_no_file(tmp_path: Path) -> None:
    """
    An answer with just as many rows as asked for is at hand.
    """
    found = read("SELECT i FROM range(300_000) AS many(i)", {}, tmp_path, AtHand(300_000, 2**30))

    assert not (tmp_path / "one").exists()
    assert 300_000 == found.num_rows


def test_answers_with_long_texts_are_in_files(tmp_path: Path) -> None:
    """
    Answers are at hand while all of them together have few bytes; another small one still is.
    """
    long = "SELECT repeat('a', 1000) AS text FROM range(100)"
    queries = {"one": long, "two": long, "short": "SELECT 1"}

    found = answers(queries, {}, {}, tmp_path.joinpath, tmp_path, 1, AtHand(1000, 150_000), False)

    assert {"one": False, "two": True, "short": False} == {
        name: isinstance(answer, Path) for name, answer in found.items()
    }
