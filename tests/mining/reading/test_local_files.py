"""
Files that are read without Spark: every line is a row, or in the copy with odd lines.
"""

import gzip
import json
import os
import resource
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from msgnode.mining.reading.local_files import MAX_CHUNK_BYTES, LeftToSpark, LocalFiles, Places, Stored
from msgnode.mining.reading.log_files import LogFile

NAME = "traffic-mn1-20260801T00.jsonl"
TIME = 495_984 * 3600 * 10**9  # 2026-08-01T00


def line(id: int) -> bytes:
    event = {"v": 1, "kind": "session", "time": TIME + id, "node": "mn1", "session": "s", "event": "attached"}
    return json.dumps(event | {"id": id, "peer": "x" * (id % 7)}, separators=(",", ":")).encode() + b"\n"


ODD = b'{"v":1.0}\n'  # for Spark to decide
LINES = [b"not a line\n" if id % 50 == 3 else ODD if id % 50 == 7 else line(id) for id in range(100)]
GOOD = [id for id in range(100) if id % 50 not in (3, 7)]


def places(directory: Path) -> Places:
    return Places(directory / "out", directory / "bad", directory / "odd")


def store(
    path: Path, first: int = 0, threads: int = 2, range_bytes: int = 2**26, chunk: int = 2**22
) -> Stored:
    file = LogFile(path.name, f"file:{path}", path.stat().st_size)
    return LocalFiles(places(path.parent), ("time",), threads, range_bytes, chunk).store([(file, first)])


def ids(directory: Path) -> list[int]:
    found = (directory / "out/kind=session/date=2026-08-01").glob("*.parquet")
    return sorted(
        [int(id) for path in found for id in pq.read_table(path, partitioning=None)["id"].to_pylist()]
    )


@pytest.mark.parametrize("range_bytes", [1, 100, 999, 2**26])
@pytest.mark.parametrize("chunk", [1, 150, 4096])
def test_every_line_is_read_once(tmp_path: Path, range_bytes: int, chunk: int) -> None:
    """
    Whatever the ranges for threads and the chunks, each line is a row, or set aside, or left to Spark.
    """
    path = tmp_path / NAME
    path.write_bytes(b"".join(LINES).rstrip())  # also the last one, without its break
    stored = store(path, range_bytes=range_bytes, chunk=chunk)
    (copy,) = stored.odd.values()
    assert copy.read_bytes() == 2 * ODD
    assert ids(tmp_path) == GOOD
    assert (stored.lines, stored.bad) == (len(GOOD), 2)
    told = [json.loads(text) for text in (tmp_path / "bad/part-00000.json").read_text().splitlines()]
    assert told == 2 * [{"path": f"file:{path}", "why": "not JSON of the log", "text": "not a line"}]


def test_only_what_was_appended_is_read(tmp_path: Path) -> None:
    """
    A file is read from the byte that is given.
    """
    path = tmp_path / NAME
    path.write_bytes(line(1) + line(2) + line(3))
    assert store(path, first=len(line(1)), range_bytes=10).lines == 2
    assert ids(tmp_path) == [2, 3]


def test_a_compressed_file_is_read(tmp_path: Path) -> None:
    """
    A gzip file is read whole, and the copy with its odd lines is not compressed.
    """
    path = tmp_path / f"{NAME}.gz"
    path.write_bytes(gzip.compress(b"".join(LINES[:3])) + gzip.compress(b"".join(LINES[3:])))
    stored = store(path, chunk=500)
    (copy,) = stored.odd.values()
    assert copy.name == NAME
    assert (stored.lines, stored.bad, copy.read_bytes()) == (len(GOOD), 2, 2 * ODD)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_file_that_cannot_be_read_is_left_to_spark(tmp_path: Path, threads: int) -> None:
    """
    A file that is cut, not compressed, or gone, and one with an endless line.
    """
    packed = tmp_path / f"{NAME}.gz"
    for content in (gzip.compress(b"".join(LINES))[:-9], b"plain\n"):
        packed.write_bytes(content)
        with pytest.raises(LeftToSpark):
            store(packed, threads=threads)
    plain = tmp_path / NAME
    plain.write_bytes(line(1) + b"x" * (2 * MAX_CHUNK_BYTES))
    with pytest.raises(LeftToSpark):
        store(plain, threads=threads, range_bytes=2**23)
    gone = LogFile(NAME, f"file:{tmp_path}/gone/{NAME}", 5)
    with pytest.raises(LeftToSpark):
        LocalFiles(places(tmp_path), (), threads).store([(gone, 0)])


def test_lines_of_several_days_are_apart(tmp_path: Path) -> None:
    """
    Each day has its directory, as each kind has.
    """
    message = {"v": 1, "kind": "message", "time": TIME - 1, "node": "mn1", "outcome": "delivered"}
    before = tmp_path / "traffic-mn1-20260731T23.jsonl"
    before.write_text(json.dumps(message) + "\n")
    now = tmp_path / NAME
    now.write_bytes(line(1))
    files = [(LogFile(path.name, str(path), path.stat().st_size), 0) for path in (before, now)]
    assert LocalFiles(places(tmp_path), (), 1).store(files).lines == 2
    found = [path.parent.relative_to(tmp_path / "out") for path in tmp_path.glob("out/*/*/*.parquet")]
    assert sorted(map(str, found)) == ["kind=message/date=2026-07-31", "kind=session/date=2026-08-01"]


def test_a_year_of_files_needs_few_open_files(tmp_path: Path) -> None:
    """
    A file with an odd line for each of many days is read by a process that may open few files.
    """
    files = []
    for day in range(200):
        path = tmp_path / f"traffic-mn1-{time.strftime('%Y%m%dT%H', time.gmtime(day * 86400))}.jsonl"
        path.write_bytes(line(1).replace(str(TIME + 1).encode(), str(day * 86400 * 10**9).encode()) + ODD)
        files.append((LogFile(path.name, str(path), path.stat().st_size), 0))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 60, hard))
    try:
        stored = LocalFiles(places(tmp_path), (), 3).store(files)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (stored.lines, len(stored.odd)) == (200, 200)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """
    What has the name of a log file, and is none, is left to Spark; an empty file has no lines.
    """
    os.mkfifo(tmp_path / NAME)
    with pytest.raises(LeftToSpark, match="is no file"):
        LocalFiles(places(tmp_path), (), 2).store([(LogFile(NAME, f"{tmp_path}/{NAME}", 5), 0)])
    assert LocalFiles(places(tmp_path), (), 2).store([(LogFile(f"{NAME}.gz", "/gone", 0), 0)]).lines == 0


def test_chunks_are_written_together(tmp_path: Path) -> None:
    """
    The rows of many chunks are one row group.
    """
    path = tmp_path / NAME
    path.write_bytes(b"".join(line(id) for id in range(500)))
    assert store(path, threads=1, chunk=100).lines == 500
    (written,) = tmp_path.glob("out/*/*/*.parquet")
    assert pq.ParquetFile(written).num_row_groups == 1
