"""
Hours unlike the same hour of other days.

The usual value of an hour is the median of the same hour of all other days,
and the usual distance from it the median absolute deviation (MAD); both stay
what they are when a few days are odd.  An hour is told when it lies SCORE
times that distance away.  With fewer than FEWEST other days it is compared
with all other hours.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, adding
from msgnode.mining.analyses.columns import count_where, failed, whole

FEWEST = 3  # other days that have this hour
SCORE = 6.0
NORMAL = 1.4826  # MAD of a normal distribution times this is its standard deviation
SLOW = 100_000  # microseconds until a message was handed on
MEASURES = ("messages", "bytes", "failed", "slow", "connections", "expired")


def hours(lines: DataFrame) -> DataFrame:
    """
    The few counts of each hour that are watched.
    """
    message = F.col("kind") == "message"
    return lines.groupBy("date", "hour").agg(
        count_where(message).alias("messages"),
        whole(F.col("bytes")).alias("bytes"),
        count_where(message & failed()).alias("failed"),
        count_where(message & (F.col("micros") > SLOW)).alias("slow"),
        count_where(F.col("event") == "attached").alias("connections"),
        count_where(F.col("event") == "expired").alias("expired"),
    )


def anomalies(parts: DataFrame) -> DataFrame:
    """
    Which hours stand out, by which measure, and what would have been usual?  The most striking first.

    `score` is the distance in usual distances; `other_days` is 0 where all other hours were compared.
    """
    sums = parts.groupBy("date", "hour").agg(*[F.sum(name).alias(name) for name in MEASURES])
    # A count has a distance of its own; a few more failures than none are nothing.
    values = sums.unpivot(["date", "hour"], list(MEASURES), "measure", "value")
    found = values.transform(_with_others).transform(_with_usual)
    floor = F.greatest(F.sqrt("usual"), F.col("usual") * 0.05, F.lit(3.0))
    score = (F.col("value") - F.col("usual")) / F.greatest(F.col("mad") * NORMAL, floor)
    return (
        found.withColumn("score", F.round(score, 2))
        .where(F.abs("score") >= SCORE)
        .select("date", "hour", "measure", "value", "usual", "mad", "score", "other_days")
        .orderBy(F.desc(F.abs("score")), "date", "hour", "measure")
    )


def _with_others(values: DataFrame) -> DataFrame:
    """
    Each value with `others`, those it is compared with.
    """
    same_hour = Window.partitionBy("measure", "hour")
    everything = Window.partitionBy("measure")
    own = F.struct("date", "hour", "value")
    counted = values.select("*", own.alias("own"), (F.count("*").over(same_hour) - 1).alias("days"))
    few = F.col("days") < FEWEST
    counted = counted.withColumn("most_days", F.max("days").over(everything))
    # A list of all hours is made only for a log of a few days.
    in_short_log = F.when(F.col("most_days") < FEWEST, F.col("own"))
    others = F.when(few, F.collect_list(in_short_log).over(everything))
    listed = counted.withColumn("others", others.otherwise(F.collect_list("own").over(same_hour)))
    mine = F.col("own")
    rest = F.filter("others", lambda other: (other["date"] != mine["date"]) | (other["hour"] != mine["hour"]))
    return listed.select(
        "date",
        "hour",
        "measure",
        "value",
        F.transform(rest, lambda other: other["value"].cast("double")).alias("others"),
        F.when(few, F.lit(0)).otherwise(F.col("days")).alias("other_days"),
    ).where(F.size("others") >= FEWEST)


def _with_usual(values: DataFrame) -> DataFrame:
    known = values.withColumn("usual", _median(F.col("others")))
    distances = F.transform("others", lambda other: F.abs(other - F.col("usual")))
    return known.withColumn("mad", _median(distances))


def _median(numbers: Column) -> Column:
    ordered = F.sort_array(numbers)
    size = F.size(numbers)
    lower = F.element_at(ordered, F.floor((size + 1) / 2).cast("int"))
    upper = F.element_at(ordered, F.floor((size + 2) / 2).cast("int"))
    return (lower + upper) / 2


QUESTIONS = (Analysis("anomalies", "lines", hours, anomalies, adding(*MEASURES)),)
