"""
The two engines that answer the questions about messages and sessions: Spark, and DuckDB from files.
"""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from msgnode.mining.analyses import exchanges, session_lifetimes
from msgnode.mining.execution.local_query import StoredFiles, StoredRows, read

Carried = DataFrame | None


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
        return self._spark.createDataFrame(read(query(carried is not None, end), tables))

    def _stored(self, rows: DataFrame) -> StoredRows:
        path = self._directory / f"{next(self._numbers)}.parquet"
        pq.write_table(rows.toArrow(), path)
        types = {name: type for name, type in rows.dtypes if not type.startswith("array")}
        return StoredRows(types, [StoredFiles([path], {})])
