"""
`msgnode state`: checks, repairs and restores the state directory of a node.
"""

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import click

from msgnode.config.schema import Config
from msgnode.storage.backup.manifest import BackupRefused
from msgnode.storage.backup.restoring import examine_backup, restore_backup
from msgnode.storage.database import NAME, examine_database, is_newer, lock, salvage
from msgnode.storage.spool_recovery import NewerSegment, examine, mark_incomplete, repair


@click.group(short_help="Check, repair or restore the state of a stopped node.")
def state() -> None:
    """
    Check, repair or restore the state directory of a node that is stopped.
    """


_directory = click.argument("directory", required=False, type=click.Path(path_type=Path))
_as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@state.command()
@_directory
@_as_json
def check(directory: Path | None, as_json: bool) -> None:
    """
    Report damaged files in DIRECTORY, and change nothing.

    Without DIRECTORY, check the default state directory.
    """
    with _stopped(directory, as_json) as directory:
        wrong = examine_database(directory / NAME) + examine(directory / "spool")
        newer = any("was written by a newer msgnode" in text for text in wrong)
    if as_json:
        click.echo(json.dumps({"ok": not wrong, "problems": wrong}))
    elif wrong:
        for text in wrong:
            click.echo(text)
        if not newer:
            click.echo(
                f"'msgnode state repair {directory}' moves damaged files aside and keeps what can be read"
            )
    else:
        click.echo(f"{directory}: ok")
    raise SystemExit(1 if wrong else 0)


@state.command(name="repair")
@_directory
@click.option(
    "--downgrade", is_flag=True, help="Keep what this version understands of a file that a newer one wrote."
)
@_as_json
def repair_command(directory: Path | None, downgrade: bool, as_json: bool) -> None:
    """
    Move damaged files aside as NAME.damaged-TIME, and keep what can be read of them.

    The node cannot know then which messages are missing: it reports `missed: null` to every client
    with acknowledged resume.  Files that a newer msgnode wrote are left alone.
    """
    with _stopped(directory, as_json) as directory:
        if not downgrade and is_newer(directory / NAME):
            _refuse(examine_database(directory / NAME)[0], 1, as_json)
        try:
            done = repair(directory / "spool")
        except NewerSegment as why:
            _refuse(str(why), 1, as_json)
        done = _repair_database(directory / NAME) + done
    if as_json:
        click.echo(json.dumps({"ok": True, "done": done}))
    else:
        for text in done or [f"{directory}: nothing to repair"]:
            click.echo(text)


@state.command()
@click.argument("backup", type=click.Path(path_type=Path))
@_directory
@click.option("--replace", is_flag=True, help="Move the state that is there aside as DIRECTORY.before-TIME.")
@click.option(
    "--check", "only_check", is_flag=True, help="Compare the backup with its manifest, and restore nothing."
)
@_as_json
def restore(backup: Path, directory: Path | None, replace: bool, only_check: bool, as_json: bool) -> None:
    """
    Restore BACKUP, made by 'msgnode admin backup', into DIRECTORY.

    Without DIRECTORY, restore into the default state directory.  Clients that acknowledge are notified that
    messages may be missing, and messages that were delivered after the backup are delivered again.

    \b
    Examples:
      msgnode state restore --check /backups/backup-20260314T040000Z
      msgnode state restore /backups/backup-20260314T040000Z /var/lib/msgnode/state
    """
    target = directory or Path(Config().state)
    try:
        if only_check:
            manifest, wrong = examine_backup(backup)
            if wrong:
                _refuse("the backup is damaged: " + "; ".join(wrong), 1, as_json)
            text, aside = f"{backup}: ok", None
        else:
            manifest, aside = restore_backup(backup, target, replace)
            moved = f"; what was there is in {aside}" if aside is not None else ""
            text = f"{target}: restored{moved}"
    except BackupRefused as why:
        _refuse(str(why), 1, as_json)
    made = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(manifest.created))
    if as_json:
        found = {"ok": True, "domain": manifest.domain, "node": manifest.node, "created": manifest.created}
        click.echo(json.dumps({**found, "aside": None if aside is None else str(aside)}))
        return
    click.echo(text)
    click.echo(f"  of {manifest.domain}, node {manifest.node}, {made}, msgnode {manifest.msgnode}")


def _repair_database(path: Path) -> list[str]:
    """
    Copy the rows that can be read to a new file, and rename it when it is complete.

    If this is interrupted at any point, a database file exists, and clients are notified.
    """
    if not examine_database(path):
        return []
    fresh = path.with_name(f"{NAME}.new")
    for suffix in ("", "-wal", "-shm"):
        fresh.with_name(fresh.name + suffix).unlink(missing_ok=True)
    rows = salvage(path, fresh)
    aside = _aside(path)
    mark_incomplete(path.with_name("spool"))
    if path.is_dir():
        path.rename(aside)
    else:
        os.link(path, aside)
    for suffix in ("-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    fresh.replace(path)
    return [f"{path}: moved to {aside.name}; {rows} rows could be kept"]


def _aside(path: Path) -> Path:
    """
    Returns a new, unused name for a damaged file, also after another repair in the same second.
    """
    aside = first = path.with_name(f"{NAME}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    number = 1
    while aside.exists():
        number += 1
        aside = first.with_name(f"{first.name}-{number}")
    return aside


@contextmanager
def _stopped(directory: Path | None, as_json: bool) -> Iterator[Path]:
    """
    Yields the directory, locked so that no node uses it meanwhile.
    """
    directory = directory or Path(Config().state)
    if not directory.is_dir():
        _refuse(f"{directory}: is not a directory", 2, as_json)
    held = None
    try:
        # A node makes the lock file; a check must not make one.
        if (directory / "lock").exists():
            held = lock(directory)
        yield directory
    except BlockingIOError:
        _refuse(f"a node uses {directory}; stop it first", 1, as_json)
    except OSError as why:
        _refuse(f"{why.filename or directory}: {why.strerror}", 2, as_json)
    except sqlite3.Error as why:
        _refuse(f"{directory}: {why}", 2, as_json)
    finally:
        if held is not None:
            os.close(held)


def _refuse(text: str, code: int, as_json: bool) -> NoReturn:
    if as_json:
        click.echo(json.dumps({"ok": False, "error": text}))
    else:
        click.echo(f"msgnode: {text}", err=True)
    raise SystemExit(code)
