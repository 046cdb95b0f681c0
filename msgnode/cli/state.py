"""
`msgnode state`: checks and repairs the state directory of a node.
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
from msgnode.storage.database import NAME, examine_database, lock, salvage
from msgnode.storage.spool_recovery import examine, mark_incomplete, repair


@click.group()
def state() -> None:
    """
    Check or repair the state directory of a node that is stopped.
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
    if as_json:
        click.echo(json.dumps({"ok": not wrong, "problems": wrong}))
    elif wrong:
        for text in wrong:
            click.echo(text)
        click.echo(f"'msgnode state repair {directory}' moves damaged files aside and keeps what can be read")
    else:
        click.echo(f"{directory}: ok")
    raise SystemExit(1 if wrong else 0)


@state.command(name="repair")
@_directory
@_as_json
def repair_command(directory: Path | None, as_json: bool) -> None:
    """
    Move damaged files aside as NAME.damaged-TIME, and keep what can be read of them.

    The node cannot know then which messages are missing: it reports `missed: null` to every client
    with acknowledged resume.
    """
    with _stopped(directory, as_json) as directory:
        done = _repair_database(directory / NAME)
        done += repair(directory / "spool")
    if as_json:
        click.echo(json.dumps({"ok": True, "done": done}))
    else:
        for text in done or [f"{directory}: nothing to repair"]:
            click.echo(text)


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
