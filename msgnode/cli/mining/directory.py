"""
Arguments and options of the verbs on a mined directory, and failures as one sentence.
"""

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from msgnode.cli.mine import told

if TYPE_CHECKING:
    from msgnode.mining.mined.directory import MinedDirectory
    from msgnode.mining.mined.period import Period

mined_argument = click.argument("mined", metavar="DIR")
as_json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
conf_option = click.option(
    "--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark for a local run; may be repeated."
)
verbose_option = click.option("--verbose", is_flag=True, help="Show the log of Spark.")
from_option = click.option("--from", "begin", metavar="TIME", help="Only from this time on, in UTC.")
to_option = click.option("--to", "end", metavar="TIME", help="Only before this time, in UTC.")


@contextmanager
def opened(where: str, verbose: bool, as_json: bool, conf: Sequence[str] = ()) -> "Iterator[MinedDirectory]":
    """
    A mined directory, with Spark. A failure ends the command with one sentence and exit code 2.
    """
    if not verbose:
        logging.disable(logging.CRITICAL)  # Py4J logs tracebacks at an interrupt
    with told(as_json, verbose):
        from msgnode.mining.mined.directory import MinedDirectory
        from msgnode.mining.pipeline.spark import session

        if _is_delta(where):
            from msgnode.mining.pipeline.delta import settings

            conf = settings(conf)
        with session(verbose, (where,), conf) as spark:
            yield MinedDirectory(spark, where)


def _is_delta(where: str) -> bool:
    """
    Does a local directory have Delta tables? Of another one it is not known before Spark runs.
    """
    return os.path.isdir(os.path.join(where.removeprefix("file://"), "lines/_delta_log"))


def period_of(text: str, option: str) -> "Period":
    """
    A period from an option. A usage error if it is not one.
    """
    from msgnode.mining.mined.period import parse_period

    try:
        return parse_period(text)
    except ValueError as why:
        raise click.BadParameter(str(why), param_hint=option) from None


def show(lines: list[str], found: Any, as_json: bool) -> None:
    """
    Print the lines, or the same as JSON.
    """
    click.echo(json.dumps({"ok": True, **found}, ensure_ascii=False) if as_json else "\n".join(lines))
