"""
`msgnode mine`: analyses the traffic log.  tools/mine.py is the same command.
"""

import json
import logging
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import ENOSPC
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from msgnode.cli import INTERRUPTED

if TYPE_CHECKING:
    from msgnode.mining.pipeline.run import Result

_REQUIRED = {
    "pyspark": "Spark for Python is",
    "pyarrow": "Arrow for Python is",
    "msgnode_report": "the charts of the report are",
}
_UNREADABLE = re.compile(r"^\[FAILED_READ_FILE\S*\] .* reading file (\S.*?)\.?\s+SQLSTATE")
_FULL = "no space left on the device, in the output or in the directory for temporary files"
FOLLOW_SECONDS = 60  # seconds between two reads of a log that grows


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    short_help="Analyse the traffic logs.",
)
@click.argument("logs")
@click.option("--out", required=True, metavar="DIR", help="The directory for the tables and the report.")
@click.option("--overwrite", is_flag=True, help="Start again, and replace what is in DIR.")
@click.option("--follow", is_flag=True, help=f"Look for new lines every {FOLLOW_SECONDS} s, until Ctrl-C.")
@click.option(
    "--every",
    type=click.IntRange(1),
    default=FOLLOW_SECONDS,
    show_default=True,
    help="Seconds between two reads with --follow.",
)
@click.option(
    "--pseudonymise", metavar="KEY", help="Replace identifiers by hashes with KEY, or the key in @FILE."
)
@click.option(
    "--policy", metavar="FILE", help="Report what this policy (a file or a directory) would have decided."
)
@click.option("--domain", default="", help="The domain of the node, for policies that test it.")
@click.option(
    "--default", type=click.Choice(["permit", "deny"]), default="permit", show_default=True,
    help="The decision on messages that no rule of the policy applies to.",
)  # fmt: skip
@click.option(
    "--story", multiple=True, metavar="ADDRESS", help="Include a timeline of ADDRESS; may be repeated."
)
@click.option(
    "--conversation",
    default="",
    metavar="ID",
    help="Show the path of the messages with this id or transaction.",
)
@click.option("--records", metavar="DEFINITIONS", help="Show records by the names in this file or directory.")
@click.option(
    "--keep",
    type=click.IntRange(1),
    default=None,
    metavar="DAYS",
    help="Keep the last DAYS days only, in DIR.",
)
@click.option(
    "--format", "stored", type=click.Choice(["parquet", "delta"]), default="parquet", show_default=True,
    help="How lines, exchanges and lives are stored in DIR.",
)  # fmt: skip
@click.option(
    "--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark for a local run; may be repeated."
)
@click.option(
    "--class-archive",
    default="",
    metavar="DIR",
    help="Keep the classes of Java in DIR (about 180 MiB), for later runs to start sooner.",
)
@click.option("--from", "begin", metavar="TIME", help="Also write a report from this time on, in UTC.")
@click.option("--to", "end", metavar="TIME", help="Also write a report until before this time, in UTC.")
@click.option("--verbose", is_flag=True, help="Show the log of Spark.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def mine(
    logs: str,
    follow: bool,
    every: int,
    conf: tuple[str, ...],
    class_archive: str,
    begin: str | None,
    end: str | None,
    verbose: bool,
    as_json: bool,
    **others: Any,
) -> None:
    """
    Answer questions from the traffic logs in LOGS, as tables and as a report.

    LOGS and DIR are directories, here or behind hdfs:// or s3a://.  A second
    run with the same DIR reads only what is new.  With --from or --to a report
    of that period is written next to the report of everything.  Needs Java and
    the extra msgnode[mining].

    \b
    Example:
      msgnode mine /var/lib/msgnode/traffic --out mined
    """
    say = Progress(as_json)
    ends = moment_of(begin, "--from"), moment_of(end, "--to")
    if None not in ends and ends[0] >= ends[1]:  # type: ignore[operator]
        raise click.BadParameter(f"{end} is not after {begin}", param_hint="--to")
    if not verbose:
        logging.disable(logging.CRITICAL)  # Py4J logs tracebacks at an interrupt
    with _ended_by_signal(), told(as_json, verbose):
        from msgnode.mining.mined.directory import MinedDirectory
        from msgnode.mining.pipeline.run import MiningRun
        from msgnode.mining.pipeline.spark import session

        options = _options(logs, others)
        if options.format == "delta":
            from msgnode.mining.pipeline.delta import settings

            conf = tuple(settings(conf))
        with session(verbose, (logs, options.out), conf, class_archive) as spark:
            mine = MiningRun(spark, options, say.step)

            def run() -> "Result":
                result = mine.run()
                if result.report and ends != (None, None):
                    directory = MinedDirectory(spark, options.out)
                    result.report = directory.report(directory.period(*ends), say.step, options.records)
                return result

            shown = partial(_print, logs=options.logs, as_json=as_json, say=say)
            shown(run())
            if follow:
                _follow(run, shown, partial(time.sleep, every))


@contextmanager
def _ended_by_signal() -> Iterator[None]:
    """
    SIGTERM is as Ctrl-C: temporary files are removed.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _follow(run: "Callable[[], Result]", shown: "Callable[[Result], None]", wait: Callable[[], None]) -> None:
    """
    Run again after each wait, until Ctrl-C, and show what was new.

    The next run reads the lines that a failed run did not read. Without Java there is none.
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
            if _was_interrupted(why):
                return
            sentence = _sentence(why)
            if not sentence or isinstance(why, OutputRefused) or _has_lost_java(why):
                raise
            click.echo(f"msgnode: {sentence}; will try again", err=True)


def moment_of(text: str | None, option: str) -> int | None:
    """
    A time from an option in nanoseconds since 1970; None if it is not given. A usage error if it is none.
    """
    from msgnode.mining.mined.period import parse_moment

    try:
        return None if text is None else parse_moment(text)
    except ValueError as why:
        raise click.BadParameter(str(why), param_hint=option) from None


def key_of(key: str | None) -> bytes:
    """
    The key for pseudonyms from an option, which may name a file as @FILE; empty if it is not given.
    """
    from msgnode.mining.reading.log_files import Unreadable

    if key and key.startswith("@"):
        try:
            key = Path(key[1:]).read_text("utf-8").strip()
        except OSError as why:
            raise Unreadable(f"{key[1:]}: {why.strerror}") from None
    if key is not None and len(key) < 16:
        raise Unreadable(
            "the key for pseudonyms must have 16 characters or more, or they can be undone by guessing"
        )
    return (key or "").encode()


def record_names(where: str | None) -> dict[str, str]:
    """
    The names by id of the records that are defined there, and of the node's own.
    """
    from msgnode.mining.reading.log_files import Unreadable
    from msgnode.records.problems import DefinitionsRefused
    from msgnode.records.reader import read, system_records

    try:
        own = read(Path(where)) if where else ()
    except DefinitionsRefused as why:
        raise Unreadable(f"--records: {why}") from None
    return {record.id: record.name for record in (*system_records(), *own)}


def _options(logs: str, others: dict[str, Any]) -> Any:
    from msgnode.mining.pipeline.run import Options

    key = key_of(others["pseudonymise"])
    return Options(
        logs=logs,
        out=others["out"],
        overwrite=others["overwrite"],
        key=key,
        policy=others["policy"] or "",
        domain=others["domain"],
        default=others["default"],
        stories=others["story"],
        conversation=others["conversation"],
        keep=others["keep"] or 0,
        records=record_names(others["records"]),
        format="" if others["stored"] == "parquet" else others["stored"],
    )


@contextmanager
def told(as_json: bool, verbose: bool = False) -> Iterator[None]:
    """
    Report each failure as one sentence and an exit code. Only `verbose` shows where a bug was.
    """
    for package, what in _REQUIRED.items():
        if find_spec(package) is None:
            _stop(f"{what} missing; install: pip install 'msgnode[mining]'", 2, as_json)
    from msgnode.mining.pipeline.output import OutputRefused

    try:
        yield
    except Exception as why:
        if _was_interrupted(why):
            raise SystemExit(INTERRUPTED) from None
        sentence = _sentence(why)
        if not sentence and verbose:
            raise
        if not sentence:
            said = str(why).partition("\n")[0]
            sentence = f"internal error, {type(why).__name__}: {said} (--verbose shows where)"
        _stop(sentence, 1 if isinstance(why, OutputRefused) else 2, as_json)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


def _was_interrupted(why: BaseException | None) -> bool:
    """
    Was the failure caused by Ctrl-C?  Py4J fails with an error of its own while it waits for Spark.
    """
    while why is not None:
        if isinstance(why, KeyboardInterrupt):
            return True
        why = why.__cause__ or why.__context__
    return False


def _sentence(why: Exception) -> str:
    """
    Returns a failure as one sentence; empty for a bug, which gets its traceback.
    """
    from pyspark.errors import PySparkException

    from msgnode.mining.pipeline.output import OutputRefused
    from msgnode.mining.reading.log_files import NO_SPACE, Unreadable

    java = getattr(why, "java_exception", None)
    if java is not None:  # the text of such an exception begins with the name of a call
        if NO_SPACE in _causes(java):
            return _FULL
        return _of_spark(str(java.getMessage()))
    if _has_lost_java(why):
        return "the Java process of Spark has ended; it may need more memory: --conf spark.driver.memory=4g"
    if isinstance(why, PySparkException):
        return _of_spark(str(why))
    if isinstance(why, OSError) and why.errno == ENOSPC:
        return _FULL
    if isinstance(why, OSError) and why.filename and why.strerror:
        return f"{why.filename}: {why.strerror}"
    return str(why) if isinstance(why, OutputRefused | Unreadable | OSError | ValueError) else ""


def _has_lost_java(why: BaseException | None) -> bool:
    """
    Is this, or what it came from, a failure to reach the process of Spark?
    """
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    while why is not None:
        if isinstance(why, Py4JNetworkError | ConnectionRefusedError | ConnectionResetError):
            return True
        why = why.__cause__ or why.__context__
    return False


def _causes(java: Any) -> str:
    """
    The messages of a Java error and of its causes.
    """
    found: list[str] = []
    while java is not None and len(found) < 20:
        found.append(str(java.getMessage()))
        java = java.getCause()
    return "\n".join(found)


def _of_spark(said: str) -> str:
    """
    The words of Spark as one sentence; of a file that cannot be read, its name and what to do.
    """
    unreadable = _UNREADABLE.search(said)
    if unreadable:
        remedy = "it may be truncated or damaged; repair it, or move it elsewhere, and run again"
        return f"{unreadable[1].removeprefix('file://')}: cannot be read: {remedy}"
    return f"Spark failed: {said}".splitlines()[0].rstrip()


def _stop(text: str, code: int, as_json: bool) -> NoReturn:
    if as_json:
        click.echo(json.dumps({"ok": False, "error": text}))
    else:
        click.echo(f"msgnode: {text}", err=True)
    raise SystemExit(code)


def _print(result: "Result", logs: str, as_json: bool, say: "Progress") -> None:
    from msgnode.mining.report.units import count

    say.end()
    if as_json:
        click.echo(json.dumps({"ok": True, **vars(result)}))
    elif not result.report:
        click.echo(f"{logs}: no traffic log here; its files are named traffic-NODE-YYYYMMDDTHH.jsonl")
    else:
        aside = f", {result.bad:,} set aside in _bad" if result.bad else ""
        new = f"{count(result.files, 'file')} read" if result.files else "nothing new"
        click.echo(f"{new} in {result.seconds:.1f} s; {count(result.lines, 'line')} in all{aside}")
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
