"""
The file input of `msgnode policy`, and its error reports.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click

from msgnode.policy.decision.problems import PolicyRefused, Problem
from msgnode.policy.language.files import gather
from msgnode.policy.language.program import Program

PATH = click.Path(path_type=Path)
policy_file = click.argument("file", type=PATH)
as_json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def read_policy(path: Path, as_json: bool) -> Program:
    """
    Returns the compiled policy; a policy with errors ends the command.
    """
    with readable(as_json):
        files = gather(path)
    try:
        return Program(files)
    except PolicyRefused as why:
        refuse(why, as_json, 2)


def refuse(why: PolicyRefused, as_json: bool, code: int = 1) -> NoReturn:
    if as_json:
        click.echo(json.dumps({"ok": False, "problems": [plain(each) for each in why.problems]}))
    else:
        click.echo(str(why), err=True)
    raise SystemExit(code)


@contextmanager
def readable(as_json: bool, done: str = "read") -> Iterator[None]:
    """
    End the command if a file cannot be read, or written (`done`).
    """
    try:
        yield
    except (OSError, EOFError) as why:
        name = getattr(why, "filename", None) or "a file"
        stop(f"{name}: cannot be {done}: {getattr(why, 'strerror', None) or why}", as_json)


def stop(text: str, as_json: bool) -> NoReturn:
    if as_json:
        click.echo(json.dumps({"ok": False, "error": text}))
    else:
        click.echo(f"msgnode: {text}", err=True)
    raise SystemExit(2)


def plain(problem: Problem) -> dict[str, Any]:
    """
    Returns the problem as --json prints it.
    """
    return {
        "where": problem.where,
        "line": problem.line,
        "column": problem.column,
        "pointer": problem.pointer,
        "text": problem.text,
    }
