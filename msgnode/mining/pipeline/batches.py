"""
One batch of hours: read once, kept as rows, and summed up for every question.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from msgnode.mining.analyses import exchanges, session_lifetimes
from msgnode.mining.analyses.analysis import Analysis, Source
from msgnode.mining.analyses.columns import count_where
from msgnode.mining.pipeline.checkpoint import Batch, Part
from msgnode.mining.pipeline.log_files import LogFile
from msgnode.mining.pipeline.output import Output
from msgnode.mining.pipeline.parse import parsed
from msgnode.mining.pipeline.schema import TRAFFIC

AT_ONCE = 4  # small jobs wait more than they compute
Step = Callable[[DataFrame], DataFrame]
Say = Callable[[str], None]
_WHERE = [StructField("date", StringType()), StructField("hour", IntegerType())]
_ASIDE = [StructField(name, StringType()) for name in ("why", "text", "path")]


def together(work: Callable[[Analysis], None], questions: Sequence[Analysis]) -> None:
    """
    Do it for all questions, several at once; the first failure is raised.
    """
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for done in [threads.submit(work, question) for question in questions]:
            done.result()


class Batches:
    """
    Makes batches, and hands out what was kept of them.

    `steps` are done to every line before it is written; the columns of
    `added` are what they add.
    """

    def __init__(
        self,
        spark: SparkSession,
        output: Output,
        questions: Sequence[Analysis],
        steps: Sequence[Step],
        added: StructType,
        say: Say,
    ) -> None:
        self._spark = spark
        self._output = output
        self._questions = questions
        self._steps = steps
        self._line = StructType([*TRAFFIC.fields, *added.fields, *_WHERE])
        self._say = say

    def make(self, batch: Batch, files: list[LogFile], before: Batch | None) -> None:
        """
        Read the files and keep what later runs need of them; tells the batch how many lines there were.

        Its sums are the part of the same number.
        """
        self._say(f"reading {len(files)} files, {sum(file.size for file in files) / 2**20:,.1f} MiB")
        self._read(batch, files)
        messages, events = self._of_kind([batch], "message"), self._of_kind([batch], "session")
        self._say("pairing requests and answers")
        found = exchanges.exchanges(messages, self._going_on("exchanges", before), batch.end)
        # Pieces of a good size; an hour with most of the traffic is several.
        found = found.hint("rebalance", "date", "hour")
        self._output.write(found, "exchanges", batch.number, "open", "date", "hour")
        self._say("following sessions")
        lived = session_lifetimes.lives(events, self._going_on("lives", before), batch.end)
        self._output.write(lived, "lives", batch.number, "open")
        self.sum_up(batch.number, [batch])

    def sum_up(self, number: int, batches: list[Batch]) -> None:
        """
        Make a part of what is kept of these batches.
        """
        sources: dict[Source, DataFrame] = {
            "lines": self.lines(batches),
            "messages": self._of_kind(batches, "message"),
            "events": self._of_kind(batches, "session"),
            "exchanges": self._rows("exchanges", batches).where("not open"),
            "lives": self._rows("lives", batches).where("not open"),
        }
        self._say("summing up")

        def sum_up(question: Analysis) -> None:
            self._output.write(question.summarise(sources[question.of]), f"parts/{question.name}", number)

        together(sum_up, self._kept())

    def merge(self, number: int, parts: list[Part]) -> None:
        """
        Make one part of several.
        """
        self._say(f"merging the sums of {parts[-1].end - parts[0].begin:,} hours")

        def merge(question: Analysis) -> None:
            rows = self._parts(question, parts)
            folded = rows if question.fold is None else question.fold(rows)
            # As few files as make sense, on however many cores.
            self._output.write(folded.hint("rebalance"), f"parts/{question.name}", number)

        together(merge, self._kept())

    def answer(self, question: Analysis, parts: list[Part], last: Batch) -> DataFrame:
        """
        What all parts say together, with what was still going on when the last batch ended.
        """
        rows = self._parts(question, parts)
        if question.of in ("exchanges", "lives"):
            going_on = self._rows(question.of, [last]).where("open")
            going_on = going_on.where(exchanges.TOLD) if question.of == "exchanges" else going_on
            rows = rows.unionByName(question.summarise(going_on))
        return question.combine(rows)

    def lines(self, batches: list[Batch]) -> DataFrame:
        """
        Every good line of these batches, both kinds.
        """
        return self._stored(batches).where("kind != 'bad'")

    # -- one batch ---------------------------------------------------------

    def _read(self, batch: Batch, files: list[LogFile]) -> None:
        text = self._spark.read.text([file.path for file in files])
        rows = text.select("value", F.col("_metadata.file_path").alias("path")).transform(parsed)
        for step in self._steps:
            rows = rows.transform(step)
        bad = F.col("why").isNotNull()
        rows = rows.withColumn("kind", F.when(bad, F.lit("bad")).otherwise(F.col("kind")))
        counted = Observation()
        rows = rows.observe(counted, F.count("*").alias("rows"), count_where(bad).alias("bad"))
        self._output.write(rows, "lines", batch.number, "kind", "date", "hour")
        batch.bad = counted.get["bad"] or 0
        batch.lines = counted.get["rows"] - batch.bad
        if batch.bad:
            self._put_aside(batch)

    def _put_aside(self, batch: Batch) -> None:
        stored = StructType([*self._line.fields, *_ASIDE])
        aside = self._output.read("lines", [batch.number], stored).where("kind = 'bad'")
        self._output.write_text(aside.select("path", "why", "text"), "_bad", batch.number)
        self._output.files.delete(f"lines/batch={batch.number}/kind=bad")

    # -- what was kept -----------------------------------------------------

    def _kept(self) -> list[Analysis]:
        return [question for question in self._questions if not question.shares]

    def _parts(self, question: Analysis, parts: list[Part]) -> DataFrame:
        return self._output.read(f"parts/{question.kept}", [part.number for part in parts]).drop("batch")

    def _stored(self, batches: list[Batch]) -> DataFrame:
        return self._output.read("lines", [batch.number for batch in batches], self._line)

    def _of_kind(self, batches: list[Batch], kind: str) -> DataFrame:
        return self._stored(batches).where(F.col("kind") == kind)

    def _rows(self, name: str, batches: list[Batch]) -> DataFrame:
        schema = exchanges.SCHEMA if name == "exchanges" else session_lifetimes.SCHEMA
        return self._output.read(name, [batch.number for batch in batches], schema)

    def _going_on(self, name: str, before: Batch | None) -> DataFrame | None:
        return None if before is None else self._rows(name, [before]).where("open")
