"""
Retention of the traffic log: what is compressed, what is deleted, and what a kill leaves.
"""

import gzip
import os
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock

from msgnode.config.schema import StorageOptions
from msgnode.storage.traffic_retention import FIRST_SECONDS, Retention, TrafficRetention, pack

PREFIX = "traffic-n1-"
NOON = 20 * 24 + 12  # of 1970-01-21, in hours


def file(directory: Path, stamp: str, text: bytes = b"{}\n", end: str = "") -> Path:
    path = directory / f"{PREFIX}{stamp}.jsonl{end}"
    path.write_bytes(gzip.compress(text) if end == ".gz" else text)
    return path


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_past_hours_are_compressed_and_old_days_deleted(tmp_path: Path) -> None:
    """
    Files of past hours are compressed, old ones deleted; the last two hours and files of others stay.
    """
    file(tmp_path, "19700121T12")
    file(tmp_path, "19700121T11")
    past = file(tmp_path, "19700121T10", b'{"a":1}\n' * 1000)
    past.chmod(0o640)
    os.utime(past, (5, 5))
    file(tmp_path, "19700118T11", end=".gz")
    file(tmp_path, "19700118T12", end=".gz")
    other = tmp_path / "traffic-n10-19700101T00.jsonl"
    other.write_text("")

    assert (1, 1) == Retention(tmp_path, PREFIX).tidy(NOON, 3, True)

    assert [
        f"{PREFIX}19700118T12.jsonl.gz",
        f"{PREFIX}19700121T10.jsonl.gz",
        f"{PREFIX}19700121T11.jsonl",
        f"{PREFIX}19700121T12.jsonl",
        other.name,
    ] == names(tmp_path)
    packed = tmp_path / f"{PREFIX}19700121T10.jsonl.gz"
    assert b'{"a":1}\n' * 1000 == gzip.decompress(packed.read_bytes())
    assert (0o640, 5.0) == (packed.stat().st_mode & 0o777, packed.stat().st_mtime)


def test_nothing_is_done_unless_asked(tmp_path: Path) -> None:
    """
    With 0 days and without compression all files stay; a missing directory is no error.
    """
    file(tmp_path, "19700101T00")

    assert (0, 0) == Retention(tmp_path, PREFIX).tidy(NOON, 0, False)
    assert 1 == len(names(tmp_path))
    assert (0, 0) == Retention(tmp_path / "none", PREFIX).tidy(NOON, 1, True)


@pytest.mark.parametrize("packed", [b"a\nb\nc\n", b"c\n"])
def test_kill_before_the_plain_file_is_deleted_doubles_nothing(tmp_path: Path, packed: bytes) -> None:
    """
    If the compressed file has all lines already, the plain one is deleted, and no line is there twice.
    """
    plain = file(tmp_path, "19700121T10", b"c\n")
    gz = file(tmp_path, "19700121T10", packed, ".gz")

    pack(plain)

    assert packed == gzip.decompress(gz.read_bytes()) and not plain.exists()


def test_late_lines_are_appended(tmp_path: Path) -> None:
    """
    Lines that came after the file was compressed are appended to it.
    """
    plain = file(tmp_path, "19700121T10", b"late\n")
    gz = file(tmp_path, "19700121T10", b"early\n", ".gz")

    pack(plain)

    assert b"early\nlate\n" == gzip.decompress(gz.read_bytes()) and not plain.exists()


def test_torn_parts_are_removed_and_torn_files_replaced(tmp_path: Path) -> None:
    """
    What a killed run left is removed; a compressed file that is cut off does not hide the plain one.
    """
    file(tmp_path, "19700121T09", b"torn", ".gz.part")
    plain = file(tmp_path, "19700121T10", b"x\n" * 100)
    gz = plain.with_name(plain.name + ".gz")
    gz.write_bytes(b"")

    Retention(tmp_path, PREFIX).tidy(NOON, 0, True)

    assert [gz.name] == names(tmp_path)
    assert b"x\n" * 100 == gzip.decompress(gz.read_bytes())


def test_service_looks_each_quarter_of_an_hour(tmp_path: Path) -> None:
    """
    The service looks soon after the start and each quarter of an hour; keys that a reload changed count, and
    a full disk does not end it.
    """
    clock, options = Clock(), StorageOptions()
    asked: list[Any] = []

    def run(tidy: Any, *arguments: Any) -> Any:
        asked.append(arguments)
        return maybeDeferred(failing if len(asked) == 1 else tidy, *arguments)

    def failing(*arguments: Any) -> Any:
        raise OSError(28, "No space left on device")

    service = TrafficRetention(Retention(tmp_path, PREFIX), options, clock, run, lambda: NOON * 3600.0)
    service.startService()
    clock.advance(FIRST_SECONDS)
    options.traffic_keep_days = 7
    clock.pump([900, 900])
    service.stopService()
    clock.advance(900)

    assert [(NOON, 7, False)] * 2 == asked
