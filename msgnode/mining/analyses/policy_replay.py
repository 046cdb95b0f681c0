"""
What a policy would have done to this traffic, decided line by line on the executors.

The engine is Python, so this is the one place with a function of our own in
the place of Spark's.  A line is decided by itself: what depends on those
before it, such as a rate, is undecidable, like all that no log holds.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from msgnode.mining.analyses.analysis import Analysis, adding
from msgnode.mining.pipeline.log_files import Unreadable
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
_BY = ("rule", "change", "effect", "missing")
Source = tuple[tuple[str, bytes], ...]


class Replay:
    """
    A policy, read and found sound on the driver; each executor compiles it once.

    `domain` is the node's own, `default` the effect where no rule applies.
    """

    def __init__(self, path: str, domain: str = "", default: str = PERMIT) -> None:
        self._source: Source = tuple(gather(Path(path)))
        self._domain = domain
        self._default = default
        other = default if default != PERMIT else ""
        self.revision = " ".join(filter(None, (program(self._source).revision, domain, other)))

    def decided(self, lines: DataFrame) -> DataFrame:
        """
        The lines with a `verdict`; null where no policy is asked.
        """
        source, domain, default = self._source, self._domain, self._default
        # As rows, which needs nothing on the executors but Python and the package.
        decide = F.udf(lambda line: verdict(source, line.asDict(), domain, default), VERDICT, useArrow=False)

        asked = (F.col("kind") == "message") & F.col("why").isNull()
        return lines.withColumn("verdict", F.when(asked, decide(F.struct(*_READ))))


def sound(path: str, domain: str, default: str = PERMIT) -> Replay:
    """
    The policy at this path.  Raises Unreadable with all that is wrong with it.
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
    The compiled policy, once in each process.
    """
    return Program(list(source))


def verdict(
    source: Source, line: Mapping[str, Any], domain: str, default: str
) -> tuple[str, str, str, str, bool] | None:
    """
    What the policy says of one line.
    """
    found = judge(program(source), line, domain, default=default)
    if found is None:
        return None
    return found.effect, found.path, found.happened, found.missing, found.changes(default)


def decisions(lines: DataFrame) -> DataFrame:
    """
    How many messages does each rule decide, what would change, and what cannot be told?
    """
    given = lines.where(F.col("verdict").isNotNull())
    change = (
        F.when(F.col("verdict.effect") == UNDECIDABLE, F.lit(UNDECIDABLE))
        .when(~F.col("verdict.changes"), F.lit("as it was"))
        .when(F.col("verdict.happened") == "blocked", F.lit("would be carried"))
        .otherwise(F.lit("would be blocked"))
    )
    sample = F.struct("time", "node", "from", "to", "type", "id", "outcome")
    return (
        given.select("verdict.*", change.alias("change"), sample.alias("sample"))
        .groupBy(*_BY)
        .agg(F.count("*").alias("number"), F.min("sample").alias("first"), F.max("sample").alias("last"))
    )


def decisions_in_all(parts: DataFrame) -> DataFrame:
    """
    The same over all batches, what would change first.
    """
    return (
        parts.groupBy(*_BY)
        .agg(F.sum("number").alias("number"), F.min("first").alias("first"), F.max("last").alias("last"))
        .orderBy(F.col("change") == "as it was", F.desc("number"), *_BY)
    )


QUESTION = Analysis(
    "decisions", "lines", decisions, decisions_in_all, adding("number", least="first", most="last")
)
