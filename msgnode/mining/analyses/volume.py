"""
How much there was: by hour, between domains, and by size.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, adding
from msgnode.mining.analyses.columns import bin_of, count_where, domain, failed, kind, percentiles, whole

_HOURLY = ("date", "hour", "node", "connector", "type", "outcome")
_PAIR = ("date", "from_domain", "to_domain")


def volume(messages: DataFrame) -> DataFrame:
    """
    How much came in each hour, by node, connector, type and outcome, and how many copies left?
    """
    return (
        messages.withColumn("type", kind())
        .withColumn("connector", F.coalesce("connector", F.lit("none")))
        .groupBy(*_HOURLY)
        .agg(
            F.count("*").alias("messages"),
            whole(F.col("bytes")).alias("bytes"),
            whole(F.col("recipients")).alias("copies"),
        )
    )


def volume_in_all(parts: DataFrame) -> DataFrame:
    """
    The same over all batches, in the order of time.
    """
    sums = [F.sum(name).alias(name) for name in ("messages", "bytes", "copies")]
    return parts.groupBy(*_HOURLY).agg(*sums).orderBy(*_HOURLY)


def matrix(messages: DataFrame) -> DataFrame:
    """
    Which domain sends how much to which?  For each day.
    """
    return (
        messages.withColumn("from_domain", domain("from"))
        .withColumn("to_domain", domain("to"))
        .groupBy(*_PAIR)
        .agg(
            F.count("*").alias("messages"),
            whole(F.col("bytes")).alias("bytes"),
            count_where(failed()).alias("failed"),
        )
    )


def matrix_in_all(parts: DataFrame) -> DataFrame:
    """
    The same over all days, the busiest pair first.
    """
    sums = [F.sum(name).alias(name) for name in ("messages", "bytes", "failed")]
    return (
        parts.groupBy("from_domain", "to_domain")
        .agg(*sums)
        .orderBy(F.desc("messages"), "from_domain", "to_domain")
    )


def sizes(messages: DataFrame) -> DataFrame:
    """
    How large are the messages of each type?  `upto` doubles from 64 bytes on.
    """
    upto = F.pow(2.0, F.greatest(F.ceil(F.log2(F.col("bytes").cast("double"))), F.lit(6))).cast("long")
    return (
        messages.where(F.col("bytes").isNotNull())
        .groupBy(kind().alias("type"), F.coalesce(upto, F.lit(64)).alias("upto"))
        .agg(F.count("*").alias("messages"), F.sum("bytes").alias("bytes"))
    )


def sizes_in_all(parts: DataFrame) -> DataFrame:
    """
    The same over all batches.
    """
    return (
        parts.groupBy("type", "upto")
        .agg(F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes"))
        .orderBy("type", "upto")
    )


def handover(messages: DataFrame) -> DataFrame:
    """
    How many microseconds did the node need to hand on what came in?  Counted in bins, by hour.
    """
    return (
        messages.where("outcome = 'delivered' and micros is not null and connector is distinct from 'node'")
        .groupBy("date", "hour", "node", bin_of(F.col("micros")).alias("bin"))
        .agg(F.count("*").alias("number"))
    )


def handover_percentiles(parts: DataFrame) -> DataFrame:
    """
    Percentiles of that for each day and node.
    """
    return percentiles(parts, "date", "node").orderBy("date", "node")


def handover_by_hour(parts: DataFrame) -> DataFrame:
    """
    Percentiles of that for each hour, all nodes together.
    """
    return percentiles(parts, "date", "hour").orderBy("date", "hour")


QUESTIONS = (
    Analysis("volume", "messages", volume, volume_in_all, adding("messages", "bytes", "copies")),
    Analysis("matrix", "messages", matrix, matrix_in_all, adding("messages", "bytes", "failed")),
    Analysis("sizes", "messages", sizes, sizes_in_all, adding("messages", "bytes")),
    Analysis("handover", "messages", handover, handover_percentiles, adding("number")),
    Analysis("handover_by_hour", "messages", handover, handover_by_hour, shares="handover"),
)
