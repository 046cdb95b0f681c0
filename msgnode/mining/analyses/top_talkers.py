"""
Who talks most, and what is heard by most.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, adding
from msgnode.mining.analyses.columns import count_where, failed, is_multicast, whole

MAX_ROWS = 1000  # rows of a table of the first few


def talkers(messages: DataFrame) -> DataFrame:
    """
    Who sends most, and how much of it fails?  For each day.
    """
    return (
        messages.where(F.col("from").isNotNull())
        .groupBy("date", F.col("from").alias("address"))
        .agg(
            F.count("*").alias("messages"),
            whole(F.col("bytes")).alias("bytes"),
            whole(F.col("recipients")).alias("copies"),
            count_where(failed()).alias("failed"),
            F.max("time").alias("last"),
        )
    )


def top_talkers(parts: DataFrame) -> DataFrame:
    """
    The thousand who sent most and the thousand of whose messages most failed.
    """
    sums = [F.sum(name).alias(name) for name in ("messages", "bytes", "copies", "failed")]
    totals = parts.groupBy("address").agg(*sums, F.max("last").alias("last"))
    busiest = totals.orderBy(F.desc("messages"), "address").limit(MAX_ROWS)
    failing = totals.where("failed > 0").orderBy(F.desc("failed"), "address").limit(MAX_ROWS)
    return busiest.union(failing).distinct().orderBy(F.desc("messages"), "address")


def objects(messages: DataFrame) -> DataFrame:
    """
    What is published, how often, and how many hear it?  For each day.
    """
    return (
        messages.where(
            is_multicast("to") & F.col("outcome").isin("delivered", "waiting", "dropped", "no-route")
        )
        .groupBy("date", F.col("to").alias("address"))
        .agg(
            F.count("*").alias("publications"),
            whole(F.col("recipients") + F.col("waiting")).alias("copies"),
            F.max(F.col("recipients") + F.col("waiting")).cast("long").alias("most"),
            whole(F.col("bytes")).alias("bytes"),
            whole(F.col("bytes") * F.col("recipients")).alias("bytes_out"),
        )
    )


def top_objects(parts: DataFrame) -> DataFrame:
    """
    The thousand addresses of which most copies were made.
    """
    sums = [F.sum(name).alias(name) for name in ("publications", "copies", "bytes", "bytes_out")]
    return (
        parts.groupBy("address")
        .agg(*sums, F.coalesce(F.max("most"), F.lit(0)).alias("most"))
        .orderBy(F.desc("copies"), "address")
        .limit(MAX_ROWS)
    )


QUESTIONS = (
    Analysis(
        "talkers",
        "messages",
        talkers,
        top_talkers,
        adding("messages", "bytes", "copies", "failed", most="last"),
    ),
    Analysis(
        "objects",
        "messages",
        objects,
        top_objects,
        adding("publications", "copies", "bytes", "bytes_out", most="most"),
    ),
)
