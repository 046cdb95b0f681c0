"""
Delta Lake: `lines`, `exchanges` and `lives` as Delta tables, by the same batches as in Parquet.

Only what the checkpoint names counts here, too: it has the version of each table, and the numbers of the
batches in it. A batch is written as a transaction with a name made of what it was read from. If a run is
killed before the checkpoint is saved, the next one finds the transaction of the same name, and does not write
it again.
"""

import hashlib
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from py4j.java_gateway import JavaClass  # type: ignore[import-untyped]
from pyspark import __version__ as spark_version
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from msgnode.mining.reading.log_files import Unreadable

TABLES = ("lines", "exchanges", "lives")
SPARK = "4.2"  # the version of Spark that the packages of Delta are for
_PACKAGES, _JARS = "spark.jars.packages", "spark.jars"
_VACUUM_VERSIONS = 100  # after so many, files of old versions are removed


def settings(conf: Sequence[str]) -> list[str]:
    """
    The settings of Spark for Delta, as `NAME=VALUE`, in addition to these. Unreadable, with what to install.
    """
    try:
        version = metadata.version("delta-spark")
    except metadata.PackageNotFoundError:
        raise Unreadable("--format delta needs more packages: pip install 'msgnode[delta]'") from None
    if spark_version.rpartition(".")[0] != SPARK:
        raise Unreadable(
            f"--format delta needs Spark {SPARK}, not {spark_version}: pip install 'msgnode[delta]'"
        )
    given = dict(text.partition("=")[::2] for text in conf)
    found = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # The names of transactions are only needed until the next run.
        "spark.databricks.delta.properties.defaults.setTransactionRetentionDuration": "interval 30 days",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    if "delta-spark" not in given.get(_JARS, ""):
        package = f"io.delta:delta-spark_{SPARK}_2.13:{version}"
        found[_PACKAGES] = ",".join(filter(None, (given.get(_PACKAGES, ""), package)))
    left = [text for text in conf if text.partition("=")[0] not in found]
    return [*left, *(f"{name}={value}" for name, value in found.items())]


def transaction(*parts: Any) -> str:
    """
    The name of a transaction: the same for the same input.
    """
    return "msgnode-" + hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


class DeltaTables:
    """
    The Delta tables below a directory. `pinned` are the versions that are read; the newest, if it has none.
    """

    def __init__(self, spark: SparkSession, where: str) -> None:
        self._spark = spark
        self._where = where
        jvm: Any = spark._jvm
        self._jvm = jvm
        if not isinstance(jvm.org.apache.spark.sql.delta.DeltaLog, JavaClass):
            raise Unreadable(
                f"{where} has Delta tables, for which Spark lacks a package: "
                f"--conf {_PACKAGES}=io.delta:delta-spark_{SPARK}_2.13:VERSION"
            )
        # Another process may have written, or the directory may be a new one.
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        self.pinned: dict[str, int] = {}
        self._began: dict[str, int] = {}

    def write(self, rows: DataFrame, name: str, number: int, by: Sequence[str], once: str) -> bool:
        """
        Store the rows of a batch in place of what is stored under its number. `once` is the name of the
        transaction, if any. False if it was done before.
        """
        if once and self._is_done(name, number, once):
            return False
        writer = rows.withColumn("batch", F.lit(number)).write.format("delta").mode("overwrite")
        writer = writer.option("replaceWhere", f"batch = {number}").option("mergeSchema", "true")
        if once:
            writer = writer.option("txnAppId", once).option("txnVersion", number)
        writer.partitionBy("batch", *by).save(self._path(name))
        return True

    def read(self, name: str, numbers: list[int], schema: StructType | str | None) -> DataFrame:
        """
        The stored rows of these batches, with the columns of the schema.
        """
        reader = self._spark.read.format("delta")
        if name in self.pinned:
            reader = reader.option("versionAsOf", self.pinned[name])
        rows = reader.load(self._path(name)).where(F.col("batch").isin(numbers))
        if schema is None:
            return rows
        wanted: Any = StructType.fromDDL(schema) if isinstance(schema, str) else schema
        columns = [
            (F.col(f"`{field.name}`") if field.name in rows.columns else F.lit(None))
            .cast(field.dataType)
            .alias(field.name)
            for field in wanted.fields
            if field.name != "batch"
        ]
        return rows.select(*columns, "batch")

    def versions(self) -> dict[str, int]:
        """
        The newest version of each table.
        """
        found = {name: int(self._snapshot(name).version()) for name in TABLES}
        return {name: version for name, version in found.items() if version >= 0}

    def delete(self, name: str, condition: str) -> None:
        """
        Delete rows in a new version; the files stay for readers of older versions, for a week.
        """
        table = self._jvm.io.delta.tables.DeltaTable.forPath(self._spark._jsparkSession, self._path(name))
        table.delete(condition)
        version = int(self._snapshot(name).version())
        if version // _VACUUM_VERSIONS > self._began.setdefault(name, version) // _VACUUM_VERSIONS:
            table.vacuum()
            self._began[name] = version

    def begin(self, versions: dict[str, int]) -> None:
        """
        Read the newest versions from now on, which began with these.
        """
        self.pinned, self._began = {}, dict(versions)

    def _is_done(self, name: str, number: int, once: str) -> bool:
        found = self._snapshot(name).transactions().get(once)
        return bool(found.isDefined()) and int(found.get()) >= number

    def _snapshot(self, name: str) -> Any:
        log = self._jvm.org.apache.spark.sql.delta.DeltaLog
        return log.forTable(self._spark._jsparkSession, self._path(name)).unsafeVolatileSnapshot()

    def _path(self, name: str) -> str:
        return f"{self._where}/{name}"
