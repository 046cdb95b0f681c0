"""
The hot backup: a copy of the state directory of a running node, as of one moment.

In one turn of the event loop the spool is flushed, its descriptors are duplicated and a read transaction
begins in the database. What is copied later, in a thread, is therefore what a kill -9 at that moment would
have left. Segments that compaction deletes meanwhile stay readable, and commits of the node go on.
"""

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from msgnode.storage.backup.manifest import (
    CHUNK_BYTES,
    FORMAT,
    PARTIAL,
    PREFIX,
    BackupRefused,
    Manifest,
    backups_in,
    digest,
    plain_files,
    read_manifest,
    write_manifest,
)
from msgnode.storage.database import NAME
from msgnode.storage.objects.segments import DIRECTORY as OBJECTS
from msgnode.storage.objects.segments import Segments
from msgnode.storage.spool import Spool

REGISTRY = "registry.sqlite"  # of the embedded registries, which have a process or a thread of their own


class Origin(NamedTuple):
    """
    The node that a backup is of.
    """

    version: str
    domain: str
    node: str


class Snapshot(NamedTuple):
    """
    The state of one moment: an open read transaction, and a descriptor and a length for each segment.
    """

    database: sqlite3.Connection
    segments: list[tuple[str, int, int]]
    objects: list[tuple[str, int, int]] = []

    def close(self) -> None:
        self.database.close()
        for _, file, _ in (*self.segments, *self.objects):
            os.close(file)


def take_snapshot(state: Path, spool: Spool, objects: Segments | None = None) -> Snapshot:
    """
    Take a snapshot, between two turns of the event loop and after the spool and the journal of objects were
    flushed. Raises BackupRefused.
    """
    if spool.failing is not None:
        raise BackupRefused(f"the spool cannot be written now: {spool.failing}")
    try:
        database = _open(state / NAME)
        try:
            database.execute("BEGIN")
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the transaction begins here
            return Snapshot(database, spool.snapshot(), objects.snapshot() if objects is not None else [])
        except BaseException:
            database.close()
            raise
    except (sqlite3.Error, OSError) as why:
        raise BackupRefused(f"{state}: cannot be read: {why}") from None


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
    )


def write_backup(
    snapshot: Snapshot,
    state: Path,
    directory: Path,
    keep: int,
    origin: Origin,
    reserve: int = 0,
    wall: Callable[[], float] = time.time,
) -> tuple[Path, Manifest]:
    """
    Write a backup below `directory`, and delete all but the newest `keep` of this node; the one just made is
    kept in any case, also when the clock was set back. Runs in a thread, and closes the snapshot.

    `reserve` bytes of the disk stay free. Raises BackupRefused; nothing is left then.
    """
    try:
        created = wall()
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_room(snapshot, state, directory, reserve)
        path = _fresh(directory, created)
        suffix = f".{quote(origin.domain, safe='')}.{quote(origin.node, safe='')}{PARTIAL}"
        partial = path.with_name(path.name + suffix)
        _remove_partial(directory, suffix)
        partial.mkdir(mode=0o700)
        try:
            _copy_all(snapshot, state, partial)
            files = {str(found.relative_to(partial)): digest(found) for found in _files(partial)}
            manifest = Manifest(FORMAT, *origin, created, files)
            write_manifest(partial, manifest)
            for found in _files(partial):
                found.chmod(0o600)
                _sync(found)
            partial.rename(path)
            _sync(directory)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        others = [old for old in backups_in(directory) if old != path and _is_of(old, origin)]
        for old in others[: max(0, len(others) + 1 - max(keep, 1))]:
            shutil.rmtree(old, ignore_errors=True)
        return path, manifest
    except (OSError, sqlite3.Error) as why:
        what = why.strerror if isinstance(why, OSError) and why.strerror else str(why)
        raise BackupRefused(f"the backup in {directory} cannot be written: {what}") from None
    finally:
        snapshot.close()


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def _check_room(snapshot: Snapshot, state: Path, directory: Path, reserve: int) -> None:
    needed = sum(length for _, _, length in (*snapshot.segments, *snapshot.objects))
    for name in (NAME, REGISTRY):
        with suppress(OSError):
            needed += (state / name).stat().st_size
    free = shutil.disk_usage(directory).free
    if free < needed + reserve:
        kept = f", of which {reserve:,} stay reserved" if reserve else ""
        raise BackupRefused(f"the backup needs {needed:,} bytes in {directory}, and {free:,} are free{kept}")


def _fresh(directory: Path, created: float) -> Path:
    """
    Returns a new name, also for another backup in the same second; the names sort by age.
    """
    name = f"{PREFIX}{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(created))}"
    path, number = directory / name, 1
    while path.exists():
        number += 1
        path = directory / f"{name}-{number}"
    return path


def _remove_partial(directory: Path, suffix: str) -> None:
    """
    Removes what this node began, and was killed; other nodes may write into the same directory now.
    """
    for old in directory.glob(f"{PREFIX}*{escape(suffix)}"):
        shutil.rmtree(old, ignore_errors=True)


def _is_of(backup: Path, origin: Origin) -> bool:
    try:
        manifest = read_manifest(backup)
    except BackupRefused:
        return False
    return (manifest.domain, manifest.node) == (origin.domain, origin.node)


def _copy_all(snapshot: Snapshot, state: Path, target: Path) -> None:
    _copy_database(snapshot.database, target / NAME)
    if (state / REGISTRY).exists():
        registry = _open(state / REGISTRY)
        try:
            _copy_database(registry, target / REGISTRY)
        finally:
            registry.close()
    (target / "spool").mkdir(mode=0o700)
    for name, file, length in snapshot.segments:
        _copy_segment(file, length, target / "spool" / name)
    for name, file, length in snapshot.objects:
        (target / OBJECTS).mkdir(exist_ok=True, mode=0o700)
        _copy_segment(file, length, target / OBJECTS / name)
    for path in plain_files(state):
        (target / path).parent.mkdir(exist_ok=True, mode=0o700)
        with suppress(FileNotFoundError):  # replaced by the node meanwhile; versions of a policy come and go
            shutil.copyfile(state / path, target / path)


def _copy_database(source: sqlite3.Connection, target: Path) -> None:
    copy = sqlite3.connect(target)
    try:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a write-ahead log
        (problem,) = copy.execute("PRAGMA quick_check(1)").fetchone()
        if problem != "ok":
            raise sqlite3.DatabaseError(f"{target.name} is damaged: {problem}")
    finally:
        copy.close()


def _copy_segment(file: int, length: int, target: Path) -> None:
    with target.open("wb") as out:
        at = 0
        while at < length:
            data = os.pread(file, min(CHUNK_BYTES, length - at), at)
            if not data:
                raise BackupRefused(f"{target.name} has only {at} of {length} bytes")
            out.write(data)
            at += len(data)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
