"""
`msgnode policy`: checks, explains, converts and formats policies before a node uses them.
"""

import json
import sys
from pathlib import Path
from typing import Any

import click

from msgnode.cli.policy_check import check
from msgnode.cli.policy_files import as_json_option, policy_file, read_policy, readable, refuse, stop
from msgnode.cli.policy_replay import replay
from msgnode.policy.decision.attribute import DIRECTIONS
from msgnode.policy.decision.context import CLAIMED, VERIFIED
from msgnode.policy.decision.problems import InvalidValue, PolicyRefused
from msgnode.policy.language.document import Document
from msgnode.policy.language.files import VECTORS
from msgnode.policy.language.formatter import lay_out
from msgnode.policy.language.polithink import convert
from msgnode.policy.language.program import Program
from msgnode.policy.language.test_vectors import context


@click.group(short_help="Check policies, and try them on messages.")
def policy() -> None:
    """
    Check policies, and try them on messages; docs/policy.md explains them.
    """


policy.add_command(check)
policy.add_command(replay)


@policy.command(short_help="Explain the decision on a message.")
@policy_file
@click.argument("message")
@click.option("--to", help="The recipient to decide on, if the message has several.")
@click.option("--clock", help="The local time, such as 2026-11-18T10:00:00; the default is now.")
@click.option("--user", help="The sender's verified identity.")
@click.option(
    "--trust",
    type=click.Choice([CLAIMED, VERIFIED]),
    default=VERIFIED,
    show_default=True,
    help="How far that identity is trusted.",
)
@click.option(
    "--direction",
    type=click.Choice(DIRECTIONS),
    default="in",
    show_default=True,
    help="The point of enforcement.",
)
@click.option("--domain", default="", help="The domain of the node.")
@as_json_option
def explain(file: Path, message: str, as_json: bool, **given: str | None) -> None:
    """
    Print what the policy in FILE decides on MESSAGE, and why.

    FILE may be a directory.  MESSAGE is JSON, or a file that has it, or - for standard input.

    \b
    Example:
      msgnode policy explain office.json '{"id":1,"type":"create","from":"hyperty://a.example/1","to":"hyperty://b.example/2"}'
    """
    program = read_policy(file, as_json)
    vector: dict[str, Any] = {"message": _message(message, as_json)}
    names = {"user": "identity"}
    vector |= {names.get(key, key): value for key, value in given.items() if value}
    try:
        explanation = program.explain(context(vector))
    except InvalidValue as why:
        stop(f"message: {why}" if why.under[:1] == ("message",) else str(why), as_json)
    if as_json:
        click.echo(json.dumps(explanation.to_builtins(), default=str))
    else:
        click.echo(str(explanation))
    raise SystemExit(1 if explanation.decision.effect in ("deny", "indeterminate") else 0)


def _message(given: str, as_json: bool) -> dict[str, Any]:
    with readable(as_json):
        if given.lstrip().startswith("{"):
            where, data = "message", given.encode()
        else:
            where = "standard input" if given == "-" else given
            data = sys.stdin.buffer.read() if given == "-" else Path(given).read_bytes()
    try:
        value = Document(data, where, is_ours=False).value
    except PolicyRefused as why:
        stop(str(why), as_json)
    if not isinstance(value, dict):
        stop(f"{where}: expected a message as an object", as_json)
    missing = [key for key in ("id", "type", "from", "to") if key not in value]
    if missing:
        stop(f"{where}: '{missing[0]}' is missing", as_json)
    return value


@policy.command(name="import", short_help="Convert a PoliTHINK policy.")
@policy_file
@as_json_option
def import_command(file: Path, as_json: bool) -> None:
    """
    Print the PoliTHINK policy in FILE as a policy for this node.

    \b
    Example:
      msgnode policy import policy.json > imported.json
    """
    with readable(as_json):
        data = file.read_bytes()
    try:
        made = convert(data, str(file))
        Program([(str(file), made.encode())])
    except PolicyRefused as why:
        refuse(why, as_json)
    click.echo(made if as_json else lay_out(json.loads(made)), nl=as_json)


@policy.command(short_help="Print a policy in the standard layout.")
@policy_file
@click.option(
    "--check", "only_check", is_flag=True, help="Write nothing; exit code 1 if FILE has another layout."
)
@click.option("--write", is_flag=True, help="Write the result to FILE.")
@as_json_option
def fmt(file: Path, only_check: bool, write: bool, as_json: bool) -> None:
    """
    Print the policy in FILE in the standard layout: keys in order, short values on one line.
    """
    if only_check and write:
        raise click.UsageError("--check and --write exclude each other")
    with readable(as_json):
        data = file.read_bytes()
    try:
        made = lay_out(Document(data, str(file), is_ours=not file.name.endswith(VECTORS)).value)
    except PolicyRefused as why:
        refuse(why, as_json)
    changed = made.encode() != data
    if write and changed:
        with readable(as_json, "written"):
            file.write_bytes(made.encode())
    if as_json:
        click.echo(json.dumps({"ok": not (only_check and changed), "changed": changed}))
    elif only_check or write:
        word = "would change" if only_check else "changed"
        click.echo(f"{file}: {word if changed else 'ok'}")
    else:
        click.echo(made, nl=False)
    raise SystemExit(1 if only_check and changed else 0)
