"""
Lines are appended to the file of their hour, and what did not fit is known to the line.
"""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from msgnode.storage.hourly_files import HourlyFiles, PartialWrite

FIRST, SECOND = "log-19700101T01.jsonl", "log-19700101T02.jsonl"


@contextmanager
def file_size_limit(most: int) -> Iterator[None]:
    """
    No file of this process grows beyond so many bytes.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_file_for_each_hour(tmp_path: Path) -> None:
    """
    Each batch is at the end of its hour's file.
    """
    files = HourlyFiles(tmp_path, "log-")

    files.append([(1, b"a\nb\n"), (2, b"c\n")])
    files.append([(2, b"d\n")])
    files.close()

    assert (tmp_path / FIRST).read_bytes() == b"a\nb\n"
    assert (tmp_path / SECOND).read_bytes() == b"c\nd\n"


def test_batch_beyond_the_limit(tmp_path: Path) -> None:
    """
    A batch that makes a file too long is not written; the lines of those before it are saved.
    """
    files = HourlyFiles(tmp_path, "log-", lambda: 5)

    with pytest.raises(PartialWrite, match="more than 5 bytes in one hour") as failed:
        files.append([(1, b"a\nb\n"), (2, b"long line\n"), (2, b"c\n")])

    assert failed.value.saved == 2
    assert (tmp_path / SECOND).read_bytes() == b""


def test_half_a_batch(tmp_path: Path) -> None:
    """
    Of a batch that the disk took in part its whole lines are saved; the torn one is ended before the next.
    """
    files = HourlyFiles(tmp_path, "log-")

    with file_size_limit(7), pytest.raises(PartialWrite, match="too large") as failed:
        files.append([(1, b"a\nb\n"), (2, b"cc\ndd\nee\n")])
    files.append([(2, b"f\n")])
    files.close()

    assert failed.value.saved == 4
    assert (tmp_path / SECOND).read_bytes() == b"cc\ndd\ne\nf\n"
