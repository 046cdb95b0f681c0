"""
Plans that are kept: with --follow the same questions are asked again and again, and for few rows Spark takes
longer to plan them than to answer them.

Spark executes a query again with the same plan, and what the plan reads is read again. Therefore what changes
from look to look is in files at fixed places (ChangingRows), and a function that makes a query returns the
same query for the same arguments (planned_once).
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, TypeVar, cast
from weakref import WeakSet

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import ArrayType, StructField, StructType

MAX_PLANS = 24  # about twice as many as a look has
MAX_QUERIES = 128  # that one function has made
# Operators of a plan that keep their rows.
_KEEPERS = ("Exchange", "InMemoryTableScan", "Subquery", "Adaptive")
_Build = TypeVar("_Build", bound=Callable[..., Any])

_plans: dict[tuple[DataFrame, ...], DataFrame] = {}  # the newest last
_of_a_look: WeakSet[DataFrame] = WeakSet()  # that hold rows of one look
_forgets: list[Callable[[], None]] = []  # one for each function that keeps its queries
uses: Counter[str] = Counter()  # executions, by `planned` or `kept`: where their plan was from


class ChangingRows:
    """
    Rows that are replaced from look to look, under plans that are kept.

    They are in a file of this machine, which `multiLine` lets Spark read as a whole, however long it is then.
    Java reads it once for all queries of a look, into one row with all rows in it: of many rows Spark would
    estimate the size again and again.
    """

    def __init__(self, spark: SparkSession, path: Path, schema: StructType) -> None:
        self._path = path
        self._write([])  # for Spark to find
        whole = StructType([StructField("rows", ArrayType(schema))])
        reader = spark.read.schema(whole).options(multiLine=True, mode="FAILFAST", encoding="UTF-8")
        file: Any = reader.json(f"file://{path.absolute()}")  # Hadoop does not decode what a URI encodes
        self._read = file._jdf.queryExecution().toRdd()
        found = file.sparkSession._jsparkSession.internalCreateDataFrame(
            self._read, file._jdf.schema(), False
        )
        self.rows = DataFrame(found, spark).coalesce(1).selectExpr("inline(rows)")

    def put(self, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
        """
        Replace the rows. Returns the query for them, which is always the same.
        """
        self._write(rows)
        self._read.unpersist(True)
        self._read.cache()
        return self.rows

    def _write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._path.write_text(json.dumps({"rows": rows}), "utf-8")


def at_once(rows: DataFrame) -> DataFrame:
    """
    The rows, computed now, for several queries of this look. What is made of them is not kept: it would keep
    the rows.
    """
    return of_this_look(rows.localCheckpoint())


def of_this_look(rows: DataFrame) -> DataFrame:
    """
    The same query, whose rows are those of this look only: what is made of it is not kept.
    """
    _of_a_look.add(rows)
    return rows


def planned_once(build: _Build) -> _Build:
    """
    Let a function that makes queries of its arguments return the same for the same arguments.
    """
    kept = lru_cache(MAX_QUERIES)(build)
    _forgets.append(kept.cache_clear)

    @wraps(build)
    def planned(*args: Any, **named: Any) -> Any:
        if not any(isinstance(each, DataFrame) and each in _of_a_look for each in (*args, *named.values())):
            return kept(*args, **named)
        found = build(*args, **named)
        _of_a_look.update(found.values() if isinstance(found, dict) else [found])
        return found

    return cast(_Build, planned)


def forget() -> None:
    """
    Forget all plans and queries: those that hold rows, or those of a session that ends.
    """
    _plans.clear()
    for each in _forgets:
        each()


def collected(
    queries: tuple[DataFrame, ...], unite: Callable[..., DataFrame], again: bool = True
) -> list[Row]:
    """
    The rows of these queries, united to one. Its plan is kept for the next time, unless there is none.
    """
    kept = _plans.pop(queries, None)
    query = unite(*queries) if kept is None else kept
    rows = query.collect()
    uses["planned" if kept is None else "kept"] += 1
    again = again and not any(each in _of_a_look for each in queries)
    if kept is not None or (again and reads_anew(query)):
        _plans[queries] = query
    if len(_plans) > MAX_PLANS:
        del _plans[next(iter(_plans))]
    return rows


def reads_anew(query: DataFrame) -> bool:
    """
    Does a second execution read everything again?
    """
    plan = query._jdf.queryExecution().executedPlan().toString()
    return not any(keeper in plan for keeper in _KEEPERS)


@planned_once
def where(rows: DataFrame, condition: str) -> DataFrame:
    """
    The rows with a condition of SQL.
    """
    return rows.where(condition)


@planned_once
def first(rows: DataFrame, number: int) -> DataFrame:
    """
    The first rows.
    """
    return rows.limit(number)
