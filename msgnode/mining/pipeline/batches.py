"""
Batches of hours: a batch is read once, stored as rows, and summarised for every analysis.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from msgnode.mining.analyses import exchanges
from msgnode.mining.analyses.analysis import Analysis, Source
from msgnode.mining.execution.gathering import gather, in_parallel
from msgnode.mining.execution.kept_plans import forget, planned_once, where
from msgnode.mining.execution.planning import in_one_partition, on_one_machine
from msgnode.mining.pipeline.checkpoint import Checkpoint
from msgnode.mining.pipeline.checkpoint_entries import Batch, Part, Tail
from msgnode.mining.pipeline.delta import transaction
from msgnode.mining.pipeline.follow_up import SCHEMAS, FollowUp, schema_of
from msgnode.mining.pipeline.line_store import LineStore, Say, Step
from msgnode.mining.pipeline.output import (
    FEW_BYTES,
    MAX_AT_HAND,
    KeptSums,
    Output,
)
from msgnode.mining.reading.log_files import LogFile, date, unsplit
from msgnode.mining.reading.schema import TRAFFIC
from msgnode.mining.report.units import count

Sums = Callable[[DataFrame, DataFrame], dict[str, DataFrame]]  # of messages and exchanges
_WHERE = [StructField("date", StringType()), StructField("hour", IntegerType())]
_NUMBER = [StructField("batch", IntegerType())]
_STORED: tuple[Source, ...] = ("lines", "exchanges", "lives")
_VALID = "kind != 'bad'"
_TASK_BYTES = 256 * 1024 * 1024  # of the log, for one task that merges batches


class Batches:
    """
    Makes batches, and reads what is stored of them.

    `steps` transform every line before it is written; `added` are the columns that they add. Rows of hours
    before `since` do not count.
    """

    since = 0
    rows_at_once = 0  # of the sums of the newest hour, if it was summed up at once

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
        self._few_bytes = few_bytes
        self._store = LineStore(spark, output, steps, self._line, say)
        self._follow_up = FollowUp(spark, output, self, say)
        self._held: list[Batch] = []  # whose rows are in memory
        self._held_rows: list[DataFrame] = []

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
        sources = self._in_memory(batches, None)
        self._say("summing up")
        found = {question.name: question.summarise(sources[question.of]) for question in self._kept()}
        self._output.write_parts(found, number, sum(batch.bytes for batch in batches))

    def _sources(self, batches: list[Batch], last: Batch | None) -> dict[Source, DataFrame]:
        """
        The stored rows of these batches, for the analyses; of `last` also what is open.
        """
        settled = _settled(last)
        return _by_kind(
            where(self.stored_lines(batches), _VALID),  # the files are listed once
            where(self.stored_rows("exchanges", batches), f"{settled} and ({exchanges.TOLD})"),
            where(self.stored_rows("lives", batches), settled),
        )

    def _in_memory(self, batches: list[Batch], last: Batch | None) -> dict[Source, DataFrame]:
        """
        The same for all analyses. Few rows are read once: to open the files for each analysis costs more.
        """
        self.let_go()
        if not self._few(batches):
            return self._sources(batches, last)
        # In the first look, what Spark reads with has to be loaded sooner or later.
        again = last is not None and self._output.own.looks > 1
        rows = self._read_here(batches, last) if again else None
        if rows is None:
            found = self._sources(batches, last)
            rows = self._output.own.in_memory({name: found[name] for name in _STORED}, keep=last is not None)
        if last is None:  # a part is summed up once
            return _kinds(*rows)
        self._held, self._held_rows = batches, rows
        return _by_kind(*rows)

    def _read_here(self, batches: list[Batch], last: Batch | None) -> list[DataFrame] | None:
        """
        The stored rows of these batches, as in `_sources`, read without Spark; None if it has to read them.
        """
        if not self._output.local_place("lines"):
            return None
        try:  # a cluster does without these
            from msgnode.mining.execution.local_query import NotAnswered, read
            from msgnode.mining.pipeline.local_rows import local_rows
        except ModuleNotFoundError:
            return None

        numbers = [batch.number for batch in batches]
        pieces = [piece for batch in batches for piece in batch.pieces]
        settled = _settled(last)
        asked: list[tuple[Source, list[int], StructType, str]] = [
            ("lines", pieces, StructType([*self._line.fields, *_NUMBER]), _VALID),
            (
                "exchanges",
                numbers,
                schema_of("exchanges"),
                f"{settled} and ({exchanges.TOLD})",
            ),
            ("lives", numbers, schema_of("lives"), settled),
        ]
        found = []
        try:
            for name, of, schema, condition in asked:
                rows = local_rows(self._output, name, of, schema, self.since)
                table = read(f"SELECT * FROM {name} WHERE {condition}", {name: rows})
                found.append(self._output.own.at_hand(name, schema, table))
        except NotAnswered as why:
            self._say(f"Spark reads these rows, for DuckDB does not: {why}")
            return None
        return found

    def _few(self, batches: list[Batch]) -> bool:
        return on_one_machine(self._spark) and sum(batch.bytes for batch in batches) <= self._few_bytes

    def let_go(self) -> None:
        """
        Forget the rows in memory: batches change.
        """
        self._held, self._held_rows = [], []

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
        batch.lines = where(self.stored_lines([batch]), _VALID).count()
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

        The files of the tail are listed once for all analyses, and what analyses share is planned once.
        """
        tail = checkpoint.tail
        sources = self._in_memory(tail, tail[-1])
        self.rows_at_once = 0
        # Not on a cluster: such sums would be lost with an executor.
        at_once = on_one_machine(self._spark) and not self._held
        summed = self._summed_at_once(sources) if at_once else {}

        def summaries(question: Analysis) -> DataFrame:
            now = summed.get(question.kept) or _summarised(question, sources[question.of])
            # With this schema no file needs to be examined; a column that an older part lacks is null.
            kept = [self._parts(question, checkpoint.parts, now.schema)] if checkpoint.parts else []
            return _united(self._in_one, *kept, now)

        return summaries

    def _summed_at_once(self, sources: Mapping[Source, DataFrame]) -> dict[str, DataFrame]:
        """
        The summaries of many rows, by the name under which parts store them.
        """
        forget()  # no plan is asked again, and each would hold such summaries
        self._say("summing up the newest hour")
        found: dict[str, DataFrame] = {}

        counts: list[int] = []

        def sum_up(question: Analysis) -> None:
            counted = Observation()
            rows = question.summarise(sources[question.of]).observe(counted, F.count("*").alias("rows"))
            found[question.name] = rows.localCheckpoint()
            counts.append(counted.get["rows"] or 0)

        in_parallel(sum_up, self._kept())
        self.rows_at_once = sum(counts)
        return found

    def lines(self, batches: list[Batch]) -> DataFrame:
        """
        All valid lines of these batches, of all kinds.
        """
        stored = self._not_held(batches)
        found = [where(self.stored_lines(stored), _VALID)] if stored else []
        return _united(self._in_one, *found, *(self._held_rows[:1] if len(stored) < len(batches) else ()))

    def sources(self, batches: list[Batch]) -> dict[Source, DataFrame]:
        """
        The stored rows of these batches, for the analyses; of the last batch also what is open.
        """
        stored = self._not_held(batches)
        if len(stored) == len(batches):
            return self._sources(batches, batches[-1])
        held = _by_kind(*self._held_rows)
        if not stored:
            return held
        earlier = self._sources(stored, None)
        return _by_kind(*[_united(self._in_one, earlier[name], held[name]) for name in _STORED])

    def summed(self, name: str, sums: Sums, batches: list[Batch]) -> dict[str, DataFrame]:
        """
        Sums of the messages and exchanges of these batches. They must be such that the sums of batches can be
        put together. From the second look on those of earlier batches are made once, if they are few rows.
        """
        stored = self._not_held(batches)
        numbers = tuple(number for batch in stored for number in (batch.number, *batch.pieces))
        if self._output.own.looks < 2 or not stored or len(stored) == len(batches):
            return _of(sums, self.sources(batches))
        kept = self._output.sums.get(name)
        if kept is None or kept.of != (self.since, *numbers):
            found = _of(sums, self._sources(stored, None))
            rows = gather([each.limit(MAX_AT_HAND + 1) for each in found.values()], again=False)
            tables = {key: (found[key].schema, values) for key, values in zip(found, rows, strict=True)}
            few = sum(map(len, rows)) <= MAX_AT_HAND
            kept = self._output.sums[name] = KeptSums((self.since, *numbers), tables if few else {})
        if not kept.tables:
            return _of(sums, self.sources(batches))
        now = _of(sums, _by_kind(*self._held_rows))
        return {
            key: _united(self._in_one, self._output.own.query(f"{name} {key}", *kept.tables[key]), now[key])
            for key in now
        }

    def _not_held(self, batches: list[Batch]) -> list[Batch]:
        """
        Those of which this process does not hold the rows; it holds the last ones, if any.
        """
        held = [batch.number for batch in self._held]
        if batches[-1].number not in held:
            return batches
        return [batch for batch in batches if batch.number not in held]

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


def _settled(last: Batch | None) -> str:
    return "not open" if last is None else f"(not open or batch = {last.number})"


def _kinds(lines: DataFrame, exchanges: DataFrame, lives: DataFrame) -> dict[Source, DataFrame]:
    return {
        "lines": lines,
        "messages": lines.where("kind = 'message'"),
        "events": lines.where("kind = 'session'"),
        "exchanges": exchanges,
        "lives": lives,
    }


_by_kind = planned_once(_kinds)


def _of(sums: Sums, rows: Mapping[Source, DataFrame]) -> dict[str, DataFrame]:
    return sums(rows["messages"], rows["exchanges"])


@planned_once
def _summarised(question: Analysis, rows: DataFrame) -> DataFrame:
    return question.summarise(rows)


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
