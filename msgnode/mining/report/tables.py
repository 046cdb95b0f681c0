"""
Tables of the report: the first rows, loaded on the driver, in the units of the report.
"""

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from msgnode.mining.execution.gathering import Asking
from msgnode.mining.execution.kept_plans import first, planned_once
from msgnode.mining.execution.stored_table import StoredTable

MAX_ROWS = 200  # rows of a table in the report
MAX_CELL_CHARS = 160  # characters of a cell

Tables = dict[str, StoredTable]
Section = dict[str, Any]
Column = tuple[str, str, str]  # field, heading, kind
PERCENTS: list[Column] = [
    (name, name.replace("p999", "p99.9"), "micros") for name in ("p50", "p90", "p99", "p999")
]


def table(
    rows: StoredTable | DataFrame,
    columns: list[Column],
    title: str = "",
    note: str = "",
    most: int = MAX_ROWS,
    weigh: tuple[str, str] | None = None,
    whole: tuple[int, int] | None = None,
    cut: int = 0,
) -> Asking:
    """
    A table of the report. The rows are in the order in which they were written.

    `weigh` is a column and its noun: of a table that is cut, their sum in the rows that are not shown. If
    `rows` themselves were cut, `whole` is the number of all rows and their sum; or, if these are not known,
    `cut` is how many rows were kept.
    """
    found = yield first(rows, most + 1) if isinstance(rows, DataFrame) else rows.head(most + 1)
    shown = found[:most]
    is_cut = len(found) > most or (whole is not None and whole[0] > len(shown))
    more = (yield from _not_shown(rows, shown, weigh, whole, cut)) if is_cut else ""
    return {
        "title": title,
        "note": note,
        "more": more,
        "columns": [[heading, kind] for _, heading, kind in columns],
        "rows": [[cell(row, field, kind) for field, _, kind in columns] for row in shown],
    }


def _not_shown(
    table: StoredTable | DataFrame,
    shown: list[Row],
    weigh: tuple[str, str] | None,
    whole: tuple[int, int] | None,
    cut: int,
) -> Asking:
    """
    How many rows are not shown, and their weight: `24 more rows, 20,076 messages, are not shown`.
    """
    if whole is None:
        rows = table if isinstance(table, DataFrame) else table.rows
        [total] = yield counted_rows(rows, weigh[0] if weigh else "")
        whole = total["rows"], total["sum"]
    least = "At least " if whole[0] == cut else ""
    text = f"{least}{whole[0] - len(shown):,} more rows"
    if weigh:
        rest = whole[1] - sum(row[weigh[0]] or 0 for row in shown)
        text += f", {rest:,} {weigh[1]},"
    return f"{text} are not shown. Sorting orders the {len(shown)} shown."


@planned_once
def counted_rows(rows: DataFrame, weight: str = "") -> DataFrame:
    """
    The number of `rows`, and the `sum` of a column of them.
    """
    sum_ = F.coalesce(F.sum(weight), F.lit(0)) if weight else F.lit(0)
    return rows.agg(F.count("*").alias("rows"), sum_.alias("sum"))


def cell(row: Row, field: str, kind: str) -> Any:
    """
    A value in the form of the report; `last.time` reads a field of a struct.
    """
    value: Any = row
    for name in field.split("."):
        value = None if value is None else value[name]
    if kind in ("moment", "minute") and isinstance(value, int):
        return moment(value)[: 16 if kind == "minute" else None]
    if kind == "text" and isinstance(value, str) and len(value) > MAX_CELL_CHARS:
        return value[: MAX_CELL_CHARS - 1] + "…"
    return value


def moment(nanoseconds: int) -> str:
    """
    A time as 2026-07-31 14:05:06.123, in UTC.
    """
    whole, rest = divmod(nanoseconds, 1_000_000_000)
    try:
        text = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(nanoseconds)
    return f"{text}.{rest // 1_000_000:03}"
