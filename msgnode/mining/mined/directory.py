"""
A mined directory: what `msgnode mine LOGS --out DIR` stored, for questions that read no log.

Nothing is changed in it, except that a report of a period is added.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial, reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from msgnode.mining.analyses import subscription_graph
from msgnode.mining.analyses.analysis import Source, asked, totals, totals_of
from msgnode.mining.analyses.catalogue import QUESTIONS
from msgnode.mining.analyses.columns import HOUR_NANOSECONDS
from msgnode.mining.execution.gathering import served
from msgnode.mining.execution.stored_table import StoredTable
from msgnode.mining.mined.period import SECOND, Period, checked, said
from msgnode.mining.mined.views import Read, Views, session_for_views
from msgnode.mining.pipeline.batches import Batches
from msgnode.mining.pipeline.checkpoint_entries import Batch, hour_of
from msgnode.mining.pipeline.output import CHECKPOINT, Output
from msgnode.mining.pipeline.run import policy_replay
from msgnode.mining.reading.log_files import Unreadable
from msgnode.mining.report.page import write_report
from msgnode.mining.report.series import MINUTES, minutes
from msgnode.mining.report.steps import MINUTE, SHORT_SECONDS, minutes_of

_NODE = re.compile(r"traffic-(.+)-\d{8}T\d{2}\.")
_BAD = "path string, why string, text string"
_PERIOD = "_period"  # tables of a period, while its report is written


class MinedDirectory:
    """
    The stored rows of a mined directory. Unreadable if it is none, or has no lines yet.
    """

    def __init__(self, spark: SparkSession, where: str) -> None:
        self._spark = spark
        self._output = Output(spark, where)
        files = self._output.files
        self.where = files.where
        if not files.exists(CHECKPOINT):
            raise Unreadable(f"{where}: was not mined; make it with: msgnode mine LOGS --out {where}")
        self.checkpoint = self._output.load()
        if not self.checkpoint.batches:
            raise Unreadable(f"{where}: has no lines yet")
        self._batches = Batches(spark, self._output, (), (), StructType([]), lambda _: None)
        self._batches.since = self.checkpoint.since

    @property
    def whole(self) -> Period:
        """
        The hours that it has.
        """
        batches = self.checkpoint.batches
        return Period(batches[0].begin * HOUR_NANOSECONDS, batches[-1].end * HOUR_NANOSECONDS)

    @property
    def nodes(self) -> list[str]:
        """
        The names of the nodes, as in the names of their files.
        """
        found = {_NODE.match(name) for batch in self.checkpoint.batches for name in batch.files}
        return sorted({match[1] for match in found if match})

    @property
    def is_pseudonymised(self) -> bool:
        return bool(self.checkpoint.options.get("pseudonyms"))

    def period(self, begin: int | None, end: int | None) -> Period:
        """
        The period with these ends, else those of the directory. ValueError if it is reversed, Unreadable if
        the directory has nothing of it.
        """
        whole = self.whole
        if (begin is not None and begin >= whole.end) or (end is not None and end <= whole.begin):
            since = "" if begin is None else f" from {said(begin)}"
            until = "" if end is None else f" to {said(end)}"
            raise Unreadable(f"{self.where}: has nothing{since}{until}, but {whole}")
        return checked(Period(whole.begin if begin is None else begin, whole.end if end is None else end))

    def covered(self, period: Period) -> Period:
        """
        The part of a period in which there can be lines, in whole seconds: after the first line that the
        directory has, and before its newest, if a minute or more is missing. A period that is not over would
        else have rates that are too low.
        """
        whole, begin, end = self.whole, period.begin, period.end
        if begin < whole.begin + HOUR_NANOSECONDS:
            oldest = self._oldest() // SECOND * SECOND
            begin = oldest if oldest - begin > MINUTE * SECOND else begin
        if end > whole.end - HOUR_NANOSECONDS:
            newest = (self.newest() // SECOND + 1) * SECOND
            end = newest if end - newest > MINUTE * SECOND else end
        if begin >= end:
            raise Unreadable(f"{self.where}: has nothing of {replace(period, node='')}, but {whole}")
        return replace(period, begin=begin, end=end)

    def rows(self, period: Period) -> dict[Source, DataFrame]:
        """
        The stored rows of a period, by kind. Unreadable if the directory has nothing of that time or node.
        """
        if period.node and re.sub(r"[^A-Za-z0-9.\-_]", "_", period.node) not in self.nodes:
            raise Unreadable(f"{self.where}: has no node {period.node!r}, but {', '.join(self.nodes)}")
        batches = self._touched(period)
        if not batches:
            raise Unreadable(f"{self.where}: has nothing of {replace(period, node='')}, but {self.whole}")
        first, last = period.days
        within = (
            F.col("date").between(first, last)
            & (F.col("time") >= period.begin)
            & (F.col("time") < period.end)
        )
        if period.node:
            within &= F.col("node") == period.node
        return {name: rows.where(within) for name, rows in self._batches.sources(batches).items()}

    def views(self) -> Views:
        """
        The tables and the stored rows, to ask in SQL.
        """
        spark = session_for_views(self._spark)
        output = Output(spark, self.where)
        checkpoint = output.load()
        added = policy_replay().ADDED if checkpoint.options.get("policy") else StructType([])
        batches = Batches(spark, output, (), (), added, lambda _: None)
        batches.since = checkpoint.since
        reads: dict[str, Read] = {
            name: partial(output.read_table, name) for name in output.files_in("tables")
        }
        numbers = [piece for batch in checkpoint.batches if batch.bad for piece in batch.pieces]
        reads["bad"] = partial(output.read_text, "_bad", numbers, _BAD)
        kinds: tuple[Source, ...] = ("lines", "exchanges", "lives")
        for kind in kinds:
            reads[kind] = partial(_newest, batches, checkpoint.batches, kind)
        return Views(spark, reads, self.where)

    def newest(self) -> int:
        """
        The time of the newest line, in nanoseconds since 1970.
        """
        found = self._batches.lines(self.checkpoint.batches[-1:]).agg(F.max("time").alias("time")).first()
        if found is None or found["time"] is None:
            raise Unreadable(f"{self.where}: has no lines in its newest hour")
        return int(found["time"])

    def _oldest(self) -> int:
        begin = self.whole.begin
        hour = F.col("time") < begin + HOUR_NANOSECONDS
        day = F.col("date") == Period(begin, begin + 1).days[0]
        lines = self._batches.lines(self.checkpoint.batches[:1]).where(day & hour)
        found = lines.agg(F.min("time").alias("time")).first()
        return begin if found is None or found["time"] is None else int(found["time"])

    def report(
        self,
        period: Period,
        say: Callable[[str], None] = lambda _: None,
        records: Mapping[str, str] | None = None,
    ) -> str:
        """
        Write a report of a period next to the report of everything, and return its path.

        `records` are the names of records by id.
        """
        rows = self.rows(period)
        say(f"summing up {period}")
        tables = self._tables(rows)
        if not served([tables["volume"].head(1)])[0]:
            self._output.files.delete(_PERIOD)
            raise Unreadable(f"{self.where}: has no messages from {period}")
        about: dict[str, Any] = {
            "logs": self.where,
            "begin": period.begin // SECOND,
            "end": -(-period.end // SECOND),
            "lines": rows["lines"].count(),
            "bad": 0,
            "files": self._files(period),
            "pseudonyms": self.is_pseudonymised,
            "period": True,
            "records": records or {},
        }
        fine = {}
        if period.seconds <= SHORT_SECONDS:
            begin, end = minutes_of(tables["nodes"], about["begin"], about["end"])
            # The first and the last minute may not be whole.
            about |= {"begin": max(begin, about["begin"]), "end": min(end, about["end"])}
            fine = minutes({name: asked(query, rows[of]) for name, (of, query) in MINUTES.items()})
        say("writing the report")
        name = f"report-{period.file_name}.html"
        self._output.files.write(name, write_report(about, tables, fine))
        self._output.files.delete(_PERIOD)
        return self._output.files.inside(name)

    def _tables(self, rows: dict[Source, DataFrame]) -> dict[str, StoredTable]:
        self._output.files.delete(_PERIOD)
        found = {each.name: each.result(each.summarise(rows[each.of])) for each in QUESTIONS}
        tables = self._output.write_tables(found, _PERIOD)
        standing, published = tables["subscriptions"].rows, tables["publications"].rows
        cut = [totals(each, each.summarise(rows[each.of])) for each in QUESTIONS if each.cut is not None]
        lonely = subscription_graph.all_orphans(standing, published)
        cut.append(totals_of(lonely, "orphans", "observers"))
        return tables | self._output.write_tables(
            {
                "totals": reduce(DataFrame.unionAll, cut),
                "orphans": subscription_graph.orphans(lonely),
                "edges": subscription_graph.edges(standing, published),
            },
            _PERIOD,
        )

    def _files(self, period: Period) -> int:
        """
        The number of log files with hours of the period.
        """
        hours = range(period.begin // HOUR_NANOSECONDS, -(-period.end // HOUR_NANOSECONDS))
        names = {name for batch in self._touched(period) for name in batch.files}
        return sum(hour_of(name) in hours for name in names)

    def _touched(self, period: Period) -> list[Batch]:
        """
        The batches with hours of the period, and the one that follows: it has the answers that came after.
        """
        first, last = period.begin // HOUR_NANOSECONDS, (period.end - 1) // HOUR_NANOSECONDS
        batches = self.checkpoint.batches
        touched = [at for at, batch in enumerate(batches) if batch.begin <= last and first < batch.end]
        return batches[touched[0] : touched[-1] + 2] if touched else []


def _newest(batches: Batches, some: list[Batch], kind: Source) -> DataFrame:
    """
    The stored rows of these batches; of what a later batch continues only the newest state.
    """
    return batches.sources(some)[kind].drop("batch")
