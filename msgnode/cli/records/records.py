"""
`msgnode records`: checks, generates, documents, converts and compares definitions of typed messages.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import click

from msgnode.cli import REFUSED, USAGE
from msgnode.records.catalogue import page
from msgnode.records.compare import READERS, SENDERS
from msgnode.records.compare import compare as changes_of
from msgnode.records.definition import Definitions
from msgnode.records.generate import c, java, python, typescript
from msgnode.records.generate.plan import Files, GenerationRefused
from msgnode.records.problems import DefinitionsRefused
from msgnode.records.reader import read
from msgnode.records.writer import to_json, to_xml

GENERATORS = {
    "python": python.generate,
    "typescript": typescript.generate,
    "java": java.generate,
    "c": c.generate,
}
WRITERS = {"json": to_json, "xml": to_xml}
_definitions = click.argument("definitions", type=click.Path(path_type=Path))
_as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group(short_help="Check definitions of typed messages, and generate code.")
def records() -> None:
    """
    Work with definitions of typed messages; docs/records.md explains them.

    DEFINITIONS is a file, or a directory with files named *.records.json or *.records.xml.
    """


@records.command(short_help="Report all errors of definitions.")
@_definitions
@_as_json
def check(definitions: Path, as_json: bool) -> None:
    """
    Report all errors of DEFINITIONS, each with its file, line and column.

    \b
    Example:
      msgnode records check thermometer.records.json

    \b
    Exit code 0: no errors.  2: errors, or a file that cannot be read.
    """
    found = _read(definitions, as_json)
    for generate in GENERATORS.values():
        _made(generate, found, as_json)  # names may collide in one language only
    slots = sum(len(record.slots) for record in found)
    if as_json:
        click.echo(json.dumps({"ok": True, "records": len(found), "slots": slots, "sha256": found.digest}))
    else:
        click.echo(f"{definitions}: ok, records: {len(found)}, slots: {slots}")


@records.command(short_help="Generate Python, TypeScript, Java or C.")
@click.option("--language", type=click.Choice(list(GENERATORS)), required=True, help="The language.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("."),
    show_default="the current directory",
    help="The directory of the files.",
)
@_definitions
@_as_json
def generate(language: str, out: Path, definitions: Path, as_json: bool) -> None:
    """
    Generate classes for the records of DEFINITIONS, and print the names of the files.

    The same definitions always give the same files.

    \b
    Example:
      msgnode records generate --language python --out thermometer thermometer.records.json
    """
    found = _read(definitions, as_json)
    made = _made(GENERATORS[language], found, as_json)
    for name, text in made.items():
        path = out / name
        with _readable(as_json, "written"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
    names = [str(out / name) for name in made]
    click.echo(json.dumps({"ok": True, "files": names}) if as_json else "\n".join(names))


@records.command(short_help="Write a catalogue in HTML.")
@_definitions
@click.option("--out", type=click.Path(path_type=Path), help="The file; the default is standard output.")
@click.option("--title", default="Records", show_default=True, help="The title of the page.")
def docs(definitions: Path, out: Path | None, title: str) -> None:
    """
    Write a catalogue of DEFINITIONS for people: an HTML page, one file without scripts.

    \b
    Example:
      msgnode records docs --out records.html thermometer.records.json
    """
    _write(page(_read(definitions, False), title), out)


@records.command(short_help="Convert JSON to XML, or XML to JSON.")
@_definitions
@click.option("--to", type=click.Choice(list(WRITERS)), help="The default is the form that a file has not.")
@click.option("--out", type=click.Path(path_type=Path), help="The file; the default is standard output.")
def convert(definitions: Path, to: str | None, out: Path | None) -> None:
    """
    Print DEFINITIONS in the other form; both have the same content.

    \b
    Example:
      msgnode records convert thermometer.records.json --out thermometer.records.xml
    """
    if to is None:
        if out is not None and out.suffix in (".json", ".xml"):
            to = out.suffix[1:]
        else:
            to = "json" if definitions.suffix == ".xml" else "xml"
    _write(WRITERS[to](_read(definitions, False)), out)


@records.command(short_help="Say whether a change breaks old programs.")
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@_as_json
def compare(old: Path, new: Path, as_json: bool) -> None:
    """
    List the changes from OLD to NEW definitions, and which programs with the old ones they break.

    Old senders break if their messages do not fit the new definitions, old readers if new messages do not
    fit the old definitions.

    \b
    Example:
      msgnode records compare released/ thermometer.records.json

    \b
    Exit code 0: compatible.  1: a change breaks something.  2: definitions with errors.
    """
    found = changes_of(_read(old, as_json), _read(new, as_json))
    breaking = [change for change in found if change.breaks]
    if as_json:
        listed = [{"name": each.name, "text": each.text, "breaks": list(each.breaks)} for each in found]
        broken = {who: any(who in each.breaks for each in found) for who in (SENDERS, READERS)}
        click.echo(json.dumps({"ok": not breaking, "breaks": broken, "changes": listed}))
    else:
        click.echo("\n".join(map(str, found)) or "no changes")
    raise SystemExit(REFUSED if breaking else 0)


def _read(path: Path, as_json: bool) -> Definitions:
    with _readable(as_json):
        try:
            return read(path)
        except DefinitionsRefused as why:
            _refuse(why, as_json)


def _refuse(why: DefinitionsRefused, as_json: bool) -> NoReturn:
    if as_json:
        problems = [{**place._asdict(), "text": text} for place, text in why.problems]
        click.echo(json.dumps({"ok": False, "problems": problems}))
    else:
        click.echo(str(why), err=True)
    raise SystemExit(USAGE)


def _made(generate: Callable[[Definitions], Files], definitions: Definitions, as_json: bool) -> Files:
    try:
        return generate(definitions)
    except GenerationRefused as why:
        _stop(str(why), as_json)


def _write(text: str, out: Path | None) -> None:
    if out is None:
        click.echo(text, nl=False)
        return
    with _readable(False, "written"):
        out.write_bytes(text.encode())


@contextmanager
def _readable(as_json: bool, done: str = "read") -> Iterator[None]:
    try:
        yield
    except OSError as why:
        _stop(f"{why.filename or 'a file'}: cannot be {done}: {why.strerror or why}", as_json)


def _stop(text: str, as_json: bool) -> NoReturn:
    if as_json:
        click.echo(json.dumps({"ok": False, "error": text}))
    else:
        click.echo(f"msgnode: {text}", err=True)
    raise SystemExit(USAGE)
