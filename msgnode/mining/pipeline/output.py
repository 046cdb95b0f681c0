"""
The output directory: its layout, and whether a run may write to it.

`lines`, `exchanges`, `lives` and `parts` are stored by batch, so that later runs read only new hours.
`tables` are the results, and are replaced as a whole.

Only what the checkpoint names counts: a run that is killed changes nothing, and leaves some directories for
the next run to delete.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from msgnode.mining.execution.gathering import gather, in_parallel
from msgnode.mining.execution.own_rows import OwnRows
from msgnode.mining.execution.planning import in_one_partition
from msgnode.mining.execution.stored_table import StoredTable
from msgnode.mining.pipeline.checkpoint import FORMAT, Checkpoint, load
from msgnode.mining.pipeline.checkpoint_entries import Tail
from msgnode.mining.pipeline.delta import TABLES as DELTA_TABLES
from msgnode.mining.pipeline.delta import DeltaTables
from msgnode.mining.pipeline.lock import exclusive
from msgnode.mining.pipeline.object_lock import HadoopObject, ObjectLock
from msgnode.mining.reading.log_files import LogFiles, Unreadable

if TYPE_CHECKING:
    import pyarrow as pa

CHECKPOINT = "_checkpoint.json"
_BY_BATCH = ("exchanges", "lives")
_BY_PIECE = ("lines", "_bad")
TAILS = "_tails"  # for a while: copies of what was appended to files, and answers with many rows
# Columns of stored rows with a value of its own in nearly each row: a dictionary would be filled in vain.
UNIQUE = ("id", "time", "transaction", "traceparent", "first_answer", "last_answer")
FEW_BYTES = 8 * 1024 * 1024  # of the log: its sums are few rows
MAX_READS = 128  # queries for stored rows that are kept, about three times as many as a look has
# Rows of parts that are kept in memory, and of an answer that goes through it; and the bytes of all of them.
MAX_AT_HAND, MAX_BYTES_AT_HAND = 20_000, 4 * 1024 * 1024
_FILE = "part-00000.snappy.parquet"  # of a small table
_WRITTEN = f"{CHECKPOINT}.part"  # the checkpoint, if a run was killed before it could rename it
_TABLES = ("tables", "_tables", "_tables.before", "report.html", "report.html.part", "_period")
# The checkpoint is deleted first: without it, what remains does not count.
_OURS = (_WRITTEN, CHECKPOINT, *_BY_BATCH, *_BY_PIECE, TAILS, "parts", *_TABLES)
_OF_PERIOD = re.compile(r"report-\d{8}T\d{6}-\d{8}T\d{6}\.html(\.part)?")
_NUMBERED = re.compile(r"batch=(\d+)")


class OutputRefused(Exception):
    """
    The directory has an output that must not be changed. The text says what to do.
    """


class Output:
    """
    Reads and writes below one directory, on any file system that Hadoop supports.
    """

    def __init__(self, spark: SparkSession, where: str) -> None:
        self._spark = spark
        self.files = LogFiles(spark, where)
        self._check: Callable[[], None] = lambda: None
        self._delta: DeltaTables | None = None
        self._saved = ""  # the text of the checkpoint, if this process saved one
        self._at_hand: dict[str, StoredTable] = {}  # sums of parts that this process wrote, by directory
        self._bytes_at_hand: dict[str, int] = {}  # of those that came as tables of Arrow
        self._reads: dict[
            tuple[str, tuple[int, ...], StructType | str | None], DataFrame
        ] = {}  # queries for stored rows, the newest last
        self.own = OwnRows(spark)

    @contextmanager
    def exclusive(self, make: bool) -> Iterator[None]:
        """
        Hold the lock of the directory, if its file system has locks; Unreadable if another run has it. `make`
        creates the directory if it is missing.
        """
        if not self.files.is_object_store:
            with exclusive(self.files.local(), make):
                yield
        elif make or self.files.exists():
            lock = ObjectLock(
                HadoopObject(self.files), self.files.where, self._spark.sparkContext.cancelAllJobs
            )
            with lock.held():
                self._check = lock.check
                yield
        else:
            yield

    def begin(self, options: dict[str, str], overwrite: bool) -> Checkpoint:
        """
        Load the checkpoint, or make a new one. OutputRefused if the directory has something else.
        """
        self.own.begin_look()
        where = self.files.where
        if self.files.is_file:
            raise OutputRefused(f"{where} is a file; --out takes a directory")
        names = [name for name in self.files.names() if not name.startswith(".")]
        if overwrite:
            for name in (*_OURS, *filter(_OF_PERIOD.fullmatch, names)):
                self.files.delete(name)
        elif names and not {CHECKPOINT, _WRITTEN} & set(names):
            raise OutputRefused(
                f"{where} is not empty and was not made by this tool; use --overwrite, or another --out"
            )
        if overwrite or not names:
            self.let_go()  # of a directory that is gone; numbers begin again
            self._use(Checkpoint(options))
            return Checkpoint(options)
        self.files.put_back("tables", "_tables.before")
        found = self._loaded()
        for name, value in options.items():
            if found.options.get(name, "") != value:
                raise OutputRefused(
                    f"{where} was made {_WITH_OTHER[name]}; use --overwrite to start over, or another --out"
                )
        self._use(found)  # not before: a session without Delta cannot use its tables
        if self._delta is not None:
            self._delta.begin(found.versions)
        return found

    def load(self) -> Checkpoint:
        """
        The checkpoint. Unreadable if it is damaged, OutputRefused if it is of another version.
        """
        found = self._loaded()
        self._use(found)
        return found

    def _loaded(self) -> Checkpoint:
        text = self.files.read(CHECKPOINT)
        if text != self._saved:  # another run has been here, and numbers may mean other parts
            self.let_go()
        try:
            found = load(text)
        except (ValueError, KeyError, TypeError) as why:
            raise Unreadable(
                f"{self.files.inside(CHECKPOINT)}: is damaged ({why}); use --overwrite"
            ) from None
        if found.format != FORMAT:
            raise OutputRefused(
                f"{self.files.where} was made by another version of this tool; use --overwrite"
            )
        return found

    def let_go(self) -> None:
        """
        Forget the sums in memory, and which files there are.
        """
        self._at_hand.clear()
        self._reads.clear()

    def _use(self, checkpoint: Checkpoint) -> None:
        """
        Read and write in the format of the checkpoint, in the versions that it names.
        """
        if checkpoint.options.get("format") == "delta":
            self._delta = DeltaTables(self._spark, self.files.where)
            self._delta.pinned = checkpoint.versions

    def save(self, checkpoint: Checkpoint) -> None:
        """
        Save the checkpoint. Unreadable if another run has taken over.
        """
        self._check()
        if self._delta is not None:
            checkpoint.versions = self._delta.versions()
        self._saved = checkpoint.text()
        self.files.write(CHECKPOINT, self._saved)

    def sweep(self, checkpoint: Checkpoint) -> None:
        """
        Delete the batches and parts that the saved checkpoint does not name.
        """
        self.files.delete(TAILS)
        batches = {batch.number for batch in checkpoint.batches}
        parts = {part.number for part in checkpoint.parts}
        pieces = {piece for batch in checkpoint.batches for piece in batch.pieces}
        kept: dict[str, set[int]] = {name: batches for name in _BY_BATCH} | {
            name: pieces for name in _BY_PIECE
        }
        kept |= {f"parts/{question}": parts for question in self.files_in("parts")}
        ends = tuple(f"/batch={number}" for number in parts)
        self._at_hand = {name: table for name, table in self._at_hand.items() if name.endswith(ends)}
        for name, numbers in kept.items():
            found = [_NUMBERED.fullmatch(inside) for inside in self.files_in(name)]
            self._forget(name, sorted({int(match[1]) for match in found if match} - numbers), checkpoint.next)

    def _forget(self, name: str, numbers: list[int], next: int) -> None:
        if self._delta is None or name not in DELTA_TABLES:
            for number in numbers:
                self.files.delete(f"{name}/batch={number}")
        # Rows of a run that was killed are written again, or found to be complete.
        elif numbers := [number for number in numbers if number < next]:
            self._delta.delete(name, f"batch IN ({', '.join(map(str, numbers))})")

    def delete_days(self, name: str, first: str) -> None:
        """
        Delete the days before `first` in a batch, whatever its directories are divided by before.
        """
        table, _, number = name.partition("/batch=")
        if self._delta is not None and table in DELTA_TABLES:
            self._delta.delete(table, f"batch = {number} AND date < '{first}'")
            return
        self._reads.clear()
        for inside in self.files_in(name):
            if inside.startswith("date="):
                if inside < f"date={first}":
                    self.files.delete(f"{name}/{inside}")
            elif "=" in inside:
                self.delete_days(f"{name}/{inside}", first)

    def ends_line(self, tail: Tail) -> bool:
        """
        Is the byte before the tail the end of a line?
        """
        return self.files.byte(tail.file.path, tail.begin - 1) == b"\n" if tail.begin else True

    def copy_tails(self, tails: list[Tail]) -> list[str]:
        """
        Copy what was appended to files, for Spark reads whole files only. A copy has the name of its file, in
        a directory named after its place in the list.
        """
        self.files.delete(TAILS)
        return [
            self.files.copy(tail.file, tail.begin, f"{TAILS}/{at}/{tail.file.name}")
            for at, tail in enumerate(tails)
        ]

    def files_in(self, name: str) -> list[str]:
        """
        The names of the entries in a subdirectory.
        """
        return LogFiles(self._spark, self.files.inside(name)).names()

    # -- rows --------------------------------------------------------------

    def local_place(self, name: str) -> str:
        """
        Where a directory with Parquet files is on this machine; "" if it is elsewhere, or of another format.
        """
        return "" if self._delta is not None else LogFiles(self._spark, self.files.inside(name)).local()

    def delete(self, name: str, number: int) -> None:
        """
        Delete what a run that was killed stored as a batch or part.
        """
        self._forget_reads(name, number)
        self.files.delete(f"{name}/batch={number}")

    def write(
        self, rows: DataFrame, name: str, number: int, *by: str, once: str = "", more: bool = False
    ) -> bool:
        """
        Store rows of a batch or part, in directories by the values of the columns `by`; `more`: in addition
        to others. False if a table has the rows already, by a transaction with the name `once`.
        """
        if self._delta is not None and name in DELTA_TABLES:
            return self._delta.write(rows, name, number, by, once)
        self._forget_reads(name, number)
        path = self.files.inside(f"{name}/batch={number}")
        plain = {f"parquet.enable.dictionary#{column}": "false" for column in UNIQUE}
        rows.write.mode("append" if more else "overwrite").options(**plain).partitionBy(*by).parquet(path)
        return True

    def _forget_reads(self, name: str, number: int) -> None:
        """
        Forget the queries for a batch or part whose files change.
        """
        for key in [key for key in self._reads if key[0] == name and number in key[1]]:
            del self._reads[key]

    def drop_bad(self, piece: int) -> None:
        """
        Delete the invalid lines among the lines, after they were set aside. A Delta table keeps them, of the
        kind `bad`, so that a batch which was written is complete.
        """
        if self._delta is None:
            self.files.delete(f"lines/batch={piece}/kind=bad")

    def write_text(self, rows: DataFrame, name: str, number: int, more: bool = False) -> None:
        """
        Store rows as JSON lines, for people; `more`: in addition to others.
        """
        rows.write.mode("append" if more else "overwrite").json(self.files.inside(f"{name}/batch={number}"))

    def read_text(self, name: str, numbers: list[int], schema: StructType | str) -> DataFrame:
        """
        The rows that `write_text` stored under these numbers; some may have none.
        """
        found = [f"{name}/batch={number}" for number in numbers]
        paths = [self.files.inside(inside) for inside in found if self.files.exists(inside)]
        return self._spark.read.schema(schema).json(paths)

    def read(self, name: str, numbers: list[int], schema: StructType | str | None = None) -> DataFrame:
        """
        The stored rows of these batches or parts.
        """
        if self._delta is not None and name in DELTA_TABLES:
            return self._delta.read(name, numbers, schema)
        key = name, tuple(numbers), schema
        found = self._reads.pop(key) if key in self._reads else self._read(name, numbers, schema)
        self._reads[key] = found
        if len(self._reads) > MAX_READS:
            del self._reads[next(iter(self._reads))]
        return found

    def _read(self, name: str, numbers: list[int], schema: StructType | str | None) -> DataFrame:
        places = [f"{name}/batch={number}" for number in numbers]
        if all(place in self._at_hand for place in places):
            return reduce(DataFrame.unionByName, [self._at_hand[place].rows for place in places])
        base, paths = self.files.inside(name), [self.files.inside(place) for place in places]
        reader = self._spark.read.option("mergeSchema", "true")  # an older part may lack a column
        if schema is not None:
            reader = self._spark.read.schema(schema)
        return reader.option("basePath", base).parquet(*paths)

    def write_tables(
        self, found: dict[str, DataFrame], among: str = "_tables", long: Collection[str] = ()
    ) -> dict[str, StoredTable]:
        """
        Write results, and return them as stored, in the same order. Results of few rows are written at once,
        but for those that are named in `long`: they may have many.
        """
        schemas = {name: rows.schema for name, rows in found.items()}
        places = {name: f"{among}/{name}" for name in found}
        if in_one_partition(self._spark):
            few = {name: rows for name, rows in found.items() if name not in long}
            tables = {
                name: StoredTable(
                    schemas[name], partial(self.own.query, places[name], schemas[name], values), values
                )
                for name, values in self._written_at_once(few, places, again=True).items()
            }
            for name in long:
                tables[name] = self._written_by_arrow(found[name], places[name])
            return tables
        self._write_each(found, places)
        return {
            name: StoredTable(schema, partial(self._stored, schema, places[name]))
            for name, schema in schemas.items()
        }

    def _stored(self, schema: StructType, name: str) -> DataFrame:
        stored = self._spark.read.schema(schema).parquet(self.files.inside(name))
        # Without an order, Spark reads the largest file first.
        return stored.orderBy("_metadata.file_name", "_metadata.row_index")

    def _write_each(self, found: dict[str, DataFrame], places: dict[str, str]) -> None:
        def write(name: str) -> None:
            found[name].write.mode("overwrite").parquet(self.files.inside(places[name]))

        in_parallel(write, found)

    def _written_at_once(
        self, found: dict[str, DataFrame], places: dict[str, str], again: bool
    ) -> dict[str, list[dict[str, Any]]]:
        """
        Write results in one execution, and return their rows.
        """
        from msgnode.mining.execution.arrow_tables import parquet_of, table_of  # a cluster does without

        values = dict(zip(found, gather(list(found.values()), again), strict=True))
        for name, rows in found.items():
            self.files.write_bytes(f"{places[name]}/{_FILE}", parquet_of(table_of(values[name], rows.schema)))
        return values

    def _written_by_arrow(self, rows: DataFrame, place: str) -> StoredTable:
        """
        Write a result without making Python's values of it.
        """
        from msgnode.mining.execution.arrow_tables import parquet_of

        self.files.write_bytes(f"{place}/{_FILE}", parquet_of(rows.toArrow()))
        reader = self._spark.read.schema(rows.schema)
        return StoredTable(rows.schema, partial(reader.parquet, self.files.inside(place)))

    def write_parts(self, found: dict[str, DataFrame], number: int, size: int) -> None:
        """
        Store the sums of each analysis as a part. Those of a few bytes of the log go through this process, in
        one execution, and are kept in memory for the next look, if they are few rows.
        """
        places = {name: f"parts/{name}/batch={number}" for name in found}
        for name in found:
            self._forget_reads(f"parts/{name}", number)
        if size > FEW_BYTES or not in_one_partition(self._spark):
            self._write_each(found, places)
            return
        for name, values in self._written_at_once(found, places, again=False).items():
            schema = found[name].schema
            self._at_hand[places[name]] = StoredTable(
                schema, partial(self.own.constant, schema, values), values
            )
        self._let_go_of_many()

    def part_file(self, number: int) -> Callable[[str], Path]:
        """
        The new file of an analysis in a part, on this machine.
        """

        def file(name: str) -> Path:
            self.delete(f"parts/{name}", number)  # of a run that was killed
            return Path(self.local_place(f"parts/{name}"), f"batch={number}", _FILE)

        return file

    def take_parts(self, found: "Mapping[str, pa.Table | Path]", number: int) -> None:
        """
        Store the sums of each analysis as a part; those with many rows are in its file.
        """
        from msgnode.mining.execution.arrow_tables import parquet_of, schema_of, values_of

        for name, sums in found.items():
            self._forget_reads(f"parts/{name}", number)
            if isinstance(sums, Path):
                continue
            place, schema, values = f"parts/{name}/batch={number}", schema_of(sums.schema), values_of(sums)
            self.files.write_bytes(f"{place}/{_FILE}", parquet_of(sums))
            self._at_hand[place] = StoredTable(schema, partial(self.own.constant, schema, values), values)
            self._bytes_at_hand[place] = sums.nbytes
        self._let_go_of_many()

    def _let_go_of_many(self) -> None:
        rows = sum(len(table.values or ()) for table in self._at_hand.values())
        size = sum(self._bytes_at_hand.get(place, 0) for place in self._at_hand)
        if rows > MAX_AT_HAND or size > MAX_BYTES_AT_HAND:
            self._at_hand.clear()
            self._bytes_at_hand.clear()

    def read_table(self, name: str) -> DataFrame:
        """
        A result, as the last run wrote it.
        """
        return self._spark.read.parquet(self.files.inside(f"tables/{name}"))

    def begin_tables(self) -> None:
        self.files.delete("_tables")

    def publish(self) -> None:
        """
        Replace all tables of the previous run by the new ones, at once.
        """
        self.files.exchange("_tables", "tables", "_tables.before")


_WITH_OTHER = {
    "logs": "from other logs",
    "pseudonyms": "with another key for pseudonyms",
    "policy": "with another policy",
    "format": "in another format",
}
