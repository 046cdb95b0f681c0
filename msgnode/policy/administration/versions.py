"""
The stored versions of the policies, numbered. The newest is the last good one.

Each is a file in `<state>/policy`, written before its policies are live.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct


class Version(Struct, frozen=True):
    """
    A version of the policies that was activated.

    `files` are names and texts, `revision` is a hash of the content, `origin` the source or user, `time` the
    seconds since 1970.
    """

    number: int
    revision: str
    origin: str
    time: float
    files: tuple[tuple[str, str], ...]

    def summary(self) -> dict[str, object]:
        return {
            "number": self.number,
            "revision": self.revision,
            "origin": self.origin,
            "time": self.time,
            "bytes": sum(len(text) for _, text in self.files),
        }


class Versions:
    """
    The last `most` versions, oldest first. If `directory` is None, they are in memory only.
    """

    def __init__(self, directory: Path | None, most: int) -> None:
        self._directory = directory
        self._most = most
        self._known: list[Version] = []
        self.damaged: list[str] = []  # files that cannot be read
        self.broken = ""  # the file of the newest number, if it cannot be read

    def __iter__(self) -> Iterator[Version]:
        return iter(self._known)

    @property
    def newest(self) -> Version | None:
        return self._known[-1] if self._known else None

    def get(self, number: int) -> Version | None:
        return next((version for version in self._known if version.number == number), None)

    def open(self) -> None:
        """
        Read the stored versions. Unreadable files are named in `damaged`, and left alone.
        """
        if self._directory is None or not self._directory.is_dir():
            return
        numbers: list[tuple[int, str]] = []
        for path in sorted(self._directory.glob("*.json")):
            broken = ""
            try:
                self._known.append(msgspec.json.decode(path.read_bytes(), type=Version))
            except (OSError, msgspec.DecodeError) as why:
                self.damaged.append(f"{path}: {why}")
                broken = str(path)
            numbers.append((_number(path), broken))
        self.broken = max(numbers, default=(0, ""))[1]
        self._known.sort(key=lambda version: version.number)

    def next(self) -> int:
        """
        A number above those of all versions, readable or not.
        """
        last = self._known[-1].number if self._known else 0
        if self._directory is not None and self._directory.is_dir():
            last = max([last, *map(_number, self._directory.glob("*.json"))])
        return last + 1

    def write(self, version: Version) -> None:
        """
        Write a version to disk; OSError if that fails. May be called in a thread.
        """
        if self._directory is None:
            return
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._directory / f"{version.number:06}.json"
        half = path.with_suffix(".new")
        file = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "wb") as made:
            made.write(msgspec.json.encode(version))
            made.flush()
            os.fsync(made.fileno())
        half.replace(path)

    def add(self, version: Version) -> list[Version]:
        """
        Add the version that is live now. Returns the versions beyond `most`.
        """
        self._known.append(version)
        gone, self._known = self._known[: -self._most], self._known[-self._most :]
        return gone

    def remove(self, gone: list[Version]) -> None:
        """
        Delete versions from disk.
        """
        for version in gone:
            if self._directory is not None:
                (self._directory / f"{version.number:06}.json").unlink(missing_ok=True)


def _number(path: Path) -> int:
    found = re.match(r"\d+", path.name)
    return int(found[0]) if found else 0
