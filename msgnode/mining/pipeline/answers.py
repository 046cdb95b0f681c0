"""
Answers to queries of the stored rows of batches: on one machine by DuckDB from Parquet files, else by Spark.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from msgnode.mining.analyses import exchanges
from msgnode.mining.analyses.analysis import Asked, Source, asked
from msgnode.mining.execution.gathering import in_parallel
from msgnode.mining.execution.kept_plans import forget, of_this_look, planned_once, where
from msgnode.mining.execution.planning import may_use_duckdb, on_one_machine
from msgnode.mining.pipeline.checkpoint_entries import Batch
from msgnode.mining.pipeline.follow_up import Stored, schema_of
from msgnode.mining.pipeline.output import MAX_AT_HAND, MAX_BYTES_AT_HAND, TAILS, Output
from msgnode.mining.sql.dialect import DUCKDB

if TYPE_CHECKING:
    import pyarrow as pa

Say = Callable[[str], None]
VALID = "kind != 'bad'"
_STORED: tuple[Source, ...] = ("lines", "exchanges", "lives")
_NUMBER = [StructField("batch", IntegerType())]
_OF_LINES: dict[Source, str] = {
    "lines": VALID,
    "messages": "kind = 'message'",
    "events": "kind = 'session'",
}


class Answers:
    """
    Answers queries of stored rows. `line` is the schema of lines; rows of a log of `few_bytes` are few.

    Of exchanges and lives a query gets those that are settled in their batch, and of the batch `last`, the
    newest, also those that are open. A request there that came just before the last line, and may still be
    answered, does not expect an answer yet.
    """

    rows = 0  # of the last answers that were computed at once

    def __init__(
        self,
        spark: SparkSession,
        output: Output,
        stored: Stored,
        line: StructType,
        say: Say,
        few_bytes: int,
    ) -> None:
        self._spark = spark
        self._output = output
        self._stored = stored
        self._line = StructType([*line.fields, *_NUMBER])
        self._say = say
        self._few_bytes = few_bytes

    def ask(
        self, queries: Mapping[str, Asked], batches: list[Batch], last: Batch | None, at_once: bool = False
    ) -> dict[str, DataFrame]:
        """
        The answers by name. `at_once`: Spark computes them now, too, for several queries of this look.
        """
        self.rows = 0
        place = Path(self._output.local_place(TAILS), "answers")
        found = self.here(queries, batches, last, lambda name: place / f"{name}.parquet")
        if found is not None:
            return {name: self._query(name, answer) for name, answer in found.items()}
        keep = at_once and on_one_machine(self._spark)  # on a cluster they would be lost with an executor
        many = keep and self._few(batches)
        sources = self.sources_of_many(batches, last) if many else self.sources(batches, last, now=True)
        answers = _asked(queries, sources)
        return self._at_once(answers) if keep and not many else answers

    def here(
        self,
        queries: Mapping[str, Asked],
        batches: list[Batch],
        last: Batch | None,
        into: Callable[[str], Path],
    ) -> "dict[str, pa.Table | Path] | None":
        """
        The answers of DuckDB, those with many rows as files `into(name)`; None if Spark has to answer.
        """
        if not self._output.local_place("lines") or not may_use_duckdb(self._spark):
            return None
        try:  # a cluster does without these
            from msgnode.mining.local.query import AtHand, NotAnswered, answers
        except ModuleNotFoundError:
            return None
        kinds = {of for of, _ in queries.values()}
        try:
            return answers(
                {name: query(DUCKDB, of) for name, (of, query) in queries.items()},
                self._tables(batches, kinds),
                _views(last, kinds),
                into,
                Path(self._output.local_place(TAILS), "spilled"),
                self._spark.sparkContext.defaultParallelism,
                AtHand(MAX_AT_HAND, MAX_BYTES_AT_HAND),
                self._few(batches),
            )
        except NotAnswered as why:
            self._say(f"Spark does that, for DuckDB does not: {why}")
            return None

    def _tables(self, batches: list[Batch], kinds: set[Source]) -> dict[str, Any]:
        """
        The stored rows with rows of these kinds.
        """
        from msgnode.mining.local.rows import local_rows

        names = {"lines" if kind in _OF_LINES else kind for kind in kinds}
        found = {}
        for name in names:
            numbers = [batch.number for batch in batches]
            if name == "lines":
                numbers = [piece for batch in batches for piece in batch.pieces]
            schema = self._line if name == "lines" else schema_of(name)
            place = Path(self._output.local_place(name))
            found[f"stored_{name}"] = local_rows(place, numbers, schema, self._stored.since)
        return found

    def _query(self, name: str, answer: "pa.Table | Path") -> DataFrame:
        import pyarrow.parquet as pq

        from msgnode.mining.execution.arrow_tables import schema_of as of_arrow

        if isinstance(answer, Path):
            file = pq.read_metadata(answer)
            self.rows += file.num_rows
            schema = of_arrow(file.schema.to_arrow_schema())
            path = self._output.files.inside(f"{TAILS}/answers/{answer.name}")
            return of_this_look(self._spark.read.schema(schema).parquet(path))
        self.rows += answer.num_rows
        return self._output.own.at_hand(name, of_arrow(answer.schema), answer)

    # -- by Spark ----------------------------------------------------------------

    def sources(self, batches: list[Batch], last: Batch | None, now: bool = False) -> dict[Source, DataFrame]:
        """
        The stored rows of these batches, as queries of Spark; `now`: `last` is the newest batch.
        """
        settled = _settled(last)
        told = where(self._stored.stored_rows("exchanges", batches), f"{settled} and ({exchanges.TOLD})")
        return _by_kind(
            where(self._stored.stored_lines(batches), VALID),  # the files are listed once
            _as_of_now(told, _expects_now(last)) if now else told,
            where(self._stored.stored_rows("lives", batches), settled),
        )

    def sources_of_many(self, batches: list[Batch], last: Batch | None) -> dict[Source, DataFrame]:
        """
        The same for many queries. Few rows are read once: to open the files for each query costs more.
        """
        found = self.sources(batches, last, now=last is not None)
        if not self._few(batches):
            return found
        keep = last is not None  # a part is summed up once
        rows = self._output.own.in_memory({name: found[name] for name in _STORED}, keep)
        return _by_kind(*rows) if keep else _kinds(*rows)

    def _few(self, batches: list[Batch]) -> bool:
        return on_one_machine(self._spark) and sum(batch.bytes for batch in batches) <= self._few_bytes

    def _at_once(self, found: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        forget()  # no plan is asked again, and each would hold such answers
        done: dict[str, DataFrame] = {}
        counts: list[int] = []

        def compute(name: str) -> None:
            counted = Observation()
            done[name] = found[name].observe(counted, F.count("*").alias("rows")).localCheckpoint()
            counts.append(counted.get["rows"] or 0)

        in_parallel(compute, found)
        self.rows = sum(counts)
        return done


def _asked(queries: Mapping[str, Asked], sources: Mapping[Source, DataFrame]) -> dict[str, DataFrame]:
    return {name: asked(query, sources[of]) for name, (of, query) in queries.items()}


def _views(last: Batch | None, kinds: set[Source]) -> dict[str, str]:
    settled = _settled(last)
    views = {name: f"SELECT * FROM stored_lines WHERE {condition}" for name, condition in _OF_LINES.items()}
    told = f"{settled} AND ({exchanges.TOLD})"
    expects = _expects_now(last)
    views["exchanges"] = f"SELECT * REPLACE ({expects} AS expects) FROM stored_exchanges WHERE {told}"
    views["lives"] = f"SELECT * FROM stored_lives WHERE {settled}"
    return {kind: views[kind] for kind in kinds}


def _settled(last: Batch | None) -> str:
    return "NOT open" if last is None else f"(NOT open OR batch = {last.number})"


def _expects_now(last: Batch | None) -> str:
    """
    Should an exchange have an answer by now? Not one that is pending at the end of the log.
    """
    return (
        "expects" if last is None else f"expects AND NOT (batch = {last.number} AND coalesce(pending, FALSE))"
    )


@planned_once
def _as_of_now(exchanges: DataFrame, expects: str) -> DataFrame:
    return exchanges.withColumn("expects", F.expr(expects))


def _kinds(lines: DataFrame, exchanges: DataFrame, lives: DataFrame) -> dict[Source, DataFrame]:
    return {
        "lines": lines,
        "messages": lines.where(_OF_LINES["messages"]),
        "events": lines.where(_OF_LINES["events"]),
        "exchanges": exchanges,
        "lives": lives,
    }


_by_kind = planned_once(_kinds)
