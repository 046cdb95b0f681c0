"""
Exchanges and the lives of sessions: rows that follow from the lines of a batch, and go on in the next.

On one machine DuckDB computes them from Parquet files, elsewhere Spark.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from msgnode.mining.analyses import exchanges, session_lifetimes
from msgnode.mining.execution.planning import may_use_duckdb
from msgnode.mining.pipeline.checkpoint_entries import Batch
from msgnode.mining.pipeline.output import TAILS, Output
from msgnode.mining.reading.schema import TRAFFIC

Say = Callable[[str], None]
SCHEMAS = {"exchanges": exchanges.SCHEMA, "lives": session_lifetimes.SCHEMA}
_BY = ("open", "date")


def schema_of(name: str) -> StructType:
    found = StructType.fromDDL(SCHEMAS[name])
    assert isinstance(found, StructType)
    return found


@dataclass(frozen=True)
class _Question:
    """
    A question about lines, and the rows that are open in the batch before.
    """

    name: str
    doing: str
    of_spark: Callable[[DataFrame, DataFrame | None, int], DataFrame]
    of_duckdb: Callable[[bool, int], str]


_QUESTIONS = (
    _Question(
        "exchanges",
        "pairing requests and answers",
        exchanges.exchanges,
        exchanges.exchanges_in_duckdb,
    ),
    _Question(
        "lives",
        "following sessions",
        session_lifetimes.session_lifetimes,
        session_lifetimes.session_lifetimes_in_duckdb,
    ),
)


class Stored(Protocol):
    """
    The stored rows of batches, without the days that are not kept. Hours before `since` do not count.
    """

    since: int

    def stored_lines(self, batches: list[Batch]) -> DataFrame: ...

    def stored_rows(self, name: str, batches: list[Batch]) -> DataFrame: ...


class FollowUp:
    """
    Stores what follows from the lines of a batch.
    """

    def __init__(self, spark: SparkSession, output: Output, stored: Stored, say: Say) -> None:
        self._spark = spark
        self._output = output
        self._stored = stored
        self._say = say

    def store(self, batch: Batch, before: Batch | None, once: str) -> None:
        """
        Store the rows of a batch; `before` is the batch before it. `once` names the transaction.
        """
        for each in _QUESTIONS:
            self._say(each.doing)
            if not self._store_here(each, batch, before):
                lines = self._stored.stored_lines([batch])
                open_ = None
                if before is not None:
                    open_ = self._stored.stored_rows(each.name, [before]).where("open")
                rows = each.of_spark(lines, open_, batch.end)
                self._output.write(rows, each.name, batch.number, *_BY, once=once)

    def _store_here(self, question: _Question, batch: Batch, before: Batch | None) -> bool:
        """
        Store the rows without Spark. False if Spark has to do it.
        """
        place = self._output.local_place(question.name)
        if not place or not may_use_duckdb(self._spark):
            return False
        try:  # a cluster does without these
            from msgnode.mining.local import query as local_query
            from msgnode.mining.local.rows import local_rows
        except ModuleNotFoundError:
            self._say("Spark does that, which takes longer, for DuckDB is not installed: pip install duckdb")
            return False
        self._output.delete(question.name, batch.number)
        into = Path(place, f"batch={batch.number}")
        spill = Path(self._output.local_place(TAILS), question.name)
        threads = self._spark.sparkContext.defaultParallelism
        since, tables = self._stored.since, {}
        try:
            lines = Path(self._output.local_place("lines"))
            tables["lines"] = local_rows(lines, batch.pieces, TRAFFIC, since)
            if before is not None:
                schema = schema_of(question.name)
                tables["carried"] = local_rows(Path(place), [before.number], schema, since, open="true")
            query = question.of_duckdb(before is not None, batch.end)
            local_query.store(query, tables, into, _BY, spill, threads)
        except local_query.NotAnswered as why:
            self._say(f"Spark does that, for DuckDB does not: {why}")
            return False
        finally:
            self._output.files.delete(TAILS)
        return True
