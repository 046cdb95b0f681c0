"""
The first rows of a table, brought to the driver in the units of the report.
"""

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

MAX_ROWS = 100  # rows of a table in the report
MAX_CELL_CHARS = 160  # characters of an address in it

Tables = dict[str, DataFrame]
Section = dict[str, Any]
Column = tuple[str, str, str]  # field, heading, kind
PERCENTS: list[Column] = [
    (name, name.replace("p999", "p99.9"), "micros") for name in ("p50", "p90", "p99", "p999")
]


def table(
    rows: DataFrame, columns: list[Column], title: str = "", note: str = "", most: int = MAX_ROWS
) -> dict[str, Any]:
    """
    A table of the report; the rows come in the order that they were written in.
    """
    found = rows.limit(most).collect()
    values = [[cell(row, field, kind) for field, _, kind in columns] for row in found]
    more = f"The first {most} rows." if len(found) == most else ""
    return {
        "title": title,
        "note": " ".join(filter(None, (note, more))),
        "columns": [[heading, kind] for _, heading, kind in columns],
        "rows": values,
    }


def cell(row: Row, field: str, kind: str) -> Any:
    """
    A value as the report shows it; `last.time` looks into a struct.
    """
    value: Any = row
    for name in field.split("."):
        value = None if value is None else value[name]
    if kind == "moment" and isinstance(value, int):
        return moment(value)
    if kind == "text" and isinstance(value, str) and len(value) > MAX_CELL_CHARS:
        return value[: MAX_CELL_CHARS - 1] + "…"
    return value


def moment(nanoseconds: int) -> str:
    """
    2026-07-31 14:05:06.123, in UTC.
    """
    whole, rest = divmod(nanoseconds, 1_000_000_000)
    try:
        text = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(nanoseconds)
    return f"{text}.{rest // 1_000_000:03}"


def clock(hours: int) -> str:
    """
    2026-07-31 14:00 for a count of hours since 1970.
    """
    return datetime.fromtimestamp(hours * 3600, UTC).strftime("%Y-%m-%d %H:%M")


def latest(rows: DataFrame, *order: str, most: int) -> list[Row]:
    """
    The last so many rows, oldest first.
    """
    found = rows.orderBy(*[F.desc(name) for name in order]).limit(most).collect()
    return found[::-1]
