"""
Senders in a loop: the same request again, or the same failure again and again.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, adding
from msgnode.mining.analyses.columns import count_where, failed, kind
from msgnode.mining.analyses.top_talkers import MAX_ROWS

LEAST = 10  # in an hour
_LOOP = ("date", "hour", "address", "to", "type")
_COUNTS = ("failed", "unanswered", "again")


def failures(messages: DataFrame) -> DataFrame:
    """
    How often did one sender fail with one type of message at one address, in each hour?
    """
    zero = F.lit(0).cast("long")
    return (
        messages.where(failed() & F.col("from").isNotNull())
        .groupBy("date", "hour", F.col("from").alias("address"), "to", kind().alias("type"))
        .agg(F.count("*").alias("failed"), F.max("time").alias("last"))
        .select(*_LOOP, "failed", zero.alias("unanswered"), zero.alias("again"), "last")
    )


def repetitions(exchanges: DataFrame) -> DataFrame:
    """
    How often did one sender get no answer, or ask the same thing once more, in each hour?
    """
    troubled = exchanges.where("again or (expects and answers = 0)")
    return (
        troubled.groupBy(
            "date", "hour", F.col("asker").alias("address"), F.col("asked").alias("to"), kind().alias("type")
        )
        .agg(
            count_where(F.col("expects") & (F.col("answers") == 0)).alias("unanswered"),
            count_where(F.col("again")).alias("again"),
            F.max("time").alias("last"),
        )
        .select(*_LOOP, F.lit(0).cast("long").alias("failed"), "unanswered", "again", "last")
    )


def loops(parts: DataFrame) -> DataFrame:
    """
    What happened ten times or more in an hour, the worst first.
    """
    worst = F.greatest(*_COUNTS)
    return (
        parts.groupBy(*_LOOP)
        .agg(*[F.sum(name).alias(name) for name in _COUNTS], F.max("last").alias("last"))
        .where(worst >= LEAST)
        .orderBy(worst.desc(), *_LOOP)
        .limit(MAX_ROWS)
    )


QUESTIONS = (
    Analysis("failures", "messages", failures, loops, adding(*_COUNTS, most="last")),
    Analysis("repetitions", "exchanges", repetitions, loops, adding(*_COUNTS, most="last")),
)
