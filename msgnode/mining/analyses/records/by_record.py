"""
Traffic by record: how many messages name it, why some of them failed, and how fast requests were answered.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, sum_fold
from msgnode.mining.analyses.columns import bin_of, count_where, failed, percentiles, sum_or_zero
from msgnode.mining.analyses.records.ill_typed import direction, is_ill_typed

_SUMS = ("messages", "bytes", "copies", "failed", "ill_typed")
_REFUSED = ("record", "direction", "outcome", "code", "reason")


def records(messages: DataFrame) -> DataFrame:
    """
    How many messages, bytes and copies has each record, and how many were refused? For each day.
    """
    return (
        messages.where("record is not null")
        .groupBy("date", "record", direction().alias("direction"))
        .agg(
            F.count("*").alias("messages"),
            sum_or_zero(F.col("bytes")).alias("bytes"),
            sum_or_zero(F.col("recipients")).alias("copies"),
            count_where(failed()).alias("failed"),
            count_where(is_ill_typed()).alias("ill_typed"),
        )
    )


def records_in_all(parts: DataFrame) -> DataFrame:
    """
    The same over all days, the most messages first.
    """
    sums = [F.sum(name).alias(name) for name in _SUMS]
    return parts.groupBy("record", "direction").agg(*sums).orderBy(F.desc("messages"), "record", "direction")


def record_refusals(messages: DataFrame) -> DataFrame:
    """
    Why did messages with a record fail? By record, outcome, code and reason.
    """
    return (
        messages.where(F.col("record").isNotNull() & (failed() | is_ill_typed()))
        .groupBy(
            "date",
            "record",
            direction().alias("direction"),
            "outcome",
            F.coalesce("code", F.lit(0)).alias("code"),
            "reason",
        )
        .agg(F.count("*").alias("number"))
    )


def record_refusals_in_all(parts: DataFrame) -> DataFrame:
    """
    The same over all days, the most messages first.
    """
    return parts.groupBy(*_REFUSED).agg(F.sum("number").alias("number")).orderBy(F.desc("number"), *_REFUSED)


def record_latency(exchanges: DataFrame) -> DataFrame:
    """
    How many microseconds until the last answer? A histogram for each record of requests.

    The bin is null for requests without an answer.
    """
    bin = F.when(F.col("answers") > 0, bin_of(F.col("micros"))).alias("bin")
    return (
        exchanges.where("record is not null and (answers > 0 or expects)")
        .groupBy("date", "record", bin)
        .agg(F.count("*").alias("number"))
    )


def record_latency_percentiles(parts: DataFrame) -> DataFrame:
    """
    Percentiles of the latency by record, with the number of unanswered requests, the most requests first.
    """
    counted = parts.groupBy("record").agg(
        F.sum("number").alias("requests"),
        F.sum(F.when(F.col("bin").isNull(), F.col("number")).otherwise(F.lit(0))).alias("unanswered"),
    )
    found = percentiles(parts.where("bin is not null"), "record").drop("number")
    return counted.join(found, "record", "left").orderBy(F.desc("requests"), "record")


QUESTIONS = (
    Analysis("records", "messages", records, records_in_all, sum_fold(*_SUMS)),
    Analysis("record_refusals", "messages", record_refusals, record_refusals_in_all, sum_fold("number")),
    Analysis("record_latency", "exchanges", record_latency, record_latency_percentiles, sum_fold("number")),
)
