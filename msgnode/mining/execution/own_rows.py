"""
Rows that this process has, as queries of Spark.

From the second look of a process on, the query for rows of a name is always the same, so that plans are kept.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from msgnode.mining.execution.gathering import gather
from msgnode.mining.execution.kept_plans import ChangingRows, forget


class OwnRows:
    """
    Makes queries for rows of this process.

    `looks` is the number of looks, with the present one.
    """

    looks = 0

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._directory: TemporaryDirectory[str] | None = None
        self._changing: dict[tuple[str, StructType], ChangingRows] = {}

    def begin_look(self) -> None:
        """
        Begin a look. The queries of the first hold its rows, and are not asked again.
        """
        self.looks += 1
        if self.looks == 2:
            forget()

    def query(self, name: str, schema: StructType, rows: Sequence[dict[str, Any]]) -> DataFrame:
        """
        A query for the present rows of a name.
        """
        if self.looks < 2:
            return self.constant(schema, rows)
        directory = self._existing()
        if (name, schema) not in self._changing:
            path = directory / f"{len(self._changing)}.json"
            self._changing[name, schema] = ChangingRows(self._spark, path, schema)
        return self._changing[name, schema].put(rows)

    def _existing(self) -> Path:
        """
        The directory for rows; another, with other queries, if it was removed.
        """
        if self._directory is None or not Path(self._directory.name).is_dir():
            if self._directory is not None:
                self._directory.cleanup()
            self._directory = TemporaryDirectory(prefix="msgnode-mine-")
            self._changing.clear()
        return Path(self._directory.name)

    def at_hand(self, name: str, schema: StructType, table: Any) -> DataFrame:
        """
        A query for the present rows of a name, from a table of Arrow.
        """
        from msgnode.mining.execution.arrow_tables import values_of  # a cluster does without

        return self.query(name, schema, values_of(table))

    def constant(self, schema: StructType, rows: Sequence[dict[str, Any]]) -> DataFrame:
        """
        A query for rows that do not change. Spark plans it with less than a file of them.
        """
        from msgnode.mining.execution.arrow_tables import table_of  # a cluster does without

        return self._spark.createDataFrame(table_of(rows, schema), schema)

    def in_memory(self, found: Mapping[str, DataFrame], keep: bool) -> list[DataFrame]:
        """
        The same rows, read once for all queries; `keep` if these are asked again in later looks.
        """
        if not keep or self.looks < 2:
            return [rows.localCheckpoint() for rows in found.values()]
        values = gather(list(found.values()))
        return [
            self.query(name, rows.schema, some)
            for (name, rows), some in zip(found.items(), values, strict=True)
        ]
