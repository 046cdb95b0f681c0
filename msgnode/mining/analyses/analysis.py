"""
An analysis: how each batch of hours is summarised, and how the summaries of all batches are combined.

Summaries are additive: `combine` gets the same sums, however the log was divided into batches. Therefore one
run over everything and many small runs give the same results.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from msgnode.mining.execution.kept_plans import planned_once
from msgnode.mining.sql.dialect import SPARK, Dialect

Transform = Callable[[DataFrame], DataFrame]
Query = Callable[[Dialect, str], str]  # of a table of this name
TOTALS = StructType(
    [
        StructField(name, StringType() if name in ("table", "measure") else LongType())
        for name in ("table", "measure", "total", "rows")
    ]
)
Source = Literal["lines", "messages", "events", "exchanges", "lives"]
Asked = tuple[Source, Query]


@dataclass(frozen=True)
class Analysis:
    """
    An analysis of the traffic log.

    `summary` is a query of the rows `of`, for an engine; `combine` gets the summaries of all batches.

    A result with too many rows is `cut` for show. The number of all its rows, and the sums of the columns
    `sums`, are in the table `totals`. One that `grows` with the log has all its rows in its table.

    `fold` merges the summaries of several batches, so that they do not grow with the number of runs; without
    it they are only concatenated. `shares` names another analysis whose summaries are used.
    """

    name: str
    of: Source
    summary: Query
    combine: Transform
    fold: Transform | None = None
    shares: str = ""
    cut: Transform | None = None
    sums: tuple[str, ...] = ()
    grows: bool = False

    @property
    def kept(self) -> str:
        """
        The name under which the summaries are stored.
        """
        return self.shares or self.name

    def summarise(self, rows: DataFrame) -> DataFrame:
        """
        The summary of these rows, by Spark.
        """
        return asked(self.summary, rows)

    def result(self, parts: DataFrame) -> DataFrame:
        """
        The table of the analysis, from the summaries of all batches.
        """
        rows = self.combine(parts)
        return rows if self.cut is None else self.cut(rows)


@planned_once
def asked(query: Query, rows: DataFrame) -> DataFrame:
    """
    The answer of Spark.
    """
    return rows.sparkSession.sql(query(SPARK, "{rows}"), rows=rows)


@planned_once
def totals(question: Analysis, parts: DataFrame) -> DataFrame:
    """
    The totals of a table that is cut for show: `table`, `measure`, `total`, and the number of its `rows`.
    """
    return totals_of(question.combine(parts), question.name, *question.sums)


def totals_of_values(question: Analysis, values: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """
    The same as `totals`, from the rows of a table that was not cut, as rows of TOTALS.
    """
    return [
        dict(
            zip(
                TOTALS.names,
                (question.name, each, sum(row.get(each) or 0 for row in values), len(values)),
                strict=True,
            )
        )
        for each in question.sums
    ]


@planned_once
def totals_of(rows: DataFrame, name: str, *sums: str) -> DataFrame:
    """
    The sums of these columns over all rows of a table, one row for each, with the number of rows.
    """
    counted = rows.agg(
        F.count("*").alias("rows"), *[F.coalesce(F.sum(each), F.lit(0)).alias(each) for each in sums]
    )
    measures = [
        F.struct(F.lit(each).alias("measure"), F.col(each).cast("long").alias("total")) for each in sums
    ]
    return counted.select(
        F.lit(name).alias("table"), F.explode(F.array(*measures)).alias("one"), "rows"
    ).select("table", "one.measure", "one.total", "rows")


def sum_fold(*sums: str, least: str = "", most: str = "") -> Transform:
    """
    A fold that sums these columns, keeps the minimum of `least` and the maximum of `most`, and groups by all
    others.
    """

    def fold(parts: DataFrame) -> DataFrame:
        totals = [F.sum(name).alias(name) for name in sums]
        totals += [F.min(least).alias(least)] if least else []
        totals += [F.max(most).alias(most)] if most else []
        keys = [name for name in parts.columns if name not in (*sums, least, most)]
        return parts.groupBy(*keys).agg(*totals)

    return fold
