"""
Where the policies come from: a file or a directory of files.

The one authority of the configuration key `policy.source`; a repository is
read by backends/policy_repository.py, and `push` has no source at all.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from msgnode.policy.language.files import VECTORS

Documents = list[tuple[str, bytes]]  # what each is called, and what is in it


class SourceFailed(Exception):
    """
    The source gives nothing now; the text says which, and why.
    """


class Source(Protocol):
    """
    A place that policies come from.

    `name` is for people.
    """

    name: str

    def look(self) -> Deferred[Documents | None]:
        """
        What the source has; None if that is what it had at the last look.  Fails with SourceFailed.
        """

    def forget(self) -> None:
        """
        What it had at the last look was not taken: it is new at the next.
        """


class FileSource:
    """
    A JSON file, or every `*.json` in a directory in the order of their names.
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
        The same at once.
        """
        try:
            paths = self._files()
            if not paths:  # it is emptied, or not mounted: nothing is not permission
                self._seen = None
                raise SourceFailed(f"no *.json in {self._path}; a file with [] says that there are no rules")
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
        if self._path.is_dir():
            # A file whose name begins with a dot is an editor's, and vectors are no policies.
            names = sorted(path for path in self._path.glob("*.json") if path.name[0] != ".")
            found = [path for path in names if not path.name.endswith(VECTORS)]
        else:
            found = [self._path]
        return [(path, path.stat()) for path in found]
