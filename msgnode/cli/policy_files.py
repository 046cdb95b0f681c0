"""
What the commands of `msgnode policy` read, and what they say of it when it cannot be used.
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
    The policy to work with; without one there is nothing to do.
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
def readable(as_json: bool) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError) as why:
        name = getattr(why, "filename", None) or "a file"
        stop(f"{name}: {getattr(why, 'strerror', None) or why}", as_json)


def stop(text: str, as_json: bool) -> NoReturn:
    if as_json:
        click.echo(json.dumps({"ok": False, "error": text}))
    else:
        click.echo(f"msgnode: {text}", err=True)
    raise SystemExit(2)


def plain(problem: Problem) -> dict[str, Any]:
    """
    The problem as --json prints it.
    """
    return {
        "where": problem.where,
        "line": problem.line,
        "column": problem.column,
        "pointer": problem.pointer,
        "text": problem.text,
    }
