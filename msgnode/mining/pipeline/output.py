"""
The output directory: what lies where, and whether it may be written to.

`lines`, `exchanges`, `lives` and `parts` are kept by batch, so that later runs
read only what is new; `tables` are the answers, and are replaced whole.

What the checkpoint does not name does not count: a run that is killed leaves
what was there before, and some directories that the next one sweeps away.
"""

import re

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from msgnode.mining.pipeline.checkpoint import FORMAT, Checkpoint, load
from msgnode.mining.pipeline.log_files import LogFiles, Unreadable

CHECKPOINT = "_checkpoint.json"
_BY_BATCH = ("lines", "exchanges", "lives", "_bad")
_WRITTEN = f"{CHECKPOINT}.part"  # is the checkpoint, where a run was killed before it could rename it
_TABLES = ("tables", "_tables", "_tables.before", "report.html", "report.html.part")
# The checkpoint first: without it, what is left of the others does not count.
_OURS = (_WRITTEN, CHECKPOINT, *_BY_BATCH, "parts", *_TABLES)
_NUMBERED = re.compile(r"batch=(\d+)")


class OutputRefused(Exception):
    """
    The output is there already, and is not to be touched; says what to do.
    """


class Output:
    """
    Reads and writes below one directory, on any file system that Hadoop knows.
    """

    def __init__(self, spark: SparkSession, where: str) -> None:
        self._spark = spark
        self.files = LogFiles(spark, where)

    def begin(self, options: dict[str, str], overwrite: bool) -> Checkpoint:
        """
        The checkpoint to go on from.  Raises OutputRefused where something else lies here.
        """
        where = self.files.where
        names = [name for name in self.files.names() if not name.startswith(".")]
        if overwrite:
            for name in _OURS:
                self.files.delete(name)
        elif names and not {CHECKPOINT, _WRITTEN} & set(names):
            raise OutputRefused(
                f"{where} is not empty and not made by this tool; use --overwrite, or another --out"
            )
        if overwrite or not names:
            return Checkpoint(options)
        self.files.put_back("tables", "_tables.before")
        found = self._load()
        for name, value in options.items():
            if found.options.get(name, "") != value:
                raise OutputRefused(
                    f"{where} was made {_WITH_OTHER[name]}; use --overwrite to begin anew, or another --out"
                )
        return found

    def _load(self) -> Checkpoint:
        try:
            found = load(self.files.read(CHECKPOINT))
        except (ValueError, KeyError, TypeError) as why:
            raise Unreadable(
                f"{self.files.inside(CHECKPOINT)}: is damaged ({why}); use --overwrite"
            ) from None
        if found.format != FORMAT:
            raise OutputRefused(
                f"{self.files.where} was made by another version of this tool; use --overwrite"
            )
        return found

    def save(self, checkpoint: Checkpoint) -> None:
        self.files.write(CHECKPOINT, checkpoint.text())

    def sweep(self, checkpoint: Checkpoint) -> None:
        """
        Delete what this checkpoint, which was saved, does not name: batches taken back, merged parts.
        """
        batches = {batch.number for batch in checkpoint.batches}
        parts = {part.number for part in checkpoint.parts}
        kept = {name: batches for name in _BY_BATCH}
        kept |= {f"parts/{question}": parts for question in self.files_in("parts")}
        for name, numbers in kept.items():
            for inside in self.files_in(name):
                found = _NUMBERED.fullmatch(inside)
                if found and int(found[1]) not in numbers:
                    self.files.delete(f"{name}/{inside}")

    def files_in(self, name: str) -> list[str]:
        """
        What lies in one of the directories here.
        """
        return LogFiles(self._spark, self.files.inside(name)).names()

    # -- rows --------------------------------------------------------------

    def write(self, rows: DataFrame, name: str, number: int, *by: str) -> None:
        """
        Keep rows of a batch or part, in directories by the values of the columns `by`.
        """
        path = self.files.inside(f"{name}/batch={number}")
        rows.write.mode("overwrite").partitionBy(*by).parquet(path)

    def write_text(self, rows: DataFrame, name: str, number: int) -> None:
        """
        Keep rows as lines of JSON, for people to look at.
        """
        rows.write.mode("overwrite").json(self.files.inside(f"{name}/batch={number}"))

    def read(self, name: str, numbers: list[int], schema: StructType | str | None = None) -> DataFrame:
        """
        The rows of these batches or parts.
        """
        base = self.files.inside(name)
        paths = [f"{base}/batch={number}" for number in numbers]
        reader = self._spark.read.option("mergeSchema", "true")  # an older part may lack a column
        if schema is not None:
            reader = self._spark.read.schema(schema)
        return reader.option("basePath", base).parquet(*paths)

    def write_table(self, rows: DataFrame, name: str) -> DataFrame:
        """
        Write an answer that is to be published, and return it as it was written, in that order.
        """
        path = self.files.inside(f"_tables/{name}")
        rows.write.mode("overwrite").parquet(path)
        written = self._spark.read.schema(rows.schema).parquet(path)
        return written.orderBy("_metadata.file_name", "_metadata.row_index")  # else the largest file is first

    def begin_tables(self) -> None:
        self.files.delete("_tables")

    def publish(self) -> None:
        """
        Put all tables that were written in the place of those of before, at once.
        """
        self.files.exchange("_tables", "tables", "_tables.before")


_WITH_OTHER = {
    "logs": "from other logs",
    "pseudonyms": "with another key for pseudonyms",
    "policy": "with another policy",
}
