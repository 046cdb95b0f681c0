"""
Latency: the time until the last response, unanswered requests, and chains of provisional responses.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, sum_fold
from msgnode.mining.analyses.columns import PERCENTS, bin_of, destination, kind, one_where, percentiles
from msgnode.mining.analyses.top_talkers import MAX_ROWS
from msgnode.mining.execution.fewer_rows import with_fewer_rows

SLOWEST = 100
_ANSWERED = ("date", "hour", "node", "type", "destination")


def latency(exchanges: DataFrame) -> DataFrame:
    """
    How many microseconds until the last response? A histogram by hour, node, type and destination.

    The bin is null for requests without a response.
    """
    return (
        exchanges.where("answers > 0 or expects")
        .groupBy(
            "date", "hour", "node", kind().alias("type"), destination("asked").alias("destination"), _bin()
        )
        .agg(F.count("*").alias("number"))
    )


def _bin() -> Column:
    return F.when(F.col("answers") > 0, bin_of(F.col("micros"))).alias("bin")


def _answered(parts: DataFrame) -> DataFrame:
    return parts.where("bin is not null")


def latency_percentiles(parts: DataFrame) -> DataFrame:
    """
    Percentiles of the latency by type and destination, the most frequent first.
    """
    return percentiles(_answered(parts), "type", "destination").orderBy(
        F.desc("number"), "type", "destination"
    )


def latency_by_hour(parts: DataFrame) -> DataFrame:
    """
    Percentiles of the latency by hour.
    """
    return percentiles(_answered(parts), "date", "hour").orderBy("date", "hour")


def latency_by_node(parts: DataFrame) -> DataFrame:
    """
    Percentiles of the latency by hour and node.
    """
    return percentiles(_by_node(_answered(parts)), "date", "hour", "node").orderBy("date", "hour", "node")


def answered(parts: DataFrame) -> DataFrame:
    """
    How many requests had no response? By hour, node, type and destination; requests that need no response
    count if they got one.
    """
    lost = F.sum(F.when(F.col("bin").isNull(), F.col("number")).otherwise(F.lit(0)))
    if "node" not in parts.columns:  # such parts have no requests without a response
        parts = parts.withColumn("node", F.lit(None).cast("string"))
    return (
        parts.where("node is not null")
        .groupBy(*_ANSWERED)
        .agg(F.sum("number").alias("requests"), lost.alias("unanswered"))
        .orderBy(*_ANSWERED)
    )


def _by_node(parts: DataFrame) -> DataFrame:
    # Parts made before the node was counted lack the column.
    known = F.coalesce("node", F.lit("unknown")) if "node" in parts.columns else F.lit("unknown")
    return parts.withColumn("node", known)


def unanswered(exchanges: DataFrame) -> DataFrame:
    """
    Which requests got no response? By recipient, with the latest example.
    """
    example = F.when(F.col("answers") == 0, F.struct("time", "node", "asker", "id"))
    keys = ("date", F.col("asked").alias("address"), kind().alias("type"), example.alias("example"))
    sums = {"requests": F.lit(1), "unanswered": one_where(F.col("answers") == 0)}
    # A maximum of structures sorts its rows: all that were answered are one of them.
    return (
        with_fewer_rows(exchanges.where("expects"), keys, sums)
        .groupBy("date", "address", "type")
        .agg(*[F.sum(name).alias(name) for name in sums], F.max("example").alias("last"))
    )


def unanswered_in_all(parts: DataFrame) -> DataFrame:
    """
    The addresses with unanswered requests of a type, over all batches.
    """
    return (
        parts.groupBy("address", "type")
        .agg(
            F.sum("requests").alias("requests"),
            F.sum("unanswered").alias("unanswered"),
            F.max("last").alias("last"),
        )
        .where("unanswered > 0")
    )


def most_unanswered(parts: DataFrame) -> DataFrame:
    """
    The thousand addresses with the most unanswered requests of a type.
    """
    return unanswered_in_all(parts).orderBy(F.desc("unanswered"), "address", "type").limit(MAX_ROWS)


def chains(exchanges: DataFrame) -> DataFrame:
    """
    How many responses does a request get? All but the last are provisional.
    """
    return exchanges.groupBy(
        "date",
        kind().alias("type"),
        destination("asked").alias("destination"),
        F.least("answers", F.lit(20)).alias("answers"),
        bin_of(F.col("first_micros")).alias("bin"),
    ).agg(F.count("*").alias("number"))


def chains_by_length(parts: DataFrame) -> DataFrame:
    """
    The same over all batches, with percentiles of the time to the first response; 20 means 20 or more.
    """
    found = percentiles(parts, "type", "destination", "answers")
    answered = {name: F.when(F.col("answers") > 0, F.col(name)).alias(name) for name in PERCENTS}
    return found.withColumns(answered).orderBy("type", "destination", "answers")


def slowest(exchanges: DataFrame) -> DataFrame:
    """
    Which exchanges took longest?
    """
    return slowest_of_days(
        exchanges.where("answers > 0").select(
            "date", "time", "node", "id", "asker", "asked", "type", "answers", "first_micros", "micros"
        )
    )


def slowest_of_days(parts: DataFrame) -> DataFrame:
    """
    The hundred slowest exchanges of each day.
    """
    slow = Window.partitionBy("date").orderBy(*_slowest_first(parts))
    return parts.withColumn("rank", F.row_number().over(slow)).where(F.col("rank") <= SLOWEST).drop("rank")


def slowest_of_all(parts: DataFrame) -> DataFrame:
    """
    The hundred slowest exchanges.
    """
    return parts.orderBy(*_slowest_first(parts)).limit(SLOWEST).drop("date")


def _slowest_first(rows: DataFrame) -> list[Column]:
    return [F.desc("micros"), *[F.asc(name) for name in rows.columns if name != "micros"]]


QUESTIONS = (
    Analysis("latency", "exchanges", latency, latency_percentiles, sum_fold("number")),
    Analysis("latency_by_hour", "exchanges", latency, latency_by_hour, shares="latency"),
    Analysis("latency_by_node", "exchanges", latency, latency_by_node, shares="latency"),
    Analysis("answered", "exchanges", latency, answered, shares="latency"),
    Analysis(
        "unanswered",
        "exchanges",
        unanswered,
        most_unanswered,
        sum_fold("requests", "unanswered", most="last"),
        whole=unanswered_in_all,
        sums=("unanswered",),
    ),
    Analysis("chains", "exchanges", chains, chains_by_length, sum_fold("number")),
    Analysis("slowest", "exchanges", slowest, slowest_of_all, slowest_of_days),
)
