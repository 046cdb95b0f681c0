"""
An archive of the classes that Java loads for a run, which spares later runs most of that work.

It is Java's class data sharing (JEP 350): https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html
"""

import os
import stat
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from msgnode.mining.reading.log_files import Unreadable

DUMP_SECONDS = 300  # for Java to end, when it writes the archive
_PREFIX = "mine-"
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


class ClassArchive:
    """
    An archive in a directory, for one Java and these jars. If there is none, the run makes it.
    """

    def __init__(self, directory: str, java: str, jars: Iterable[Path]) -> None:
        self._directory = _usable(directory)
        known = [java, *(f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars)]
        digest = sha256("\n".join(known).encode()).hexdigest()
        name = f"{_PREFIX}{digest[:16]}.jsa"
        self._path = self._directory / name
        self._made = self._directory / f"{name}.{os.getpid()}"
        self.is_there = self._path.is_file()
        if self.is_there:
            _check(self._path, self._path.stat())

    @property
    def java_options(self) -> str:
        """
        The options of Java that use the archive, or make it. Java ignores an archive that it cannot use, and
        does not list the classes that it leaves out.
        """
        option = "SharedArchiveFile" if self.is_there else "ArchiveClassesAtExit"
        path = str(self._path if self.is_there else self._made)
        for char in ("\\", '"'):
            path = path.replace(char, f"\\{char}")
        return f'"-XX:{option}={path}" -Xlog:cds*=off'

    def keep(self, process: Any, is_complete: bool) -> None:
        """
        Let the process of Java end, and keep the archive that it made, in place of others; not of a run that
        failed, which has not loaded all, and not if Java failed.
        """
        process.stdin.close()
        try:
            if process.wait(DUMP_SECONDS) == 0 and is_complete and self._made.exists():
                os.replace(self._made, self._path)
                for other in self._directory.glob(f"{_PREFIX}*"):
                    if other != self._path:
                        other.unlink(missing_ok=True)
        except TimeoutExpired:
            process.kill()
        finally:
            self._made.unlink(missing_ok=True)


def _usable(directory: str) -> Path:
    """
    The directory, which is made if it is missing. Java trusts an archive, so no other user may write there.
    """
    path = Path(directory).resolve()
    if os.pathsep in str(path):
        raise Unreadable(f"{directory}: Java takes no archive of classes from a path with {os.pathsep!r}")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check(path, path.stat())
        for parent in path.parents:
            found = parent.stat()
            if not found.st_mode & stat.S_ISVTX:  # else users can only replace their own files
                _check(parent, found)
    except OSError as why:
        raise Unreadable(f"{directory}: cannot have an archive of classes: {why.strerror}") from None
    return path


def _check(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & _WRITABLE:
        raise Unreadable(f"{path}: others may write to it, and Java trusts an archive of classes")
