"""
`msgnode init`: writes the configuration and the systemd units of a new node.
"""

import json
import os
import sys
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import NoReturn

import click

import msgnode

CONFIGURATION = "msgnode.toml"
UNITS = ("msgnode.service", "msgnode@.service", "msgnode.socket")
COMMANDS, DIRECTORY = "/opt/msgnode/bin/", "/etc/msgnode/"  # in the files that are shipped


@click.command(short_help="Write the files of a new node.")
@click.argument("directory", default="/etc/msgnode", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--systemd",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write systemd units into DIR, for instance /etc/systemd/system; they start this installation.",
)
@click.option("--domain", default="", help="The domain of the node, written into the configuration.")
@click.option("--force", is_flag=True, help="Overwrite files that are there.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def init(directory: Path, systemd: Path | None, domain: str, force: bool, as_json: bool) -> None:
    """
    Write msgnode.toml into DIRECTORY, /etc/msgnode by default: each key with its default and an explanation.

    No file that is there is changed without --force.

    \b
    Examples:
      msgnode init --systemd /etc/systemd/system --domain example.org
      msgnode init .
    """
    shipped = _shipped()
    if shipped is None:
        _refuse(
            "the files of the distribution are missing: install msgnode with pip, or use its checkout",
            as_json,
        )
    directory = directory.absolute()
    wanted = {directory / CONFIGURATION: _configuration(shipped, domain)}
    if systemd is not None:
        for name in UNITS:
            wanted[systemd.absolute() / name] = _unit(shipped / name, directory)
    there = [str(path) for path in wanted if path.exists()]
    if there and not force:
        _refuse(f"{', '.join(there)}: exists already; --force overwrites", as_json)
    try:
        for path, text in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    except OSError as why:
        _refuse(f"{why.filename}: cannot be written: {why.strerror}", as_json)
    if as_json:
        click.echo(json.dumps({"ok": True, "written": [str(path) for path in wanted]}))
        return
    for path in wanted:
        click.echo(path)
    config = directory / CONFIGURATION
    click.echo(f"Edit {config}; 'msgnode check {config}' checks it.", err=True)
    if systemd is not None:
        click.echo("Then: systemctl daemon-reload && systemctl enable --now msgnode", err=True)


def _shipped() -> Path | None:
    """
    Returns the directory with the files that the distribution ships; in a checkout, `etc`.
    """
    try:
        for file in files("msgnode") or ():
            if file.name == CONFIGURATION and file.parent.name == "etc":
                return Path(str(file.locate())).resolve().parent
    except PackageNotFoundError:
        pass
    checkout = Path(msgnode.__file__).parent.parent / "etc"
    return checkout if (checkout / CONFIGURATION).is_file() else None


def _configuration(shipped: Path, domain: str) -> str:
    text = (shipped / CONFIGURATION).read_text("utf-8")
    return (
        text.replace('\ndomain = "localhost"\n', f"\ndomain = {json.dumps(domain)}\n", 1) if domain else text
    )


def _unit(path: Path, directory: Path) -> str:
    """
    Returns a unit that starts the msgnode of this environment with the configuration in `directory`.
    """
    text = path.read_text("utf-8").replace(COMMANDS, _escaped(Path(sys.prefix, "bin")))
    return text.replace(DIRECTORY, _escaped(directory))


def _escaped(directory: Path) -> str:
    """
    Returns a directory as systemd takes it in a unit, where % begins a specifier.
    """
    return f"{directory}{os.sep}".replace("%", "%%")


def _refuse(text: str, as_json: bool) -> NoReturn:
    if as_json:
        click.echo(json.dumps({"ok": False, "error": text}))
    else:
        click.echo(f"msgnode: {text}", err=True)
    raise SystemExit(2)
