"""
Replay of a policy over the traffic log, line by line on the executors.

The policy engine is Python, so this is the only place with a user-defined function. Each line is decided by
itself: what depends on earlier lines, such as a rate, is undecidable, like everything that is not in the log.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from msgnode.mining.analyses.analysis import Analysis, sum_fold
from msgnode.mining.reading.log_files import Unreadable
from msgnode.mining.sql.dialect import Dialect
from msgnode.mining.sql.expressions import example, shown
from msgnode.policy.decision.decision import PERMIT
from msgnode.policy.decision.problems import PolicyRefused
from msgnode.policy.language.files import gather
from msgnode.policy.language.program import Program
from msgnode.policy.replay.replay import UNDECIDABLE, judge

VERDICT = StructType(
    [
        StructField("effect", StringType()),
        StructField("rule", StringType()),
        StructField("happened", StringType()),
        StructField("missing", StringType()),
        StructField("changes", BooleanType()),
    ]
)
ADDED = StructType([StructField("verdict", VERDICT)])
_READ = (
    "kind",
    "time",
    "session",
    "connector",
    "peer",
    "type",
    "id",
    "from",
    "to",
    "bytes",
    "outcome",
    "code",
    "resources",
    "resources_count",
)
UNCHANGED = "as it was"
_SAMPLE = ("time", "node", "from", "to", "type", "id", "outcome")
_BY = ("rule", "change", "effect", "missing")
Source = tuple[tuple[str, bytes], ...]


class Replay:
    """
    A policy that was compiled on the driver; each executor compiles it once.

    `domain` is the node's own, `default` the effect if no rule applies.
    """

    def __init__(self, path: str, domain: str = "", default: str = PERMIT) -> None:
        self._source: Source = tuple(gather(Path(path)))
        self._domain = domain
        self._default = default
        other = default if default != PERMIT else ""
        self.revision = " ".join(filter(None, (program(self._source).revision, domain, other)))

    def decided(self, lines: DataFrame) -> DataFrame:
        """
        The lines with a `verdict`; null if no policy applies.
        """
        source, domain, default = self._source, self._domain, self._default
        # As rows: the executors need only Python and this package.
        decide = F.udf(lambda line: verdict(source, line.asDict(), domain, default), VERDICT, useArrow=False)

        asked = (F.col("kind") == "message") & F.col("why").isNull()
        return lines.withColumn("verdict", F.when(asked, decide(F.struct(*_READ))))


def load_policy(path: str, domain: str, default: str = PERMIT) -> Replay:
    """
    The policy at this path. Unreadable lists all its errors.
    """
    try:
        return Replay(path, domain, default)
    except OSError as why:
        raise Unreadable(f"{path}: {why.strerror}") from None
    except PolicyRefused as why:
        raise Unreadable("\n".join(str(problem) for problem in why.problems)) from None


@cache
def program(source: Source) -> Program:
    """
    The compiled policy, cached in each process.
    """
    return Program(list(source))


def verdict(
    source: Source, line: Mapping[str, Any], domain: str, default: str
) -> tuple[str, str, str, str, bool] | None:
    """
    The verdict of the policy for one line.
    """
    found = judge(program(source), line, domain, default=default)
    if found is None:
        return None
    return found.effect, found.path, found.happened, found.missing, found.changes(default)


def change(verdict: str) -> str:
    """
    The change that a verdict makes, in words, against what happened.
    """
    return f"""CASE WHEN {verdict}.effect = '{UNDECIDABLE}' THEN '{UNDECIDABLE}'
        WHEN NOT {verdict}.changes THEN '{UNCHANGED}'
        WHEN {verdict}.happened = 'blocked' THEN 'would be carried' ELSE 'would be blocked' END"""


def decisions(sql: Dialect, lines: str) -> str:
    """
    How many messages does each rule decide, what would change, and what is undecidable?
    """
    sample = example(sql, _SAMPLE)
    return f"""
        SELECT date, {", ".join(_BY)}, number,
            {shown(sql, "first", _SAMPLE)} AS first, {shown(sql, "last", _SAMPLE)} AS last
        FROM (
            SELECT date, verdict.rule AS rule, {change("verdict")} AS change, verdict.effect AS effect,
                verdict.missing AS missing, count(*) AS number, min({sample}) AS first, max({sample}) AS last
            FROM {lines} WHERE verdict IS NOT NULL GROUP BY ALL
        )"""


def decisions_in_all(parts: DataFrame) -> DataFrame:
    """
    The same over all batches, changes first.
    """
    return (
        parts.groupBy(*_BY)
        .agg(F.sum("number").alias("number"), F.min("first").alias("first"), F.max("last").alias("last"))
        .orderBy(F.col("change") == UNCHANGED, F.desc("number"), *_BY)
    )


QUESTION = Analysis(
    "decisions", "lines", decisions, decisions_in_all, sum_fold("number", least="first", most="last")
)
