"""
The output directory: what lies where, and whether it may be written to.

`lines`, `exchanges`, `lives` and `parts` are kept by batch, so that later runs
read only what is new; `tables` are the answers, and are replaced whole.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from msgnode.mining.checkpoint import FORMAT, Batch, Checkpoint, load
from msgnode.mining.files import Files, Unreadable

CHECKPOINT = "_checkpoint.json"
_OURS = ("lines", "exchanges", "lives", "parts", "tables", "_tables", "_bad", "report.html", CHECKPOINT)
_BY_BATCH = ("lines", "exchanges", "lives", "_bad")


class Refused(Exception):
    """
    The output is there already, and is not to be touched; says what to do.
    """


class Output:
    """
    Reads and writes below one directory, on any file system that Hadoop knows.
    """

    def __init__(self, spark: SparkSession, where: str) -> None:
        self._spark = spark
        self.files = Files(spark, where)

    def begin(self, options: dict[str, str], overwrite: bool) -> Checkpoint:
        """
        The checkpoint to go on from.  Raises Refused where something else lies here.
        """
        where = self.files.where
        names = [name for name in self.files.names() if not name.startswith(".")]
        if overwrite:
            for name in _OURS:
                self.files.delete(name)
        elif names and CHECKPOINT not in names:
            raise Refused(
                f"{where} is not empty and not made by this tool; use --overwrite, or another --out"
            )
        if overwrite or not names:
            return Checkpoint(options)
        found = self._load()
        for name, value in options.items():
            if found.options.get(name, "") != value:
                raise Refused(
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
            raise Refused(f"{self.files.where} was made by another version of this tool; use --overwrite")
        return found

    def save(self, checkpoint: Checkpoint) -> None:
        self.files.write(CHECKPOINT, checkpoint.text())

    def take_back(self, batch: Batch) -> None:
        """
        Forget what was made of a batch.
        """
        for name in _BY_BATCH:
            self.files.delete(f"{name}/batch={batch.number}")
        for question in self.files_in("parts"):
            self.files.delete(f"parts/{question}/batch={batch.number}")

    def files_in(self, name: str) -> list[str]:
        """
        What lies in one of the directories here.
        """
        return Files(self._spark, self.files.inside(name)).names()

    # -- rows --------------------------------------------------------------

    def write(self, rows: DataFrame, name: str, batch: Batch, *by: str) -> None:
        """
        Keep rows of a batch, in directories by the values of the columns `by`.
        """
        path = self.files.inside(f"{name}/batch={batch.number}")
        rows.write.mode("overwrite").partitionBy(*by).parquet(path)

    def write_text(self, rows: DataFrame, name: str, batch: Batch) -> None:
        """
        Keep rows as lines of JSON, for people to look at.
        """
        rows.write.mode("overwrite").json(self.files.inside(f"{name}/batch={batch.number}"))

    def read(self, name: str, batches: list[Batch], schema: StructType | str | None = None) -> DataFrame:
        """
        The rows of these batches.
        """
        base = self.files.inside(name)
        paths = [f"{base}/batch={batch.number}" for batch in batches]
        reader = self._spark.read if schema is None else self._spark.read.schema(schema)
        return reader.option("basePath", base).parquet(*paths)

    def write_table(self, rows: DataFrame, name: str) -> DataFrame:
        """
        Put an answer in the place of the one of before, and return it as it was written.
        """
        rows.write.mode("overwrite").parquet(self.files.inside(f"_tables/{name}"))
        self.files.rename(f"_tables/{name}", f"tables/{name}")
        return self.table(name, rows.schema)

    def table(self, name: str, schema: StructType) -> DataFrame:
        return self._spark.read.schema(schema).parquet(self.files.inside(f"tables/{name}"))

    def done(self) -> None:
        self.files.delete("_tables")


_WITH_OTHER = {
    "logs": "from other logs",
    "pseudonyms": "with another key for pseudonyms",
    "policy": "with another policy",
}
