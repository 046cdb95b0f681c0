"""
A mining run: from a directory of logs to tables and a report.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from msgnode.mining.analyses import subscription_graph
from msgnode.mining.analyses.analysis import TOTALS, Analysis, Asked, totals_of, totals_of_values
from msgnode.mining.analyses.catalogue import QUESTIONS
from msgnode.mining.analyses.columns import HOUR_NANOSECONDS
from msgnode.mining.analyses.top_talkers import MAX_ROWS
from msgnode.mining.execution.gathering import gathered, in_parallel
from msgnode.mining.execution.kept_plans import at_once, planned_once
from msgnode.mining.execution.planning import for_few_rows, in_one_partition, on_one_machine
from msgnode.mining.execution.stored_table import StoredTable
from msgnode.mining.pipeline import pseudonyms
from msgnode.mining.pipeline.batches import Batches
from msgnode.mining.pipeline.checkpoint import MAX_PARTS, MAX_TAIL, Checkpoint
from msgnode.mining.pipeline.checkpoint_entries import Batch
from msgnode.mining.pipeline.ingest import Ingest
from msgnode.mining.pipeline.line_store import Step
from msgnode.mining.pipeline.output import FEW_BYTES, TAILS, Output
from msgnode.mining.pipeline.timeline import AddressTimeline, Conversation
from msgnode.mining.reading.log_files import LogFile, LogFiles, Unreadable
from msgnode.mining.report.page import write_report
from msgnode.mining.report.series import MINUTES, minutes
from msgnode.mining.report.session_chapter import MAX_TOLD
from msgnode.mining.report.steps import SHORT_SECONDS, minutes_of

Say = Callable[[str], None]
FEW_PARTS_BYTES = 64 * 1024 * 1024  # of Parquet: with more, compiled queries and all cores are faster
FEW_ROWS = 1_000_000  # of the sums of the newest hour, as those of parts
RECENT_HOURS = 24  # before the end of the log, for timelines that were not requested


@dataclass(frozen=True)
class Options:
    """
    The options of a run.

    `key` is for pseudonyms; `policy` is a path, `domain` the node's own domain for the policy, `default` the
    effect if no rule applies. `stories` are addresses, `conversation` is the id of a message. `keep` is the
    number of days that are kept, 0 for all. `format` is "" for Parquet, or "delta". `records` has names by
    id, for the report.
    """

    logs: str
    out: str
    overwrite: bool = False
    key: bytes = b""
    policy: str = ""
    domain: str = ""
    default: str = "permit"
    stories: tuple[str, ...] = ()
    conversation: str = ""
    keep: int = 0
    format: str = ""
    records: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Result:
    """
    The result of a run: the number of files it read, and the totals of the output.
    """

    files: int = 0
    lines: int = 0
    bad: int = 0
    report: str = ""
    seconds: float = 0.0
    tables: list[str] = field(default_factory=list)


class MiningRun:
    """
    A run: it reads what is new, computes all analyses, and writes tables and report.
    """

    def __init__(
        self,
        spark: SparkSession,
        options: Options,
        say: Say,
        most_parts: int = MAX_PARTS,
        most_tail: int = MAX_TAIL,
        few_bytes: int = FEW_BYTES,
    ) -> None:
        self._spark = spark
        self._options = options
        self._say = say
        self._logs = LogFiles(spark, options.logs)
        self._output = Output(spark, options.out)
        steps: list[Step] = []
        questions: list[Analysis] = list(QUESTIONS)
        self._policy = ""
        added = StructType([])
        if options.policy:
            module = policy_replay()
            policy = module.load_policy(options.policy, options.domain, options.default)
            steps.append(policy.decided)
            questions.append(module.QUESTION)
            added, self._policy = module.ADDED, policy.revision
        if options.key:  # after the policy, which needs the original addresses
            steps.append(lambda lines: pseudonyms.pseudonymised(lines, options.key))
        self._questions = questions
        self._batches = Batches(spark, self._output, questions, steps, added, say, few_bytes)
        self._ingest = Ingest(self._output, self._batches, most_parts, most_tail, options.keep)
        self._overwrite = options.overwrite
        self._asked = bool(options.stories or options.conversation)

    def run(self) -> Result:
        """
        Run once. Result.report is "" if there is no data.
        """
        begun = time.monotonic()
        logs = self._logs.logs()
        try:
            with self._output.exclusive(make=bool(logs)):
                result = self._taken(logs)
        except BaseException:
            self._output.let_go()  # it is not known what was written
            raise
        result.seconds = time.monotonic() - begun
        return result

    def _taken(self, logs: list[LogFile]) -> Result:
        kept = {
            "logs": self._logs.where,
            "pseudonyms": pseudonyms.fingerprint(self._options.key) if self._options.key else "",
            "policy": self._policy,
            "format": self._options.format,
        }
        checkpoint = self._output.begin(kept, self._overwrite)
        self._overwrite = False  # further runs are incremental
        checkpoint, read = self._ingest.take(checkpoint, logs, self._logs.unpacked)
        result, batches = Result(files=read), checkpoint.batches
        if batches and (self._asked or checkpoint.answered != checkpoint.next):
            self._write(checkpoint)
            self._asked = False  # until there is something new
        if batches:
            result.report = self._output.files.inside("report.html")
            result.tables = self._output.files_in("tables")
        result.lines = sum(batch.lines for batch in batches)
        result.bad = sum(batch.bad for batch in batches)
        return result

    def _write(self, checkpoint: Checkpoint) -> None:
        """
        Write all tables and the report.
        """
        self._output.begin_tables()
        summaries = self._batches.summaries(checkpoint)
        here = on_one_machine(self._spark)
        few = here and self._batches.rows_at_once <= FEW_ROWS
        few = few and self._output.files.bytes_in("parts") <= FEW_PARTS_BYTES
        large = here and not in_one_partition(self._spark)
        with for_few_rows(self._spark, few):
            found, tables = self._answer(summaries, large)
        with for_few_rows(self._spark, few and not large):
            tables |= self._graph(tables, found, large)
        with for_few_rows(self._spark, few):
            striking, slowest = _conspicuous(tables)
        tables |= self._stories(checkpoint.batches, striking, slowest)
        self._say("writing the report")
        about = self._about(checkpoint)
        fine = self._fine(checkpoint, about, tables["nodes"])
        with for_few_rows(self._spark, few):
            report = write_report(about, tables, fine)
        self._output.publish()
        self._output.files.delete(TAILS)
        self._output.files.write("report.html", report)
        checkpoint.answered = checkpoint.next
        self._output.save(checkpoint)

    def _answer(
        self, summaries: Callable[[Analysis], DataFrame], large: bool
    ) -> tuple[dict[str, DataFrame], dict[str, StoredTable]]:
        """
        The results of all analyses, and their tables as written.
        """
        self._say("combining the results")
        found = {question.name: _combined(question, summaries(question)) for question in self._questions}
        if large:  # what is cut for show is also added up
            found |= self._at_once({each.name: found[each.name] for each in self._questions if each.cut})
        long = [each.name for each in self._questions if each.grows] if large else []
        shown = {each.name: _shown(each, found[each.name]) for each in self._questions}
        return found, self._output.write_tables(shown, long=long)

    def _graph(
        self, tables: dict[str, StoredTable], found: Mapping[str, DataFrame], large: bool
    ) -> dict[str, StoredTable]:
        """
        The tables of the subscription graph, and the totals.
        """
        self._say("computing the subscription graph")
        standing, published = tables["subscriptions"].rows, tables["publications"].rows
        lonely = subscription_graph.all_orphans(standing, published)
        if large:
            lonely = at_once(lonely)
        totals = [*self._totals(tables, found), totals_of(lonely, "orphans", "observers")]
        return self._output.write_tables(
            {
                "orphans": subscription_graph.orphans(lonely),
                "edges": subscription_graph.edges(standing, published),
                "totals": _sorted_totals(*totals),
            }
        )

    def _at_once(self, rows: dict[str, DataFrame]) -> dict[str, DataFrame]:
        """
        Results that several questions need, computed once.
        """
        done: dict[str, DataFrame] = {}

        def compute(name: str) -> None:
            done[name] = at_once(rows[name])

        in_parallel(compute, rows)
        return done

    def _totals(self, tables: dict[str, StoredTable], found: Mapping[str, DataFrame]) -> list[DataFrame]:
        """
        The totals of the tables that may be cut; of a table with fewer rows than that, from its own rows.
        """
        asked, known = [], []
        for question in self._questions:
            values = tables[question.name].values
            if question.cut is not None and values is not None and len(values) < MAX_ROWS:
                known += totals_of_values(question, values)
            elif question.cut is not None:
                asked.append(totals_of(found[question.name], question.name, *question.sums))
        return [*asked, self._output.own.query("totals", TOTALS, known)] if known else asked

    def _stories(
        self, batches: list[Batch], striking: list[str], slowest: Row | None
    ) -> dict[str, StoredTable]:
        """
        The requested timelines over all lines; else the most conspicuous ones of the last hours, truncated.
        """
        options = self._options
        self._say("writing timelines")
        if options.stories:
            told = [AddressTimeline(self._hidden(address)) for address in options.stories]
        else:
            # By time, not by batches: how often the tool ran must not show.
            recent = (batches[-1].end - RECENT_HOURS) * HOUR_NANOSECONDS
            told = [AddressTimeline(each, recent, MAX_TOLD) for each in striking]
        asked: dict[str, Asked] = {f"story {number}": ("lines", one) for number, one in enumerate(told)}
        stories = list(asked)
        if options.conversation:
            id = options.conversation
            way = Conversation(pseudonyms.hidden_id(id, options.key) if options.key else id)
            asked["conversation"] = "lines", way
        elif slowest is not None:
            near = slowest.time - HOUR_NANOSECONDS, slowest.time + HOUR_NANOSECONDS
            way = Conversation(slowest.id, (slowest.asker, slowest.asked), *near, MAX_TOLD)
            asked["conversation"] = "lines", way
        found = self._batches.ask(asked, batches)
        told_of = _united(*[found.pop(name) for name in stories])
        return self._output.write_tables({"stories": told_of, **found})

    def _hidden(self, address: str) -> str:
        key = self._options.key
        return pseudonyms.hidden_address(address, key) if key else address

    def _fine(
        self, checkpoint: Checkpoint, about: dict[str, Any], nodes: StoredTable
    ) -> dict[str, DataFrame]:
        """
        The sums by minute of a log that is short enough to be shown so.
        """
        if about["end"] - about["begin"] > SHORT_SECONDS:
            return {}
        about["begin"], about["end"] = minutes_of(nodes, about["begin"], about["end"])
        return minutes(self._batches.ask(MINUTES, checkpoint.batches, at_once=True))

    def _about(self, checkpoint: Checkpoint) -> dict[str, Any]:
        batches = checkpoint.batches
        return {
            "logs": self._options.logs,
            "begin": batches[0].begin * 3600,
            "end": batches[-1].end * 3600,
            "lines": sum(batch.lines for batch in batches),
            "bad": sum(batch.bad for batch in batches),
            "files": sum(len(batch.files) for batch in batches),
            "pseudonyms": bool(self._options.key),
            # Earlier days were removed, if not 0.
            "since": checkpoint.since,
            "records": self._options.records,
        }


def policy_replay() -> Any:
    """
    The module for policy replay, which needs more packages than Spark.
    """
    try:
        from msgnode.mining.analyses import policy_replay as module
    except ModuleNotFoundError as why:
        missing = (why.name or "").partition(".")[0]
        raise Unreadable(
            f"--policy needs {missing} here and on every executor, installed and not in a zip: "
            f"pip install {missing}"
        ) from why
    return module


@planned_once
def _combined(question: Analysis, summaries: DataFrame) -> DataFrame:
    return question.combine(summaries)


@planned_once
def _shown(question: Analysis, found: DataFrame) -> DataFrame:
    return found if question.cut is None else question.cut(found)


@planned_once
def _united(*rows: DataFrame) -> DataFrame:
    return reduce(DataFrame.unionAll, rows)


@planned_once
def _sorted_totals(*rows: DataFrame) -> DataFrame:
    return _united(*rows).orderBy("table", "measure")


def _conspicuous(tables: dict[str, StoredTable]) -> tuple[list[str], Row | None]:
    """
    The address with the most failures, and the one with the most messages; and the slowest exchange of those
    with the most answers.
    """
    talkers, slowest = tables["talkers"].rows, tables["slowest"].rows
    failing, sending, slow = gathered(
        *[_most(talkers, column) for column in ("failed", "messages")],
        _slowest(slowest),
    )
    addresses = dict.fromkeys(row.address for row in (*failing, *sending))
    return list(addresses) or ["mn:/session"], slow[0] if slow else None


@planned_once
def _most(talkers: DataFrame, column: str) -> DataFrame:
    return talkers.orderBy(F.desc(column), "address").limit(1)


@planned_once
def _slowest(exchanges: DataFrame) -> DataFrame:
    return exchanges.orderBy(F.desc("answers"), F.desc("micros"), "time").limit(1)
