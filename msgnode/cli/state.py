"""
`msgnode state`: is what a node keeps on disk sound, and what to do if not.
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
    Look after the state directory of a node that is stopped.
    """


_directory = click.argument("directory", required=False, type=click.Path(path_type=Path))
_as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@state.command()
@_directory
@_as_json
def check(directory: Path | None, as_json: bool) -> None:
    """
    Say what is wrong with the files in DIRECTORY; change nothing.

    Without DIRECTORY: where a node keeps its state by default.
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

    Nobody knows then what is gone: the node tells every client that counts, missed: null.
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
    What could be kept lies in a file of its own until all of it does; only then the names change.

    Whenever this is cut off, there is a file of that name, and clients are told.
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
    A name for it that nothing has, not even what another repair of this second moved there.
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
    The directory, which no node uses meanwhile.
    """
    directory = directory or Path(Config().state)
    if not directory.is_dir():
        _refuse(f"{directory}: is not a directory", 2, as_json)
    held = None
    try:
        # A node makes the lock; where there is none, looking must not make one.
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
