"""
A run from a directory of logs to tables and a report.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from msgnode.mining.analyses import subscription_graph
from msgnode.mining.analyses.analysis import Analysis
from msgnode.mining.analyses.catalogue import QUESTIONS
from msgnode.mining.analyses.columns import HOUR
from msgnode.mining.analyses.timeline import conversation, story
from msgnode.mining.pipeline import pseudonyms
from msgnode.mining.pipeline.batches import Batches, Step, together
from msgnode.mining.pipeline.checkpoint import MAX_PARTS, Batch, Checkpoint
from msgnode.mining.pipeline.ingest import Ingest
from msgnode.mining.pipeline.lock import alone
from msgnode.mining.pipeline.log_files import LogFile, LogFiles, Unreadable
from msgnode.mining.pipeline.output import Output
from msgnode.mining.report.page import write_report
from msgnode.mining.report.tables import moment

Say = Callable[[str], None]
SHOWN = 500  # lines of a story that was not asked for


@dataclass(frozen=True)
class Options:
    """
    The options of a run.

    `key` replaces identifiers; `policy` is a path, `domain` the node's own, which a policy may ask for,
    `default` the effect where no rule of it applies.
    `stories` are addresses, `conversation` the id of a message.
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


@dataclass
class Result:
    """
    The result of a run: how many files it read, and what the output holds altogether.
    """

    files: int = 0
    lines: int = 0
    bad: int = 0
    report: str = ""
    seconds: float = 0.0
    tables: list[str] = field(default_factory=list)


class MiningRun:
    """
    Reads what is new, answers every question, writes tables and report.
    """

    def __init__(self, spark: SparkSession, options: Options, say: Say, most_parts: int = MAX_PARTS) -> None:
        self._options = options
        self._say = say
        self._logs = LogFiles(spark, options.logs)
        self._output = Output(spark, options.out)
        steps: list[Step] = []
        questions: list[Analysis] = list(QUESTIONS)
        self._policy = ""
        added = StructType([])
        if options.policy:
            module = _replay()
            policy = module.sound(options.policy, options.domain, options.default)
            steps.append(policy.decided)
            questions.append(module.QUESTION)
            added, self._policy = module.ADDED, policy.revision
        if options.key:  # after the policy, which needs the addresses as they were
            steps.append(lambda lines: pseudonyms.pseudonymised(lines, options.key))
        self._questions = questions
        self._batches = Batches(spark, self._output, questions, steps, added, say)
        self._intake = Ingest(self._output, self._batches, most_parts)
        self._overwrite = options.overwrite
        self._asked = bool(options.stories or options.conversation)

    def run(self) -> Result:
        """
        One run; Result.report is empty when there is nothing to report on.
        """
        begun = time.monotonic()
        logs = self._logs.logs()
        with alone(self._output.files.local(), make=bool(logs)):
            result = self._taken(logs)
        result.seconds = time.monotonic() - begun
        return result

    def _taken(self, logs: list[LogFile]) -> Result:
        kept = {
            "logs": self._logs.where,
            "pseudonyms": pseudonyms.fingerprint(self._options.key) if self._options.key else "",
            "policy": self._policy,
        }
        checkpoint = self._output.begin(kept, self._overwrite)
        self._overwrite = False  # what follows goes on
        checkpoint, read = self._intake.take(checkpoint, logs, self._logs.unpacked)
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
        All tables and the report.
        """
        self._output.begin_tables()
        tables = self._answer(checkpoint)
        tables |= self._stories(checkpoint.batches, tables)
        self._say("writing the report")
        report = write_report(self._about(checkpoint), tables)
        self._output.publish()
        self._output.files.write("report.html", report)
        checkpoint.answered = checkpoint.next
        self._output.save(checkpoint)

    def _answer(self, checkpoint: Checkpoint) -> dict[str, DataFrame]:
        tables: dict[str, DataFrame] = {}
        self._say("answering")

        def answer(question: Analysis) -> None:
            found = self._batches.answer(question, checkpoint.parts, checkpoint.batches[-1])
            tables[question.name] = self._output.write_table(found, question.name)

        together(answer, self._questions)
        self._say("drawing the graph of subscriptions")
        standing, published = tables["subscriptions"], tables["publications"]
        for name, rows in (
            ("orphans", subscription_graph.orphans(standing, published)),
            ("edges", subscription_graph.edges(standing, published)),
        ):
            tables[name] = self._output.write_table(rows, name)
        return tables

    def _stories(self, batches: list[Batch], tables: dict[str, DataFrame]) -> dict[str, DataFrame]:
        """
        What was asked for, over all lines; else the most striking of the last hours, cut short.
        """
        options, lines = self._options, self._batches.lines(batches)
        self._say("telling stories")
        if options.stories:
            told = [_told(lines, address, options.key) for address in options.stories]
        else:
            recent = self._batches.lines(batches[-2:])
            told = [_told(recent, address).limit(SHOWN) for address in _striking(tables["talkers"])]
        found = {"stories": self._output.write_table(reduce(DataFrame.unionAll, told), "stories")}
        way = None
        if options.conversation:
            id = options.conversation
            way = conversation(lines, pseudonyms.hidden_id(id, options.key) if options.key else id)
        elif slowest := tables["slowest"].orderBy(F.desc("answers"), F.desc("micros"), "time").first():
            near = self._around(slowest.time, batches)
            way = conversation(near, slowest.id, slowest.asker, slowest.asked).limit(SHOWN)
        if way is not None:
            found["conversation"] = self._output.write_table(way, "conversation")
        return found

    def _around(self, time: int, batches: list[Batch]) -> DataFrame:
        """
        The lines of an hour before and after; no other day is looked into.
        """
        first, last = time - HOUR, time + HOUR
        some = [batch for batch in batches if batch.begin <= last // HOUR and first // HOUR < batch.end]
        days = {moment(first)[:10], moment(last)[:10]}
        lines = self._batches.lines(some).where(F.col("date").isin(days))
        return lines.where(F.col("time").between(first, last))

    def _about(self, checkpoint: Checkpoint) -> dict[str, Any]:
        batches = checkpoint.batches
        return {
            "logs": self._options.logs,
            "begin": batches[0].begin,
            "end": batches[-1].end,
            "lines": sum(batch.lines for batch in batches),
            "bad": sum(batch.bad for batch in batches),
            "files": sum(len(batch.files) for batch in batches),
            "pseudonyms": bool(self._options.key),
        }


def _replay() -> Any:
    """
    The module that asks policies, which needs more than Spark.
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


def _told(lines: DataFrame, address: str, key: bytes = b"") -> DataFrame:
    """
    A story, with what the operator called the address in the column `about`.
    """
    named = pseudonyms.hidden_address(address, key) if key else address
    return story(lines, named).withColumn("about", F.lit(address))


def _striking(talkers: DataFrame) -> list[str]:
    """
    The address of whose messages most failed, and the one that sent most.
    """
    rows = [talkers.orderBy(F.desc(column), "address").first() for column in ("failed", "messages")]
    return list(dict.fromkeys(row.address for row in rows if row is not None)) or ["mn:/session"]
