"""
Policy sources: the Protocol, and a file or a directory of files.

The key `policy.source` selects one. backends/policy_repository.py reads a repository; with `push` there is no
source.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from msgnode.policy.language.files import policy_paths

Documents = list[tuple[str, bytes]]  # the name and the content of each


class SourceFailed(Exception):
    """
    The source has no usable document now. The text says which, and why.
    """


class Source(Protocol):
    """
    A place that policies come from. `name` is for people.
    """

    name: str

    def look(self) -> Deferred[Documents | None]:
        """
        The documents; None if they have not changed since the last call. Fails with SourceFailed.
        """

    def forget(self) -> None:
        """
        The last documents were not activated: the next call returns them again.
        """


class FileSource:
    """
    A source that reads a JSON file, or all `*.json` files of a directory in the order of their names.
    """

    def __init__(self, path: str, run: Callable[..., Deferred[Any]]) -> None:
        self.name = path
        self._path = Path(path)
        self._run = run
        self._seen: object = None

    def look(self) -> Deferred[Documents | None]:
        return self._run(self.read)

    def read(self) -> Documents | None:
        """
        The same, synchronously.
        """
        try:
            paths = self._files()
            if not paths:  # emptied or not mounted: that must not permit everything
                self._seen = None
                raise SourceFailed(f"no *.json in {self._path}; a file with [] means that there are no rules")
            seen = [(path, status.st_mtime_ns, status.st_size, status.st_ino) for path, status in paths]
            if seen == self._seen:
                return None
            documents = [(str(path), path.read_bytes()) for path, _ in paths]
        except OSError as why:
            self._seen = None
            raise SourceFailed(f"{why.filename or self._path}: cannot be read: {why.strerror}") from why
        self._seen = seen
        return documents

    def forget(self) -> None:
        self._seen = None

    def _files(self) -> list[tuple[Path, Any]]:
        return [(path, path.stat()) for path in policy_paths(self._path)]
