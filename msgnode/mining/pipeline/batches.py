"""
Batches of hours: a batch is read once, stored as rows, and summarised for every analysis.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from msgnode.mining.analyses.analysis import Analysis, Asked, Source
from msgnode.mining.execution.kept_plans import planned_once, where
from msgnode.mining.execution.planning import in_one_partition
from msgnode.mining.pipeline.answers import VALID, Answers
from msgnode.mining.pipeline.checkpoint import Checkpoint
from msgnode.mining.pipeline.checkpoint_entries import Batch, Part, Tail
from msgnode.mining.pipeline.delta import transaction
from msgnode.mining.pipeline.follow_up import SCHEMAS, FollowUp
from msgnode.mining.pipeline.line_store import LineStore, Say, Step
from msgnode.mining.pipeline.output import FEW_BYTES, Output
from msgnode.mining.reading.log_files import LogFile, date, unsplit
from msgnode.mining.reading.schema import TRAFFIC
from msgnode.mining.report.units import count

_WHERE = [StructField("date", StringType()), StructField("hour", IntegerType())]
_TASK_BYTES = 256 * 1024 * 1024  # of the log, for one task that merges batches


class Batches:
    """
    Makes batches, and reads what is stored of them.

    `steps` transform every line before it is written; `added` are the columns that they add. Rows of hours
    before `since` do not count.
    """

    since = 0
    rows_at_once = 0  # of the sums of the newest hour, if they were computed at once

    def __init__(
        self,
        spark: SparkSession,
        output: Output,
        questions: Sequence[Analysis],
        steps: Sequence[Step],
        added: StructType,
        say: Say,
        few_bytes: int = FEW_BYTES,
    ) -> None:
        self._spark = spark
        self._output = output
        self._questions = questions
        self._line = StructType([*TRAFFIC.fields, *added.fields, *_WHERE])
        self._say = say
        self._answers = Answers(spark, output, self, self._line, say, few_bytes)
        self._store = LineStore(spark, output, steps, self._line, say)
        self._follow_up = FollowUp(spark, output, self, say)

    @property
    def _in_one(self) -> bool:
        return in_one_partition(self._spark)

    def make(self, batch: Batch, files: list[LogFile], before: Batch | None, growing: bool = False) -> None:
        """
        Read the files and store what later runs need. Sets the line counts of the batch.

        `growing`: the files are of the newest hour, and may grow while they are read.
        """
        self._say(f"reading {count(len(files), 'file')}, {_mebibytes(sum(file.size for file in files))}")
        if told := unsplit(files):
            self._say(told)
        # Reading must end where the checkpoint says, for a later run goes on from there.
        tails = [Tail(file, 0) for file in files if growing and file.may_grow]
        whole = [file for file in files if not (growing and file.may_grow)]
        once = _transaction(batch, before)
        self._store.store(batch, batch.number, whole, tails, once)
        self._follow_up.store(batch, before, once)

    def append(self, batch: Batch, tails: list[Tail], before: Batch | None) -> None:
        """
        Read what was appended to files of a batch, as its last piece, and store the rest of it again.
        """
        size = sum(tail.file.size - tail.begin for tail in tails)
        self._say(f"reading what was added to {count(len(tails), 'file')}, {_mebibytes(size)}")
        once = _transaction(batch, before)
        self._store.store(batch, batch.pieces[-1], [], tails, once)
        self._follow_up.store(batch, before, once)

    def sum_up(self, number: int, batches: list[Batch]) -> None:
        """
        Make a part: the summaries of the stored rows of these batches.
        """
        self._say("summing up")
        found = self._answers.here(_summaries(self._kept()), batches, None, self._output.part_file(number))
        if found is not None:
            self._output.take_parts(found, number)
            return
        sources = self._answers.sources_of_many(batches, None)
        by_spark = {each.name: each.summarise(sources[each.of]) for each in self._kept()}
        self._output.write_parts(by_spark, number, sum(batch.bytes for batch in batches))

    def merge_batches(self, one: Batch, batches: list[Batch]) -> None:
        """
        Store the rows of several batches as one.
        """
        self._say(f"merging {len(batches)} batches of a day")
        tasks = 1 + one.bytes // _TASK_BYTES
        self._output.write(
            self.stored_lines(batches).drop("batch").coalesce(tasks), "lines", one.number, "kind", "date"
        )
        for name, by in (("exchanges", ("open", "date")), ("lives", ("open", "date"))):
            # Rows that were open in a batch are in the following one, too.
            final = ~F.col("open") | (F.col("batch") == batches[-1].number)
            rows = self.stored_rows(name, batches).where(final).drop("batch")
            self._output.write(rows.coalesce(tasks), name, one.number, *by)
        if one.bad:
            self._output.write_text(self._store.aside(batches).coalesce(1), "_bad", one.number)

    def recount(self, batch: Batch) -> None:
        """
        Count the lines of a batch of which some days were removed, and store its invalid lines again.
        """
        batch.lines = where(self.stored_lines([batch]), VALID).count()
        if batch.bad:
            named = F.regexp_extract("path", r"-(\d{8}T\d{2})\.jsonl", 1)
            since = time.strftime("%Y%m%dT%H", time.gmtime(self.since * 3600))
            left = self._store.aside([batch]).where(named >= since).cache()
            batch.bad = left.count()
            for piece in batch.pieces[1:]:
                self._output.files.delete(f"_bad/batch={piece}")
            self._output.write_text(left, "_bad", batch.number)
            left.unpersist()

    def delete_days(self, batch: Batch, since: int) -> None:
        """
        Delete the stored days before this hour of a batch.
        """
        named = [("lines", number) for number in batch.pieces]
        named += [(name, batch.number) for name in ("exchanges", "lives")]
        for name, number in named:
            self._output.delete_days(f"{name}/batch={number}", date(since))

    def merge(self, number: int, parts: list[Part], batches: list[Batch]) -> None:
        """
        Merge several parts into one; `batches` are those that they sum up.
        """
        self._say(f"merging the sums of {parts[-1].end - parts[0].begin:,} hours")

        def folded(question: Analysis) -> DataFrame:
            rows = self._parts(question, parts)
            rows = rows if question.fold is None else question.fold(rows)
            # As few files as make sense, whatever the number of cores.
            return rows if self._in_one else rows.hint("rebalance")

        found = {question.name: folded(question) for question in self._kept()}
        self._output.write_parts(found, number, sum(batch.bytes for batch in batches))

    def answer(self, question: Analysis, checkpoint: Checkpoint) -> DataFrame:
        """
        The result of an analysis: all parts combined, with the tail and what was open at its end.
        """
        return question.result(self.summaries(checkpoint)(question))

    def summaries(self, checkpoint: Checkpoint) -> Callable[[Analysis], DataFrame]:
        """
        The summaries of all batches for an analysis: the parts, and the tail, which is summarised now.
        """
        self._say("summing up the newest hour")
        tail = checkpoint.tail
        found = self._answers.ask(_summaries(self._kept()), tail, tail[-1], at_once=True)
        self.rows_at_once = self._answers.rows

        def summaries(question: Analysis) -> DataFrame:
            now = found[question.kept]
            # With this schema no file needs to be examined; a column that an older part lacks is null.
            kept = [self._parts(question, checkpoint.parts, now.schema)] if checkpoint.parts else []
            return _united(self._in_one, *kept, now)

        return summaries

    def ask(
        self, queries: Mapping[str, Asked], batches: list[Batch], at_once: bool = False
    ) -> dict[str, DataFrame]:
        """
        The answers to queries of all rows of these batches, by name; of the last batch also what is open.
        """
        return self._answers.ask(queries, batches, batches[-1], at_once)

    def lines(self, batches: list[Batch]) -> DataFrame:
        """
        All valid lines of these batches, of all kinds.
        """
        return where(self.stored_lines(batches), VALID)

    def sources(self, batches: list[Batch]) -> dict[Source, DataFrame]:
        """
        The stored rows of these batches, for the analyses; of the last batch also what is open.
        """
        return self._answers.sources(batches, batches[-1])

    # -- stored rows -------------------------------------------------------------

    def _kept(self) -> list[Analysis]:
        return [question for question in self._questions if not question.shares]

    def _parts(self, question: Analysis, parts: list[Part], schema: StructType | None = None) -> DataFrame:
        rows = self._output.read(f"parts/{question.kept}", [part.number for part in parts], schema)
        return self._kept_days(_without_batch(rows))

    def stored_lines(self, batches: list[Batch]) -> DataFrame:
        pieces = [piece for batch in batches for piece in batch.pieces]
        return self._kept_days(self._output.read("lines", pieces, self._line))

    def stored_rows(self, name: str, batches: list[Batch]) -> DataFrame:
        rows = self._output.read(name, [batch.number for batch in batches], SCHEMAS[name])
        return self._kept_days(rows)

    def _kept_days(self, rows: DataFrame) -> DataFrame:
        return _united(self._in_one, where(rows, f"date >= '{date(self.since)}'") if self.since else rows)


def _summaries(questions: Sequence[Analysis]) -> dict[str, Asked]:
    return {each.name: (each.of, each.summary) for each in questions}


@planned_once
def _without_batch(rows: DataFrame) -> DataFrame:
    return rows.drop("batch")


@planned_once
def _united(in_one: bool, *rows: DataFrame) -> DataFrame:
    found = reduce(DataFrame.unionByName, rows)
    return found.coalesce(1) if in_one else found


def _transaction(batch: Batch, before: Batch | None) -> str:
    """
    The name of the transaction that stores a batch: the same if its files and the batch before are.
    """
    earlier = None if before is None else (before.number, sorted(before.files.items()))
    return transaction(batch.begin, batch.end, sorted(batch.files.items()), batch.pieces, earlier)


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
