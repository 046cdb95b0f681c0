"""
The two engines that answer the questions about messages and sessions: Spark, and DuckDB from files.
"""

from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from msgnode.mining.analyses import exchanges, session_lifetimes
from msgnode.mining.analyses.analysis import Asked, Source
from msgnode.mining.local.query import AtHand, StoredFiles, StoredRows, answers
from msgnode.mining.local.rows import type_name
from msgnode.mining.sql.dialect import DUCKDB

Carried = DataFrame | None


MANY = AtHand(10_000, 2**24)


def read(query: str, tables: Mapping[str, StoredRows], directory: Path, at_most: AtHand = MANY) -> pa.Table:
    """
    The rows of a query by DuckDB, in a file of a directory if they are not few.
    """
    found = answers(
        {"one": query}, tables, {}, directory.joinpath, directory, threads=1, at_most=at_most, at_hand=False
    )["one"]
    return pq.read_table(found) if isinstance(found, Path) else found


class InSpark:
    """
    Spark's answers.
    """

    def exchanges(self, lines: DataFrame, carried: Carried, end: int) -> DataFrame:
        return exchanges.exchanges(lines, carried, end)

    def lives(self, lines: DataFrame, carried: Carried, end: int) -> DataFrame:
        return session_lifetimes.session_lifetimes(lines, carried, end)


class InDuckDB:
    """
    DuckDB's answers, of the same rows in files of a directory.
    """

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        self._numbers = count()

    def answers(
        self, queries: Mapping[str, Asked], sources: Mapping[Source, DataFrame]
    ) -> dict[str, pa.Table]:
        """
        The answers to queries of these rows, which are few.
        """
        made = {name: query(DUCKDB, of) for name, (of, query) in queries.items()}
        tables = {str(name): self._stored(rows) for name, rows in sources.items()}
        found = answers(made, tables, {}, Path, self._directory, threads=1, at_most=MANY, at_hand=False)
        return {name: answer for name, answer in found.items() if not isinstance(answer, Path)}

    def exchanges(self, lines: DataFrame, carried: Carried, end: int) -> DataFrame:
        return self._answer(exchanges.exchanges_in_duckdb, lines, carried, end)

    def lives(self, lines: DataFrame, carried: Carried, end: int) -> DataFrame:
        return self._answer(session_lifetimes.session_lifetimes_in_duckdb, lines, carried, end)

    def _answer(
        self, query: Callable[[bool, int], str], lines: DataFrame, carried: Carried, end: int
    ) -> DataFrame:
        tables = {"lines": self._stored(lines)}
        if carried is not None:
            tables["carried"] = self._stored(carried)
        return self._spark.createDataFrame(read(query(carried is not None, end), tables, self._directory))

    def _stored(self, rows: DataFrame) -> StoredRows:
        path = self._directory / f"{next(self._numbers)}.parquet"
        pq.write_table(rows.toArrow(), path)
        types = {field.name: type_name(field.dataType) for field in rows.schema.fields}
        return StoredRows(types, [StoredFiles([path], {})])
