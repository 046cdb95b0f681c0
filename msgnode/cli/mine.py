"""
`msgnode mine`: what the traffic log has to tell.  tools/mine.py is the same command.
"""

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from msgnode.cli import INTERRUPTED

if TYPE_CHECKING:
    from msgnode.mining.pipeline.run import Result

EVERY = 60  # seconds between two looks at a log that grows


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    short_help="Answer questions from the traffic logs.",
)
@click.argument("logs")
@click.option("--out", required=True, metavar="DIR", help="Where tables and report go.")
@click.option("--overwrite", is_flag=True, help="Begin anew, whatever lies in DIR.")
@click.option("--follow", is_flag=True, help=f"Look for new lines every {EVERY} s, until Ctrl-C.")
@click.option(
    "--every", type=click.IntRange(1), default=EVERY, show_default=True, help="Seconds, with --follow."
)
@click.option(
    "--pseudonymise", metavar="KEY", help="Replace identifiers by hashes with KEY, or the key in @FILE."
)
@click.option("--policy", metavar="FILE", help="Say what this policy would have done; a file or a directory.")
@click.option("--domain", default="", help="The node's own domain, for policies that ask for it.")
@click.option(
    "--default", type=click.Choice(["permit", "deny"]), default="permit", show_default=True,
    help="What becomes of messages that no rule of the policy applies to.",
)  # fmt: skip
@click.option("--story", multiple=True, metavar="ADDRESS", help="Tell all that ADDRESS did.  Repeatable.")
@click.option("--conversation", default="", metavar="ID", help="Show the way of the messages with this id.")
@click.option("--verbose", is_flag=True, help="Let Spark say what it does.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def mine(logs: str, follow: bool, every: int, verbose: bool, as_json: bool, **others: Any) -> None:
    """
    Answer questions from the traffic logs in LOGS, as tables and as a report.

    LOGS and DIR are directories, here or behind hdfs:// or s3a://.  A second
    run with the same DIR reads only what is new.  Needs Java and the extra
    msgnode[mining].

    \b
    Example:
      msgnode mine /var/lib/msgnode/traffic --out mined
    """
    say = Progress(as_json)
    if not verbose:
        logging.disable(logging.CRITICAL)  # Py4J tells of an interrupt with tracebacks
    with _told(as_json):
        from msgnode.mining.pipeline.run import MiningRun
        from msgnode.mining.pipeline.spark import session

        options = _options(logs, others)
        with session(verbose) as spark:
            mine = MiningRun(spark, options, say.step)
            shown = partial(_print, logs=options.logs, as_json=as_json, say=say)
            shown(mine.run())
            if follow:
                _follow(mine.run, shown, partial(time.sleep, every))


def _follow(run: "Callable[[], Result]", shown: "Callable[[Result], None]", wait: Callable[[], None]) -> None:
    """
    Run again after each wait, until one is interrupted, and show what was new.

    A run that fails is tried again by the next.
    """
    from msgnode.mining.pipeline.output import OutputRefused

    while True:
        try:
            wait()
            found = run()
            if found.files:
                shown(found)
        except KeyboardInterrupt:
            return
        except Exception as why:
            sentence = _sentence(why)
            if not sentence or isinstance(why, OutputRefused):
                raise
            click.echo(f"msgnode: {sentence}; will try again", err=True)


def _options(logs: str, others: dict[str, Any]) -> Any:
    from msgnode.mining.pipeline.log_files import Unreadable
    from msgnode.mining.pipeline.run import Options

    key = others["pseudonymise"]
    if key and key.startswith("@"):
        try:
            key = Path(key[1:]).read_text("utf-8").strip()
        except OSError as why:
            raise Unreadable(f"{key[1:]}: {why.strerror}") from None
    if key is not None and len(key) < 16:
        raise Unreadable("the key for pseudonyms must have 16 characters or more, or guessing undoes them")
    return Options(
        logs=logs,
        out=others["out"],
        overwrite=others["overwrite"],
        key=(key or "").encode(),
        policy=others["policy"] or "",
        domain=others["domain"],
        default=others["default"],
        stories=others["story"],
        conversation=others["conversation"],
    )


@contextmanager
def _told(as_json: bool) -> Iterator[None]:
    """
    Every failure as one sentence and an exit code.
    """
    try:
        import pyspark  # noqa: F401
    except ImportError:
        _stop("Spark for Python is missing; install it: pip install 'msgnode[mining]'", 2, as_json)
    from msgnode.mining.pipeline.output import OutputRefused

    try:
        yield
    except Exception as why:
        if _was_interrupted(why):
            raise SystemExit(INTERRUPTED) from None
        sentence = _sentence(why)
        if not sentence:
            raise
        _stop(sentence, 1 if isinstance(why, OutputRefused) else 2, as_json)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


def _was_interrupted(why: BaseException | None) -> bool:
    """
    Is it what came of an interrupt?  Py4J fails over one while it waits for Spark.
    """
    while why is not None:
        if isinstance(why, KeyboardInterrupt):
            return True
        why = why.__cause__ or why.__context__
    return False


def _sentence(why: Exception) -> str:
    """
    A failure in the operator's words; empty if it is a mistake of ours, which deserves its traceback.
    """
    from pyspark.errors import PySparkException

    from msgnode.mining.pipeline.log_files import Unreadable
    from msgnode.mining.pipeline.output import OutputRefused

    java = getattr(why, "java_exception", None)
    if java is not None:  # the text of such an exception begins with the name of a call
        return f"Spark gave up: {java.getMessage()}".splitlines()[0].rstrip()
    if isinstance(why, PySparkException):
        return f"Spark gave up: {why}".splitlines()[0].rstrip()
    return str(why) if isinstance(why, OutputRefused | Unreadable | OSError | ValueError) else ""


def _stop(text: str, code: int, as_json: bool) -> NoReturn:
    if as_json:
        click.echo(json.dumps({"ok": False, "error": text}))
    else:
        click.echo(f"msgnode: {text}", err=True)
    raise SystemExit(code)


def _print(result: "Result", logs: str, as_json: bool, say: "Progress") -> None:
    say.end()
    if as_json:
        click.echo(json.dumps({"ok": True, **vars(result)}))
    elif not result.report:
        click.echo(f"{logs}: no traffic log here; its files are named traffic-NODE-YYYYMMDDTHH.jsonl")
    else:
        aside = f", {result.bad:,} set aside in _bad" if result.bad else ""
        files = "1 file" if result.files == 1 else f"{result.files:,} files"
        new = f"{files} read" if result.files else "nothing new"
        click.echo(f"{new} in {result.seconds:.1f} s; {result.lines:,} lines in all{aside}")
        click.echo(f"report: {result.report}")


class Progress:
    """
    A progress display on standard error: one line that changes on a terminal, else a line each.
    """

    def __init__(self, silent: bool) -> None:
        self._silent = silent
        self._terminal = sys.stderr.isatty()
        self._begun = time.monotonic()

    def step(self, what: str) -> None:
        if self._silent:
            return
        text = f"{time.monotonic() - self._begun:6.0f} s  {what} ..."
        click.echo(f"\r\x1b[K{text}" if self._terminal else text, err=True, nl=not self._terminal)

    def end(self) -> None:
        if self._terminal and not self._silent:
            click.echo("\r\x1b[K", err=True, nl=False)
