"""
The restoring of a backup into the state directory of a node that is stopped.

The node begins new numbers then: every client that acknowledges learns that messages may be missing, and
links to other domains begin new streams. Messages that were delivered after the backup was made are
delivered again.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from twisted.internet.defer import maybeDeferred

from msgnode.storage.audit_log import AuditLog
from msgnode.storage.backup.manifest import BackupRefused, Manifest, digest, read_manifest
from msgnode.storage.database import RESTORING, UNFINISHED, lock
from msgnode.storage.objects.segments import DIRECTORY as OBJECTS
from msgnode.storage.objects.segments import UNSURE
from msgnode.storage.spool_recovery import mark_incomplete

Measure = Callable[[str], tuple[int, int, int]]  # total, used and free bytes of a directory's disk
# These stay: they belong to the machine, or are no part of a backup.
STAYING = ("lock", UNFINISHED, RESTORING, "backups", "audit", "admin-token", "admin-tokens")


def examine_backup(backup: Path) -> tuple[Manifest, list[str]]:
    """
    The manifest of a backup, and what is wrong with its files. Raises BackupRefused.
    """
    manifest, wrong = read_manifest(backup), []
    for name, expected in manifest.files.items():
        try:
            found = digest(backup / name)
        except OSError as why:
            wrong.append(f"{backup / name}: {why.strerror}")
            continue
        if found.bytes != expected.bytes:
            wrong.append(f"{backup / name}: has {found.bytes} of {expected.bytes} bytes")
        elif found.sha256 != expected.sha256:
            wrong.append(f"{backup / name}: differs from what was written")
    return manifest, wrong


def restore_backup(
    backup: Path, state: Path, replace: bool = False, measure: Measure = shutil.disk_usage
) -> tuple[Manifest, Path | None]:
    """
    Restore a backup. With `replace`, a state that is there is moved aside, to the path that is returned.

    Raises BackupRefused; then the state directory is as it was.
    """
    manifest, wrong = examine_backup(backup)
    if wrong:
        raise BackupRefused("the backup is damaged: " + "; ".join(wrong[:3]))
    foreign = [name for name in manifest.files if Path(name).parts[:1] and Path(name).parts[0] in STAYING]
    if foreign:
        raise BackupRefused(f"{backup}: {foreign[0]!r} is no part of a backup")
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(state):
        there = [path for path in state.iterdir() if path.name not in STAYING]
        if there and not replace:
            raise BackupRefused(f"{state} is not empty; --replace moves what is there aside")
        collected = state / UNFINISHED
        shutil.rmtree(collected, ignore_errors=True)
        _check_room(manifest, state, measure)
        try:
            _collect(backup, manifest, collected)
        except OSError:
            shutil.rmtree(collected, ignore_errors=True)
            raise
        aside = _aside(state) if there else None
        if aside is not None:
            aside.mkdir(mode=0o700)
        # From here on no node starts, until all files are there.
        shutil.rmtree(state / RESTORING, ignore_errors=True)  # copies, of a restore that was interrupted
        begun = collected.rename(state / RESTORING)
        _sync(state)
        if aside is not None:
            for path in there:
                path.rename(aside / path.name)
        collected = begun
        for path in sorted(collected.iterdir(), key=lambda path: path.name != "spool"):
            path.rename(
                state / path.name
            )  # the spool first: with its mark, sessions are notified in any case
        collected.rmdir()
        _sync(state)
        _note(backup, manifest, state)
        return manifest, aside


def _note(backup: Path, manifest: Manifest, state: Path) -> None:
    """
    Writes a line to the audit log of the state directory, which is that of before, if it can be written.
    """
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(manifest.created))
    audit = AuditLog(state, time.time, maybeDeferred, keep_days=lambda: 0)
    audit.note(
        who=f"uid {os.getuid()}",
        via="cli",
        action="state restore",
        target=[str(backup.absolute())],
        result=f"the state of {made}",
        ok=True,
    )


def _check_room(manifest: Manifest, state: Path, measure: Measure) -> None:
    """
    Raises BackupRefused if the disk has no room for the files of the backup: what is there stays until then.
    """
    _, _, free = measure(str(state))
    if free < manifest.size:
        raise BackupRefused(f"the backup needs {manifest.size:,} bytes in {state}, and {free:,} are free")


def _collect(backup: Path, manifest: Manifest, collected: Path) -> None:
    """
    Copies the files of the backup into a new directory, and marks them so that clients are notified.
    """
    collected.mkdir(mode=0o700)
    for name in manifest.files:
        target = collected / name
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copyfile(backup / name, target)
        target.chmod(0o600)
        _sync(target)
    mark_incomplete(collected / "spool")
    if (collected / OBJECTS).is_dir():
        (collected / OBJECTS / UNSURE).touch(mode=0o600)


def _aside(state: Path) -> Path:
    first = state.with_name(f"{state.name}.before-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    aside, number = first, 1
    while aside.exists():
        number += 1
        aside = first.with_name(f"{first.name}-{number}")
    return aside


@contextmanager
def _locked(state: Path) -> Iterator[None]:
    try:
        held = lock(state)
    except BlockingIOError:
        raise BackupRefused(f"a node uses {state}; stop it first") from None
    except OSError as why:
        raise BackupRefused(f"{state}: {why.strerror}") from None
    try:
        yield
    except OSError as why:
        raise BackupRefused(f"{why.filename or state}: {why.strerror}") from None
    finally:
        os.close(held)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
