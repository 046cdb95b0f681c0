"""
`msgnode policy check`: reports errors and oddities of policies, and runs their tests.
"""

import json
from pathlib import Path
from typing import Any

import click

from msgnode.cli.policy_files import PATH, as_json_option, plain, readable, stop
from msgnode.policy.decision.problems import InvalidValue, PolicyRefused
from msgnode.policy.language.document import Document
from msgnode.policy.language.files import gather, policy_of, vectors_of
from msgnode.policy.language.program import Program
from msgnode.policy.language.test_vectors import fails


@click.command(short_help="Check policies, and run their tests.")
@click.argument("files", nargs=-1, required=True, type=PATH, metavar="FILE|DIR...")
@click.option("--strict", is_flag=True, help="Treat notes, and obligations with unknown names, as errors.")
@as_json_option
def check(files: tuple[Path, ...], strict: bool, as_json: bool) -> None:
    """
    Report errors in policies, note what is odd, and run their tests.

    A FILE is a policy of its own; the files of a DIR are one policy.  The
    tests are in the policy itself, and in NAME.vectors.json next to NAME.json.
    NAME.vectors.json as FILE stands for NAME.json.

    \b
    Examples:
      msgnode policy check office.json
      msgnode policy check /etc/msgnode/policies --json
    """
    results = [_checked(file, strict, as_json) for file in dict.fromkeys(map(policy_of, files))]
    if as_json:
        ok = all(result["ok"] for result in results)
        click.echo(json.dumps({"ok": ok, "policies": results}))
    else:
        for result in results:
            _show_check(result)
    raise SystemExit(0 if all(result["ok"] for result in results) else 1)


def _checked(path: Path, strict: bool, as_json: bool) -> dict[str, Any]:
    with readable(as_json):
        files = gather(path)
        if not files:
            stop(f"{path}: has no *.json file", as_json)
        try:
            program = Program(files, strict=strict)
        except PolicyRefused as why:
            return {"path": str(path), "ok": False, "problems": [plain(each) for each in why.problems]}
        failed, count = _run_vectors(program, files, as_json)
    return {
        "path": str(path),
        "ok": not failed and not (strict and program.lints),
        "revision": program.revision,
        "version": program.version,
        "rules": len(program.rules),
        "tests": count + len(program.tests),
        "problems": failed,
        "lints": [plain(each) for each in program.lints],
    }


def _run_vectors(program: Program, files: Any, as_json: bool) -> tuple[list[dict[str, Any]], int]:
    """
    Run the vectors next to the files; returns the failures and the number of vectors.
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
            except InvalidValue as wrong:
                why = str(wrong)
            if why:
                failed.append({"pointer": f"/{number}", "where": str(path), "text": why})
    return failed, count


def _vectors(path: Path, as_json: bool) -> list[Any]:
    try:
        value = Document(path.read_bytes(), str(path), is_ours=False).value
    except PolicyRefused as why:
        stop(str(why), as_json)
    if not isinstance(value, list):
        stop(f"{path}: expected a list of vectors", as_json)
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
