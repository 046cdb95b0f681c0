"""
A watch over files that other programs renew: certificates, keys, authorities and revocation lists.
"""

import os
from collections.abc import Iterable

Stamp = tuple[int, int, int] | None


class FileWatch:
    """
    The state of files when they were looked at last. A file that is missing has a state, too.
    """

    def __init__(self) -> None:
        self._seen: dict[str, Stamp] = {}

    def has_changed(self, paths: Iterable[str]) -> bool:
        """
        Has any of the files changed since the last call, or is one of them new among the paths?
        """
        now = {path: _stamp(path) for path in paths}
        before, self._seen = self._seen, now
        return before != now

    def follow(self, paths: Iterable[str]) -> None:
        """
        Look at other files from now on. What has changed in those that stay is found at the next call.
        """
        self._seen = {path: self._seen[path] if path in self._seen else _stamp(path) for path in paths}


def _stamp(path: str) -> Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
