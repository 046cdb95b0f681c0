"""
Latency: the time until the last response, unanswered requests, and chains of provisional responses.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, sum_fold
from msgnode.mining.analyses.columns import (
    PERCENTS,
    bin_of,
    destination,
    kind,
    one_where,
    origin,
    percentiles,
)
from msgnode.mining.analyses.top_talkers import MAX_ROWS
from msgnode.mining.execution.fewer_rows import with_fewer_rows
from msgnode.mining.execution.planning import in_one_partition

SLOWEST = 100
_ANSWERED = ("date", "hour", "node", "type", "destination")


def latency(exchanges: DataFrame) -> DataFrame:
    """
    How many microseconds until the last response? A histogram by hour, node, type and destination.

    The bin is null for requests without a response.
    """
    keys = ("date", "hour", "node", kind().alias("type"), origin("asked").alias("asked"), _bin())
    return _counted(exchanges.where("answers > 0 or expects"), keys)


def _counted(rows: DataFrame, keys: tuple[Column | str, ...]) -> DataFrame:
    """
    The number of rows for each of these keys, with the destination in place of the address in `asked`.
    """
    # To find the destination of each row would cost much.
    found = with_fewer_rows(rows, keys, {"number": F.lit(1)})
    names = [destination("asked").alias("destination") if name == "asked" else name for name in found.columns]
    return found.groupBy(*names[:-1]).agg(F.sum("number").alias("number"))


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


def most_unanswered(addresses: DataFrame) -> DataFrame:
    """
    The thousand addresses with the most unanswered requests of a type.
    """
    return addresses.orderBy(F.desc("unanswered"), "address", "type").limit(MAX_ROWS)


def chains(exchanges: DataFrame) -> DataFrame:
    """
    How many responses does a request get? All but the last are provisional.
    """
    keys = (
        "date",
        kind().alias("type"),
        origin("asked").alias("asked"),
        F.least("answers", F.lit(20)).alias("answers"),
        bin_of(F.col("first_micros")).alias("bin"),
    )
    return _counted(exchanges, keys)


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
    answered = exchanges.where("answers > 0").select(
        "date", "time", "node", "id", "asker", "asked", "type", "answers", "first_micros", "micros"
    )
    return slowest_of_days(answered if in_one_partition(exchanges.sparkSession) else _slow(answered))


def _slow(exchanges: DataFrame) -> DataFrame:
    """
    The slowest exchanges of each day, at least a hundred, by their histogram: to sort all costs much.
    """
    bin_ = bin_of(F.col("micros"))
    falling = Window.partitionBy("date").orderBy(F.desc("bin"))
    above = F.sum("number").over(falling.rowsBetween(Window.unboundedPreceding, 0)) - F.col("number")
    counted = exchanges.groupBy("date", bin_.alias("bin")).agg(F.count("*").alias("number"))
    least = counted.withColumn("above", above).where(F.col("above") < SLOWEST)
    least = least.groupBy("date").agg(F.min("bin").alias("least"))
    return exchanges.join(F.broadcast(least), "date").where(bin_ >= F.col("least")).drop("least")


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
        unanswered_in_all,
        sum_fold("requests", "unanswered", most="last"),
        cut=most_unanswered,
        sums=("unanswered",),
    ),
    Analysis("chains", "exchanges", chains, chains_by_length, sum_fold("number")),
    Analysis("slowest", "exchanges", slowest, slowest_of_all, slowest_of_days),
)
