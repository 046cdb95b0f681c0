"""
`msgnode mine check`: are the service levels met?
"""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from msgnode.cli.mine import moment_of, told
from msgnode.cli.mining.directory import (
    as_json_option,
    conf_option,
    mined_argument,
    opened,
    show,
    verbose_option,
)

if TYPE_CHECKING:
    from msgnode.mining.mined.service_levels import Level
    from msgnode.mining.mined.slo_file import SLO

FAILED, NO_DATA = 1, 3  # exit codes


@click.command(short_help="Check service levels, for a cron job.")
@mined_argument
@click.option("--slo", "slo_file", required=True, metavar="FILE", help="The objectives, in TOML.")
@click.option("--at", metavar="TIME", help="The end of all periods, in UTC; the newest line if not given.")
@click.option(
    "--max-age",
    type=click.FloatRange(0, min_open=True),
    metavar="MINUTES",
    help="Exit with 3 if the newest line is older.",
)
@click.option(
    "--prometheus", metavar="FILE", help="Write metrics to FILE, replaced at once, or with - print them."
)
@conf_option
@verbose_option
@as_json_option
def check(
    mined: str,
    slo_file: str,
    at: str | None,
    max_age: float | None,
    prometheus: str | None,
    conf: tuple[str, ...],
    verbose: bool,
    as_json: bool,
) -> None:
    """
    Check the service levels in FILE against the mined directory DIR.

    \b
    Exit codes: 0 all objectives are met; 1 an error budget is spent, or burns
    too fast; 2 something cannot be read; 3 an objective has no data, or the
    data is older than --max-age.

    \b
    Example:
      msgnode mine check mined --slo slo.toml --prometheus /var/lib/node_exporter/msgnode.prom
    """
    end = moment_of(at, "--at")
    with told(as_json):  # before Spark starts, which takes seconds
        slos = _slos(slo_file)
    with opened(mined, verbose, as_json, conf) as directory:
        from msgnode.mining.mined.period import SECOND, Period
        from msgnode.mining.mined.service_levels import DAY_SECONDS, measure
        from msgnode.mining.mined.service_levels import prometheus as as_prometheus
        from msgnode.mining.report.units import duration

        newest = directory.newest()
        end = newest + 1 if end is None else end
        longest = max(slo.days for slo in slos) * DAY_SECONDS * SECOND
        rows = directory.rows(Period(end - longest, end))
        begin = directory.whole.begin
        levels = [measure(slo, rows, end, max(begin, end - slo.days * DAY_SECONDS * SECOND)) for slo in slos]
        if prometheus:
            _write(prometheus, as_prometheus(levels, newest))
        lines = [level.words() for level in levels]
        age = time.time() - newest / SECOND
        stale = max_age is not None and age > max_age * 60
        if stale:
            lines.append(f"{mined}: the newest line is {duration(age)} old")
        found: dict[str, Any] = {
            "levels": [level.as_dict() for level in levels],
            "age_seconds": round(age, 3),
        }
        if prometheus != "-":
            show(lines, found | {"ok": _code(levels, stale) == 0}, as_json)
    raise SystemExit(_code(levels, stale))


def _slos(path: str) -> "list[SLO]":
    from msgnode.mining.mined.slo_file import BadSLO, parse_slos

    try:
        return parse_slos(Path(path).read_text("utf-8"), path)
    except UnicodeDecodeError:
        raise BadSLO(f"{path}:1: the file is not UTF-8") from None
    except OSError as why:
        raise BadSLO(f"{path}: {why.strerror}") from None


def _code(levels: "list[Level]", stale: bool) -> int:
    states = {level.state for level in levels}
    if states & {"spent", "burning"}:
        return FAILED
    return NO_DATA if stale or "no-data" in states else 0


def _write(path: str, text: str) -> None:
    if path == "-":
        click.echo(text, nl=False)
        return
    from msgnode.mining.reading.log_files import Unreadable

    # The collector must not read half of it.
    part = Path(f"{path}.{os.getpid()}.part")
    try:
        part.write_text(text, "utf-8")
        part.replace(path)
    except OSError as why:
        part.unlink(missing_ok=True)
        raise Unreadable(f"--prometheus: cannot write {path}: {why.strerror}") from None
