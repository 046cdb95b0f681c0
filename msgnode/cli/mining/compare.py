"""
`msgnode mine compare`: what changed between two periods, or differs between two nodes.
"""

from dataclasses import asdict

import click

from msgnode.cli.mining.directory import (
    as_json_option,
    conf_option,
    mined_argument,
    opened,
    period_of,
    show,
    verbose_option,
)


@click.command(short_help="Say what changed between two periods.")
@mined_argument
@click.option("--a", "before", required=True, metavar="FROM..TO[@NODE]", help="The period before.")
@click.option("--b", "now", required=True, metavar="FROM..TO[@NODE]", help="The period to compare with it.")
@click.option("--most", type=click.IntRange(1), default=10, show_default=True, help="Rows of each table.")
@conf_option
@verbose_option
@as_json_option
def compare(
    mined: str, before: str, now: str, most: int, conf: tuple[str, ...], verbose: bool, as_json: bool
) -> None:
    """
    Say what changed most between two periods of the mined directory DIR.

    Times are in UTC, TO is not included.  With @NODE a period is one of that
    node only, so two nodes can be compared, too.

    \b
    Example:
      msgnode mine compare mined --a 2026-07-30..2026-07-31 --b 2026-07-31..2026-08-01
      msgnode mine compare mined --a 2026-07-31T13..2026-07-31T14@mn1 --b 2026-07-31T13..2026-07-31T14@mn2
    """
    asked = period_of(before, "--a"), period_of(now, "--b")
    with opened(mined, verbose, as_json, conf) as directory:
        from msgnode.mining.mined.compare import compare as compared
        from msgnode.mining.mined.compare import text

        one, other = map(directory.covered, asked)
        changes = compared(directory.rows(one), directory.rows(other), one, other)
        listed = [asdict(change) | {"words": change.words()} for change in changes]
        show(
            text(changes, one, other, asked, most),
            {"a": str(one), "b": str(other), "changes": listed},
            as_json,
        )
