"""
Rows of a query as text: a table for people, and CSV for other programs.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

MAX_CELL = 60  # characters of a cell in a table
_NUMBERS = (int, float, Decimal)


def plain(value: Any) -> Any:
    """
    A value as JSON has it: rows and maps as objects, times and long decimals as text.
    """
    if hasattr(value, "asDict"):
        return {name: plain(part) for name, part in value.asDict().items()}
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, date | datetime | Decimal):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def text(value: Any) -> str:
    """
    A value as one text; nothing for null.
    """
    value = plain(value)
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def csv_line(values: Iterable[Any]) -> str:
    """
    A line of CSV by RFC 4180. Null is an empty field, an empty text one of two quotes.
    """
    return ",".join(map(_field, values)) + "\r\n"


def _field(value: Any) -> str:
    if value is None:
        return ""
    said = text(value)
    if said and not set(said) & set(',"\r\n') and said == said.strip():
        return said
    return '"' + said.replace('"', '""') + '"'


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """
    The lines of a table with a heading: numbers to the right, long cells cut, without control characters.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    heads = [_cell(name) for name in columns]
    widths = [max(len(row[at]) for row in [heads, *cells]) for at in range(len(heads))]
    right = [
        any(_is_number(row[at]) for row in rows) and all(_is_number(row[at], True) for row in rows)
        for at in range(len(heads))
    ]

    def line(row: Sequence[str]) -> str:
        aligned = (
            cell.rjust(width) if to else cell.ljust(width)
            for cell, width, to in zip(row, widths, right, strict=True)
        )
        return "  ".join(aligned).rstrip()

    return [line(heads), "  ".join("-" * width for width in widths), *map(line, cells)]


def _is_number(value: Any, or_null: bool = False) -> bool:
    return (or_null and value is None) or (isinstance(value, _NUMBERS) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    said = "".join(each if each.isprintable() else "�" for each in text(value))
    return said if len(said) <= MAX_CELL else said[: MAX_CELL - 1] + "…"
