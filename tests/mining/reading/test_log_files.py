"""
The files of the log, and copies of what was appended to them.
"""

from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from msgnode.mining.reading.log_files import LogFile, LogFiles, first_line

NAME = "traffic-mn1-20260731T00.jsonl"


@pytest.mark.parametrize(("begin", "size"), [(0, 6), (3, 6), (0, 0), (6, 6)])
def test_copy_ends_where_the_file_ended_when_it_was_listed(spark, tmp_path, begin, size):
    """
    A copy has the bytes from where it begins to the size that was listed, though the file has grown since.
    """
    path = tmp_path / NAME
    path.write_bytes(b"a\nb\nc\nd\n")

    copied = LogFiles(spark, str(tmp_path)).copy(LogFile(NAME, str(path), size), begin, "copies/1")

    assert b"a\nb\nc\nd\n"[begin:size] == (tmp_path / "copies/1").read_bytes()
    assert copied.endswith("copies/1")


class JavaFailure(Exception):
    """
    An exception of PySpark's, with the one of Java.
    """

    java_exception: SimpleNamespace


@pytest.mark.parametrize(
    "kind, text, said",
    [
        ("FSError", "java.io.IOException: No space left on device", "no space left on the device"),
        ("ConnectException", "Call From a to b failed", "nobody answers there: connection refused"),
        ("FileNotFoundException", "File x does not exist", "no such file or directory"),
        ("OddException", "in words\n\tat java.base", "OddException: in words"),
    ],
)
def test_errors_of_java_are_told_in_words(kind, text, said):
    """
    What often happens has a sentence of ours; the rest its first line, without the trace.
    """
    why = JavaFailure("a call")
    why.java_exception = SimpleNamespace(
        getMessage=lambda: text, getClass=lambda: SimpleNamespace(getSimpleName=lambda: kind)
    )

    assert said == first_line(why)
