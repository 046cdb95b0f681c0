"""
`msgnode policy replay`: reports what a policy would have decided on logged traffic.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from msgnode.cli.policy_files import PATH, as_json_option, policy_file, read_policy, readable
from msgnode.policy.decision.rates import RateLimits
from msgnode.policy.replay.log_context import moment_of
from msgnode.policy.replay.replay import judge
from msgnode.policy.replay.report import Report


@click.command(short_help="Try a policy on logged traffic.")
@policy_file
@click.argument("logs", nargs=-1, required=True, type=PATH, metavar="TRAFFIC-LOG...")
@click.option("--domain", default="", help="The domain of the node, for interDomain.")
@click.option(
    "--default",
    type=click.Choice(["permit", "deny"]),
    default="permit",
    show_default=True,
    help="The decision on messages that no rule applies to.",
)
@click.option(
    "--samples", default=3, show_default=True, help="Number of changed messages to show for a rule."
)
@as_json_option
def replay(
    file: Path, logs: tuple[Path, ...], domain: str, default: str, samples: int, as_json: bool
) -> None:
    """
    Report what the policy in FILE would have decided on logged traffic.

    FILE may be a directory.  Decisions that depend on something that is not in
    the log, such as a body, are counted as undecidable, by rule.  Exit code 1:
    at least one decision would have been different.  Times are local times of
    this machine.

    \b
    Example:
      msgnode policy replay office.json traffic-mn1-*.jsonl*
    """
    program = read_policy(file, as_json)
    report = Report(samples, default)
    moment = 0.0
    limits = RateLimits(lambda: moment)
    with readable(as_json):
        for path in logs:
            for line in _lines(path):
                came = moment_of(line)
                moment = moment if came is None else came / 1e9
                if line.get("kind") == "message":
                    report.add(judge(program, line, domain, limits, default), line)
    found = report.to_builtins()
    if as_json:
        click.echo(json.dumps({"revision": program.revision, **found}))
    else:
        _show_report(found)
    raise SystemExit(1 if found["changes"] else 0)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """
    Yields the lines of a log that are JSON; an incomplete line is skipped, as docs/traffic-log.md says.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for line in file:
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(value, dict):
                    yield value
    except (EOFError, gzip.BadGzipFile, zlib.error) as why:
        raise OSError(0, f"not gzip as a whole: {why}", str(path)) from None


def _show_report(found: dict[str, Any]) -> None:
    click.echo(f"{found['messages']} messages" + (f", {found['unread']} unread" if found["unread"] else ""))
    for each in found["effects"]:
        click.echo(f"  {each['messages']:>9}  {each['effect']:14} {each['happened']}")
    for title, key in (("by rule", "rules"), ("would have gone differently", "changes")):
        if found[key]:
            click.echo(f"{title}:")
        for each in found[key]:
            missing = f", because this is missing: {each['missing']}" if each.get("missing") else ""
            path = each["path"] or "no rule"
            click.echo(f"  {each['messages']:>9}  {each['effect']:14} {path}{missing}")
            for line in each.get("samples", ()):
                click.echo(f"             {line.get('type')} {line.get('from')} to {line.get('to')}")
