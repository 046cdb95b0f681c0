"""
Tables, durations and sizes for terminals.
"""

import shutil
import sys
from collections.abc import Iterable, Sequence

import click

from msgnode.cli.links import rich_table

GAP = "  "
UNBOUNDED_COLUMNS = 1_000_000
_STEPS = ((86400, "d"), (3600, "h"), (60, "min"))
COLORS = {"up": "green", "refused": "red", "banned": "red", "ok": "green", "failed": "red", "skipped": None}


def terminal_columns() -> int:
    """
    Returns the width of the terminal. A pipe or a file has none: a row is one line there, unless COLUMNS is
    set.
    """
    return shutil.get_terminal_size((80 if sys.stdout.isatty() else UNBOUNDED_COLUMNS, 24)).columns


def table(head: Sequence[str], rows: Iterable[Sequence[str]], columns: int, words: int = 1) -> list[str]:
    """
    Returns the lines of a table; the first `words` cells of a row are words, the others are numbers.

    A name in the first cell that is too long for the terminal has a line of its own. Empty columns are left
    out. On a terminal Rich draws the table, if it is installed.
    """
    rows = [list(row) for row in rows]
    kept = [n for n in range(len(head)) if n == 0 or any(row[n] for row in rows)]
    if rich_table.draws():
        shown = [[row[n] for n in kept] for row in rows]
        return rich_table.draw([head[n] for n in kept], shown, columns, words)
    cells = [[row[n] for n in kept] for row in [list(head), *rows]]
    numbers = [n >= words for n in kept]
    widths = [max(len(click.unstyle(row[n])) for row in cells) for n in range(len(kept))]
    rest = sum(widths[1:]) + len(GAP) * (len(widths) - 1)
    widths[0] = min(widths[0], max(columns - rest, len(head[0])))
    lines = []
    for row in cells:
        if len(row[0]) > widths[0]:
            lines.append(row[0])
            row = ["", *row[1:]]
        lines.append(GAP.join(_justify(*cell) for cell in zip(row, widths, numbers, strict=True)).rstrip())
    lines[0] = click.style(lines[0], bold=True)
    return lines


def _justify(cell: str, width: int, is_number: bool) -> str:
    blank = " " * (width - len(click.unstyle(cell)))
    return blank + cell if is_number else cell + blank


def colored(text: str, by: str | None = None) -> str:
    return click.style(text, fg=COLORS.get(by or text, "yellow"))


def duration(seconds: float | None) -> str:
    """
    Returns a duration in two or three digits: `12 ms`, `0.4 s`, `90 s`, `3 min`, `25 h`, `89 d`.
    """
    if seconds is None:
        return ""
    if seconds < 0.1:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 or not seconds else f"{seconds * 1000:.1f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for size, unit in _STEPS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def size(number: int) -> str:
    """
    Returns a number of bytes as `900 bytes`, `70.0 kB`, `1.2 GB`.
    """
    if number < 1000:
        return f"{number} bytes"
    value = float(number)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 1000:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} TB"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def short(node: str) -> str:
    """
    Returns the name of a node without its scheme.
    """
    return node.removeprefix("mn://")
