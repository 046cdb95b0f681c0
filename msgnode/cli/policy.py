"""
`msgnode policy`: check, try and lay out policies before a node is given them.
"""

import gzip
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click

from msgnode.policy import PolicyRefused, Problem, Program
from msgnode.policy.attributes import DIRECTIONS
from msgnode.policy.context import CLAIMED, VERIFIED
from msgnode.policy.document import Document
from msgnode.policy.files import VECTORS, gather, vectors_of
from msgnode.policy.layout import lay_out
from msgnode.policy.limits import RateLimits
from msgnode.policy.polithink import convert
from msgnode.policy.problems import Wrong
from msgnode.policy.replay import judge
from msgnode.policy.report import Report
from msgnode.policy.vectors import context, fails


@click.group()
def policy() -> None:
    """
    Check policies, and see what they would do (docs/policy.md).
    """


_path = click.Path(path_type=Path)
_file = click.argument("file", type=_path)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


# -- check -------------------------------------------------------------------


@policy.command()
@click.argument("files", nargs=-1, required=True, type=_path, metavar="FILE|DIR...")
@click.option("--strict", is_flag=True, help="Refuse obligations with unknown names, and all that is odd.")
@_as_json
def check(files: tuple[Path, ...], strict: bool, as_json: bool) -> None:
    """
    Say what is wrong with policies, and what is odd; run the tests that come with them.

    A FILE is a policy of its own; the files of a DIR are one policy.  The
    tests are those in a file, and those beside NAME.json in NAME.vectors.json.

    \b
    Examples:
      msgnode policy check office.json
      msgnode policy check /etc/msgnode/policies --json
    """
    results = [_checked(file, strict, as_json) for file in files]
    if as_json:
        ok = all(result["ok"] for result in results)
        click.echo(json.dumps({"ok": ok, "policies": results}))
    else:
        for result in results:
            _show_check(result)
    raise SystemExit(0 if all(result["ok"] for result in results) else 1)


def _checked(path: Path, strict: bool, as_json: bool) -> dict[str, Any]:
    with _readable(as_json):
        files = gather(path)
        if not files:
            _stop(f"{path}: has no *.json file", as_json)
        try:
            program = Program(files, strict=strict)
        except PolicyRefused as why:
            return {"path": str(path), "ok": False, "problems": [_plain(each) for each in why.problems]}
        failed, count = _run_vectors(program, files, as_json)
    return {
        "path": str(path),
        "ok": not failed and not (strict and program.lints),
        "revision": program.revision,
        "version": program.version,
        "rules": len(program.rules),
        "tests": count + len(program.tests),
        "problems": failed,
        "lints": [_plain(each) for each in program.lints],
    }


def _run_vectors(program: Program, files: Any, as_json: bool) -> tuple[list[dict[str, Any]], int]:
    """
    What the vectors beside the files find, and how many there are.
    """
    failed, count = [], 0
    for where, data in files:
        path = vectors_of(where)
        if not path.exists():
            continue
        made = Program([(where, data)], program.all_groups) if len(files) > 1 else program
        for number, vector in enumerate(_vectors(path, as_json)):
            count += 1
            try:
                why = fails(made.decide, vector)
            except Wrong as wrong:
                why = str(wrong)
            if why:
                failed.append({"pointer": f"/{number}", "where": str(path), "text": why})
    return failed, count


def _vectors(path: Path, as_json: bool) -> list[Any]:
    try:
        value = Document(path.read_bytes(), str(path), is_ours=False).value
    except PolicyRefused as why:
        _stop(str(why), as_json)
    if not isinstance(value, list):
        _stop(f"{path}: expected a list of vectors", as_json)
    return value


def _show_check(result: dict[str, Any]) -> None:
    for each in (*result["problems"], *result.get("lints", ())):
        note = "" if each in result["problems"] else "note: "
        click.echo(_place(each) + note + each["text"])
    if "rules" in result:
        tests = f", {_several(result['tests'], 'test')}" if result["tests"] else ""
        good = "ok" if result["ok"] else "failed"
        rules = _several(result["rules"], "rule")
        click.echo(f"{result['path']}: {good}, {rules}{tests}, revision {result['revision']}")
    else:
        click.echo(f"{result['path']}: refused, {_several(len(result['problems']), 'problem')}")


def _several(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _place(each: dict[str, Any]) -> str:
    if "line" not in each:
        return f"{each['where']}: {each['pointer']}: "
    return f"{each['where']}:{each['line']}:{each['column']}: {each['pointer'] or '/'}: "


def _plain(problem: Problem) -> dict[str, Any]:
    return {
        "where": problem.where,
        "line": problem.line,
        "column": problem.column,
        "pointer": problem.pointer,
        "text": problem.text,
    }


# -- explain -----------------------------------------------------------------


@policy.command()
@_file
@click.argument("message")
@click.option("--to", help="Which recipient, if the message has several.")
@click.option("--clock", help="The local time, such as 2026-11-18T10:00:00; now if left out.")
@click.option("--user", help="The sender's verified identity.")
@click.option("--trust", type=click.Choice([CLAIMED, VERIFIED]), default=VERIFIED, show_default=True)
@click.option("--direction", type=click.Choice(DIRECTIONS), default="in", show_default=True)
@click.option("--domain", default="", help="The node's own domain.")
@_as_json
def explain(file: Path, message: str, as_json: bool, **given: str | None) -> None:
    """
    Say what the policy in FILE, or DIR, decides on MESSAGE, and why.

    MESSAGE is JSON, or a file that holds it, or - for standard input.

    \b
    Example:
      msgnode policy explain office.json '{"id":1,"type":"create","from":"hyperty://a.example/1","to":"hyperty://b.example/2"}'
    """
    program = _program(file, as_json)
    vector: dict[str, Any] = {"message": _message(message, as_json)}
    names = {"user": "identity"}
    vector |= {names.get(key, key): value for key, value in given.items() if value}
    try:
        explanation = program.explain(context(vector))
    except Wrong as why:
        _stop(f"message: {why}" if why.under[:1] == ("message",) else str(why), as_json)
    if as_json:
        click.echo(json.dumps(explanation.to_builtins(), default=str))
    else:
        click.echo(str(explanation))
    raise SystemExit(1 if explanation.decision.effect in ("deny", "indeterminate") else 0)


def _message(given: str, as_json: bool) -> dict[str, Any]:
    with _readable(as_json):
        if given.lstrip().startswith("{"):
            where, data = "message", given.encode()
        else:
            where = "standard input" if given == "-" else given
            data = sys.stdin.buffer.read() if given == "-" else Path(given).read_bytes()
    try:
        value = Document(data, where, is_ours=False).value
    except PolicyRefused as why:
        _stop(str(why), as_json)
    if not isinstance(value, dict):
        _stop(f"{where}: expected a message as an object", as_json)
    missing = [key for key in ("id", "type", "from", "to") if key not in value]
    if missing:
        _stop(f"{where}: '{missing[0]}' is missing", as_json)
    return value


# -- replay ------------------------------------------------------------------


@policy.command()
@_file
@click.argument("logs", nargs=-1, required=True, type=_path, metavar="TRAFFIC-LOG...")
@click.option("--domain", default="", help="The node's own domain, for interDomain.")
@click.option("--default", type=click.Choice(["permit", "deny"]), default="permit", show_default=True)
@click.option("--samples", default=3, show_default=True, help="How many changed messages to show for a rule.")
@_as_json
def replay(
    file: Path, logs: tuple[Path, ...], domain: str, default: str, samples: int, as_json: bool
) -> None:
    """
    Say what the policy in FILE, or DIR, would have done to logged traffic.

    What depends on something that the log does not hold, such as a body, is
    counted as undecidable, by rule.  Exit code 1: something would have gone
    differently.  Times are this machine's local ones.

    \b
    Example:
      msgnode policy replay office.json traffic-mn1-*.jsonl*
    """
    program = _program(file, as_json)
    report = Report(samples, default)
    moment = 0.0
    limits = RateLimits(lambda: moment)
    with _readable(as_json):
        for path in logs:
            for line in _lines(path):
                moment = (line.get("time") or 0) / 1e9 if isinstance(line.get("time"), int) else moment
                if line.get("kind") == "message":
                    report.add(judge(program, line, domain, limits), line)
    found = report.to_builtins()
    if as_json:
        click.echo(json.dumps({"revision": program.revision, **found}))
    else:
        _show_report(found)
    raise SystemExit(1 if found["changes"] else 0)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """
    The lines of a log that are JSON; half a line is passed over, as docs/traffic-log.md says.
    """
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        for line in file:
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                yield value


def _show_report(found: dict[str, Any]) -> None:
    click.echo(f"{found['messages']} messages" + (f", {found['unread']} unread" if found["unread"] else ""))
    for each in found["effects"]:
        click.echo(f"  {each['messages']:>9}  {each['effect']:14} {each['happened']}")
    for title, key in (("by rule", "rules"), ("would have gone differently", "changes")):
        if found[key]:
            click.echo(f"{title}:")
        for each in found[key]:
            missing = f", for want of {each['missing']}" if each.get("missing") else ""
            path = each["path"] or "no rule"
            click.echo(f"  {each['messages']:>9}  {each['effect']:14} {path}{missing}")
            for line in each.get("samples", ()):
                click.echo(f"             {line.get('type')} {line.get('from')} to {line.get('to')}")


# -- import and fmt ------------------------------------------------------------


@policy.command(name="import")
@_file
@_as_json
def import_command(file: Path, as_json: bool) -> None:
    """
    Print the PoliTHINK policy in FILE as one for this node.

    \b
    Example:
      msgnode policy import policy.json > imported.json
    """
    with _readable(as_json):
        data = file.read_bytes()
    try:
        made = convert(data, str(file))
        Program([(str(file), made.encode())])
    except PolicyRefused as why:
        _refuse(why, as_json)
    click.echo(made if as_json else lay_out(json.loads(made)), nl=as_json)


@policy.command()
@_file
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit code 1 if it would.")
@click.option("--write", is_flag=True, help="Write it back to FILE.")
@_as_json
def fmt(file: Path, only_check: bool, write: bool, as_json: bool) -> None:
    """
    Print the policy in FILE in the one layout: keys in order, short things on one line.
    """
    if only_check and write:
        raise click.UsageError("--check and --write exclude each other")
    with _readable(as_json):
        data = file.read_bytes()
    try:
        made = lay_out(Document(data, str(file), is_ours=not file.name.endswith(VECTORS)).value)
    except PolicyRefused as why:
        _refuse(why, as_json)
    changed = made.encode() != data
    if write and changed:
        with _readable(as_json):
            file.write_bytes(made.encode())
    if as_json:
        click.echo(json.dumps({"ok": not (only_check and changed), "changed": changed}))
    elif only_check or write:
        word = "would change" if only_check else "changed"
        click.echo(f"{file}: {word if changed else 'ok'}")
    else:
        click.echo(made, nl=False)
    raise SystemExit(1 if only_check and changed else 0)


# -- what all share ------------------------------------------------------------


def _program(path: Path, as_json: bool) -> Program:
    """
    The policy to work with; without one there is nothing to do.
    """
    with _readable(as_json):
        files = gather(path)
    try:
        return Program(files)
    except PolicyRefused as why:
        _refuse(why, as_json, 2)


def _refuse(why: PolicyRefused, as_json: bool, code: int = 1) -> NoReturn:
    if as_json:
        click.echo(json.dumps({"ok": False, "problems": [_plain(each) for each in why.problems]}))
    else:
        click.echo(str(why), err=True)
    raise SystemExit(code)


@contextmanager
def _readable(as_json: bool) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError) as why:
        name = getattr(why, "filename", None) or "a file"
        _stop(f"{name}: {getattr(why, 'strerror', None) or why}", as_json)


def _stop(text: str, as_json: bool) -> NoReturn:
    if as_json:
        click.echo(json.dumps({"ok": False, "error": text}))
    else:
        click.echo(f"msgnode: {text}", err=True)
    raise SystemExit(2)
