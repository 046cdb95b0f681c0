"""
Tables on a terminal, drawn by Rich.
"""

import re
import sys

import pytest

from msgnode.cli.links import rich_table
from msgnode.cli.links.layout import colored, table, terminal_columns

pytest.importorskip("rich", reason="Rich is not installed; the extra [test] installs it")

HEAD = ("NODE", "STATE", "COST")


def plain(lines: list[str]) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines))


def test_draws_words_to_the_left_and_numbers_to_the_right() -> None:
    """
    A table has a line below its head; its last column is flush right.
    """
    lines = plain(rich_table.draw(HEAD, [["a.example", "up", "7"], ["b.example", "up", "1,200"]], 60, 2))

    head, rule, first, second = lines.splitlines()
    assert ["NODE", "STATE", "COST"] == head.split()
    assert set(rule.strip()) <= {"─", " "}
    assert first.endswith("    7") and second.endswith("1,200")
    assert len(first) == len(second)


def test_keeps_the_colour_of_a_cell() -> None:
    """
    A state is green as in a plain table.
    """
    lines = rich_table.draw(HEAD, [["a.example", colored("up"), "7"]], 60, 2)

    assert "\x1b[32mup" in lines[-1]


def test_takes_a_name_that_looks_like_markup_as_a_name() -> None:
    """
    A peer that is called [red]x[/red] or :boom: is shown so.
    """
    shown = plain(rich_table.draw(HEAD, [["[red]x[/red] :boom:", "up", "7"]], 60, 2))

    assert "[red]x[/red] :boom:" in shown


def test_folds_a_name_that_is_longer_than_the_terminal() -> None:
    """
    Nothing of a long name is lost, and no line is wider than the terminal.
    """
    name = "node-" + "x" * 80

    lines = plain(rich_table.draw(HEAD, [[name, "up", "7"]], 40, 2)).splitlines()

    assert max(map(len, lines)) <= 40
    assert "".join(lines).count("x") == 80


def test_a_row_is_one_line_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Programs read it line by line, so it has no width there, unless COLUMNS gives one.
    """
    monkeypatch.delenv("COLUMNS", raising=False)
    rows = [["node-" + "x" * 200, "up", "7"], ["b.example", "up", "1,200"]]

    assert 3 == len(table(HEAD, rows, terminal_columns(), 2))
    monkeypatch.setenv("COLUMNS", "80")
    assert 4 == len(table(HEAD, rows, terminal_columns(), 2))


def test_draws_nothing_into_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    """
    Where the output is no terminal, a table is plain columns.
    """
    assert not sys.stdout.isatty()

    assert "a.example  up        7" in plain(table(HEAD, [["a.example", "up", "7"]], 60, 2))
