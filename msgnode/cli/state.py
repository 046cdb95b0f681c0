"""
`msgnode state`: is what a node keeps on disk sound, and what to do if not.
"""

import json
import os
import time
from pathlib import Path

import click

from msgnode.config import Config
from msgnode.segment import examine, repair
from msgnode.store import NAME, examine_database, lock, salvage


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
    directory = _found(directory)
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
    """
    directory = _found(directory)
    try:
        held = lock(directory)
    except OSError:
        click.echo(f"msgnode: a node uses {directory}; stop it first", err=True)
        raise SystemExit(1) from None
    path = directory / NAME
    done = []
    if examine_database(path):
        aside = path.with_name(f"{NAME}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
        for suffix in ("", "-wal", "-shm"):
            part = path.with_name(path.name + suffix)
            if part.exists():
                part.rename(aside.with_name(aside.name + suffix))
        rows = salvage(aside, path)
        done.append(f"{path}: moved to {aside.name}; {rows} rows could be kept")
    done += repair(directory / "spool")
    os.close(held)
    if as_json:
        click.echo(json.dumps({"ok": True, "done": done}))
    else:
        for text in done or [f"{directory}: nothing to repair"]:
            click.echo(text)


def _found(directory: Path | None) -> Path:
    directory = directory or Path(Config().state)
    if not directory.is_dir():
        click.echo(f"msgnode: {directory}: is not a directory", err=True)
        raise SystemExit(2)
    return directory
