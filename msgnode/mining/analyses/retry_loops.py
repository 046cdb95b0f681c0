"""
Retry loops: senders that repeat a request or a failure again and again.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, sum_fold
from msgnode.mining.analyses.columns import count_where, failed, kind
from msgnode.mining.analyses.top_talkers import MAX_ROWS

MIN_REPEATS = 10  # in an hour
_LOOP = ("date", "hour", "address", "to", "type")
_COUNTS = ("failed", "unanswered", "again")


def failures(messages: DataFrame) -> DataFrame:
    """
    How often did a sender fail with one type of message to one address? By hour.
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
    How often did a sender get no response, or repeat the same request? By hour.
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
