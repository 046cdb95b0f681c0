"""
Retry loops: senders that repeat a request or a failure again and again.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, sum_fold
from msgnode.mining.analyses.top_talkers import MAX_ROWS
from msgnode.mining.sql.dialect import Dialect
from msgnode.mining.sql.expressions import FAILURE, kind, number_where

MIN_REPEATS = 10  # in an hour
_LOOP = ("date", "hour", "address", "to", "type")
_COUNTS = ("failed", "unanswered", "again")


def failures(sql: Dialect, messages: str) -> str:
    """
    How often did a sender fail with one type of message to one address? By hour.
    """
    sender, recipient = sql.named("from"), sql.named("to")
    return f"""
        SELECT date, hour, {sender} AS address, {recipient}, {kind()} AS type, count(*) AS failed,
            CAST(0 AS BIGINT) AS unanswered, CAST(0 AS BIGINT) AS again, max(time) AS last
        FROM {messages} WHERE {FAILURE} AND {sender} IS NOT NULL GROUP BY ALL"""


def repetitions(sql: Dialect, exchanges: str) -> str:
    """
    How often did a sender get no response, or repeat the same request? By hour.
    """
    return f"""
        SELECT date, hour, asker AS address, asked AS {sql.named("to")}, {kind()} AS type,
            CAST(0 AS BIGINT) AS failed, {number_where("expects AND answers = 0")} AS unanswered,
            {number_where("again")} AS again, max(time) AS last
        FROM {exchanges} WHERE again OR (expects AND answers = 0) GROUP BY ALL"""


def all_loops(parts: DataFrame) -> DataFrame:
    """
    The loops of ten times or more in an hour.
    """
    return (
        parts.groupBy(*_LOOP)
        .agg(*[F.sum(name).alias(name) for name in _COUNTS], F.max("last").alias("last"))
        .where(F.greatest(*_COUNTS) >= MIN_REPEATS)
    )


def worst_loops(loops: DataFrame) -> DataFrame:
    """
    The thousand worst loops, the worst first. `loop` has the sums of a loop over all its hours.
    """
    same = Window.partitionBy("address", "to", "type")
    hour = F.concat("date", F.lit(" "), F.lpad("hour", 2, "0"), F.lit(":00"))
    sums = [F.sum(name).over(same).alias(name) for name in _COUNTS]
    loop = F.struct(
        F.count("*").over(same).alias("hours"),
        F.min(hour).over(same).alias("first"),
        F.max(hour).over(same).alias("last"),
        *sums,
    )
    return loops.withColumn("loop", loop).orderBy(F.greatest(*_COUNTS).desc(), *_LOOP).limit(MAX_ROWS)


QUESTIONS = (
    Analysis(
        "failures",
        "messages",
        failures,
        all_loops,
        sum_fold(*_COUNTS, most="last"),
        cut=worst_loops,
        sums=("failed",),
    ),
    Analysis(
        "repetitions",
        "exchanges",
        repetitions,
        all_loops,
        sum_fold(*_COUNTS, most="last"),
        cut=worst_loops,
        sums=("unanswered", "again"),
    ),
)
