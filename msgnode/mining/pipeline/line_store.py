"""
The lines of log files as stored rows, read by Arrow on this machine, else by Spark. Invalid ones are apart.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from msgnode.mining.analyses.columns import count_where
from msgnode.mining.execution.planning import on_one_machine
from msgnode.mining.pipeline.checkpoint_entries import Batch, Tail
from msgnode.mining.pipeline.output import TAILS, UNIQUE, Output
from msgnode.mining.reading.log_files import LogFile, local_path
from msgnode.mining.reading.parse import parsed
from msgnode.mining.reading.schema import KINDS

Say = Callable[[str], None]
Step = Callable[[DataFrame], DataFrame]
_ASIDE = [StructField(name, StringType()) for name in ("why", "text", "path")]


class LineStore:
    """
    A store of lines. `steps` transform each line before it is written; `line` is the schema of rows then.
    """

    def __init__(
        self, spark: SparkSession, output: Output, steps: Sequence[Step], line: StructType, say: Say
    ) -> None:
        self._spark = spark
        self._output = output
        self._steps = steps
        self._line = line
        self._say = say

    def store(self, batch: Batch, piece: int, whole: list[LogFile], tails: list[Tail], once: str) -> None:
        """
        Store the lines of whole files, and of those ends of others, as a piece of a batch, and count them.
        """
        if not self._read_here(batch, piece, [*[Tail(file, 0) for file in whole], *tails], once):
            paths = [file.path for file in whole] + self._output.copy_tails(tails)
            self._parse(batch, piece, paths, tails, once)

    def _read_here(self, batch: Batch, piece: int, tails: list[Tail], once: str) -> bool:
        """
        Store the lines without Spark, but for those that are odd. False if Spark has to do it.
        """
        if self._steps or not on_one_machine(self._spark) or not self._output.local_place("lines"):
            return False
        if not all(local_path(tail.file.path) for tail in tails):
            return False
        from msgnode.mining.reading import local_files  # which a cluster does without

        for name in ("lines", "_bad"):
            self._output.delete(name, piece)
        self._output.files.delete(TAILS)
        names = (f"lines/batch={piece}", f"_bad/batch={piece}", TAILS)
        places = local_files.Places(*[Path(self._output.local_place(name)) for name in names])
        files = local_files.LocalFiles(places, UNIQUE, self._spark.sparkContext.defaultParallelism)
        try:
            stored = files.store([(tail.file, tail.begin) for tail in tails])
        except local_files.LeftToSpark as why:
            self._say(f"Spark reads these files, for Arrow does not: {why}")
            self._output.delete("_bad", piece)
            return False
        batch.lines += stored.lines
        batch.bad += stored.bad
        if stored.odd:
            paths = [f"file://{path}" for path in stored.odd.values()]  # Hadoop decodes no URI
            self._parse(batch, piece, paths, [Tail(file, 0) for file in stored.odd], once, more=True)
        return True

    def _parse(
        self, batch: Batch, piece: int, paths: list[str], tails: list[Tail], once: str, more: bool = False
    ) -> None:
        """
        Parse lines with Spark; `more`: others of the piece are stored already.
        """
        text = self._spark.read.text(paths)
        rows = text.select("value", F.col("_metadata.file_path").alias("path")).transform(parsed)
        rows = rows.withColumn("path", _original(tails))
        for step in self._steps:
            rows = rows.transform(step)
        aside = F.col("why").isNotNull()
        kind = F.when(F.col("kind").isin(*KINDS), F.col("kind"))
        rows = rows.withColumn("kind", F.when(aside, F.lit("bad")).otherwise(kind))
        known = F.col("kind").isNotNull()
        counted = Observation()
        # Filtered only after the count: a filter before it would be applied to the text, and parse it twice.
        rows = rows.observe(counted, count_where(known).alias("rows"), count_where(aside).alias("bad"))
        if self._output.write(rows.where(known), "lines", piece, "kind", "date", once=once, more=more):
            found, bad = counted.get["rows"] or 0, counted.get["bad"] or 0
        else:
            stored = self._output.read("lines", [piece], self._line)
            found, bad = stored.count(), stored.where("kind = 'bad'").count()
        batch.bad += bad
        batch.lines += found - bad
        if tails:
            self._output.files.delete(TAILS)
        if bad:
            self._put_aside(piece, more)

    def _put_aside(self, piece: int, more: bool) -> None:
        stored = StructType([*self._line.fields, *_ASIDE])
        aside = self._output.read("lines", [piece], stored).where("kind = 'bad'")
        self._output.write_text(aside.select("path", "why", "text"), "_bad", piece, more)
        self._output.drop_bad(piece)

    def aside(self, batches: list[Batch]) -> DataFrame:
        """
        The invalid lines of these batches: `path`, `why` and `text`.
        """
        pieces = [piece for batch in batches if batch.bad for piece in batch.pieces]
        return self._output.read_text("_bad", pieces, StructType(_ASIDE)).select("path", "why", "text")


def _original(tails: list[Tail]) -> Column:
    """
    The path of a file as it is named, not as in a URI, and not that of its copy. A valid line has no path, so
    it costs nothing.
    """
    path = F.col("path")
    decoded = F.url_decode(F.replace(path, F.lit("+"), F.lit("%2B")))
    if not tails:
        return decoded
    number = F.regexp_extract(path, rf"/{TAILS}/(\d+)/[^/]*$", 1)
    originals = F.array(*[F.lit(tail.file.path) for tail in tails])
    return F.when(number == "", decoded).otherwise(F.get(originals, number.cast("int")))
