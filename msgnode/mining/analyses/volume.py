"""
Volume: messages by hour, between domains, and by size.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, sum_fold
from msgnode.mining.analyses.columns import (
    FAILED,
    bin_of,
    domain,
    failed,
    kind,
    one_where,
    origin,
    percentiles,
    sum_or_zero,
)
from msgnode.mining.execution.fewer_rows import with_fewer_rows

_HOURLY = ("date", "hour", "node", "connector", "type", "outcome")
_ERROR = ("date", "hour", "node", "outcome", "code", "reason")
ERRORS = (*FAILED, "dropped")  # outcomes; an answer of the node with an error is `refused` too


def volume(messages: DataFrame) -> DataFrame:
    """
    How many messages came in each hour, by node, connector, type, outcome and error, and how many copies were
    delivered?
    """
    is_error = F.col("outcome").isin(*ERRORS)
    return (
        messages.withColumn("type", kind())
        .withColumn("connector", F.coalesce("connector", F.lit("none")))
        .withColumn("code", F.when(is_error, F.coalesce("code", F.lit(0))))
        .withColumn("reason", F.when(is_error, F.col("reason")))
        .groupBy(*_HOURLY, "code", "reason")
        .agg(
            F.count("*").alias("messages"),
            sum_or_zero(F.col("bytes")).alias("bytes"),
            sum_or_zero(F.col("recipients")).alias("copies"),
        )
    )


def volume_in_all(parts: DataFrame) -> DataFrame:
    """
    The same over all batches, in the order of time.
    """
    sums = [F.sum(name).alias(name) for name in ("messages", "bytes", "copies")]
    return parts.groupBy(*_HOURLY).agg(*sums).orderBy(*_HOURLY)


def errors(parts: DataFrame) -> DataFrame:
    """
    Messages that were refused, dropped or had no route: by hour, node, outcome, code and reason.
    """
    if "code" not in parts.columns:  # all parts are older than these columns
        parts = parts.withColumns({"code": F.lit(0), "reason": F.lit(None).cast("string")})
    return (
        parts.where(F.col("outcome").isin(*ERRORS))
        .groupBy(*_ERROR)
        .agg(F.sum("messages").alias("number"))
        .orderBy(*_ERROR)
    )


def matrix(messages: DataFrame) -> DataFrame:
    """
    How much does each domain send to each other? For each day.
    """
    keys = ("date", origin("from").alias("from"), origin("to").alias("to"))
    sums = {"messages": F.lit(1), "bytes": F.col("bytes"), "failed": one_where(failed())}
    # To find the domain in the address of each message would cost much.
    return (
        with_fewer_rows(messages, keys, sums)
        .groupBy("date", domain("from").alias("from_domain"), domain("to").alias("to_domain"))
        .agg(*[sum_or_zero(F.col(name)).alias(name) for name in sums])
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
    How large are the messages of each type? `upto` doubles from 64 bytes on.
    """
    upto = F.pow(2.0, F.greatest(F.ceil(F.log2(F.col("bytes").cast("double"))), F.lit(6))).cast("long")
    return (
        messages.where(F.col("bytes").isNotNull())
        .groupBy("date", kind().alias("type"), F.coalesce(upto, F.lit(64)).alias("upto"))
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
    How many microseconds did the node need to deliver a message? A histogram by hour.
    """
    return (
        messages.where("outcome = 'delivered' and micros is not null and connector is distinct from 'node'")
        .groupBy("date", "hour", "node", bin_of(F.col("micros")).alias("bin"))
        .agg(F.count("*").alias("number"))
    )


def handover_percentiles(parts: DataFrame) -> DataFrame:
    """
    Percentiles of the delivery time by day and node.
    """
    return percentiles(parts, "date", "node").orderBy("date", "node")


def handover_by_hour(parts: DataFrame) -> DataFrame:
    """
    Percentiles of the delivery time by hour, all nodes together.
    """
    return percentiles(parts, "date", "hour").orderBy("date", "hour")


QUESTIONS = (
    Analysis("volume", "messages", volume, volume_in_all, sum_fold("messages", "bytes", "copies")),
    Analysis("errors", "messages", volume, errors, shares="volume"),
    Analysis("matrix", "messages", matrix, matrix_in_all, sum_fold("messages", "bytes", "failed")),
    Analysis("sizes", "messages", sizes, sizes_in_all, sum_fold("messages", "bytes")),
    Analysis("handover", "messages", handover, handover_percentiles, sum_fold("number")),
    Analysis("handover_by_hour", "messages", handover, handover_by_hour, shares="handover"),
)
