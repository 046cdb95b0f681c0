"""
Tables drawn by Rich, where it is installed and the output is a terminal.

Cells have names that peers chose: they are text with colours of our own, and never Rich's markup.
"""

import os
import sys
from collections.abc import Sequence
from io import StringIO

try:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
except ImportError:  # the extra "admin" is not installed
    is_installed = False
else:
    is_installed = True


def draws() -> bool:
    """
    Are tables drawn by Rich here?
    """
    return is_installed and sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def draw(head: Sequence[str], rows: Sequence[Sequence[str]], columns: int, words: int) -> list[str]:
    """
    Returns the lines of a table of at most `columns`; the first `words` cells of a row are words, the others
    are numbers. What does not fit is folded, never cut.
    """
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for number, name in enumerate(head):
        is_word = number < words
        table.add_column(
            Text(name), justify="left" if is_word else "right", overflow="fold", no_wrap=not is_word
        )
    for row in rows:
        table.add_row(*(Text.from_ansi(cell) for cell in row))
    out = StringIO()
    console = Console(
        file=out, width=columns, force_terminal=True, color_system="standard", highlight=False, emoji=False
    )
    console.print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()]
