"""
Top talkers: the busiest senders, and the publications with the largest fan-out.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, sum_fold
from msgnode.mining.analyses.columns import count_where, failed, is_multicast, sum_or_zero

MAX_ROWS = 1000  # rows of a table


def talkers(messages: DataFrame) -> DataFrame:
    """
    Which addresses send most, and how many of their messages fail? For each day.
    """
    return (
        messages.where(F.col("from").isNotNull())
        .groupBy("date", F.col("from").alias("address"))
        .agg(
            F.count("*").alias("messages"),
            sum_or_zero(F.col("bytes")).alias("bytes"),
            sum_or_zero(F.col("recipients")).alias("copies"),
            count_where(failed()).alias("failed"),
            F.max("time").alias("last"),
        )
    )


def talkers_in_all(parts: DataFrame) -> DataFrame:
    """
    The same over all days.
    """
    sums = [F.sum(name).alias(name) for name in ("messages", "bytes", "copies", "failed")]
    return parts.groupBy("address").agg(*sums, F.max("last").alias("last"))


def top_talkers(senders: DataFrame) -> DataFrame:
    """
    The thousand senders with the most messages, and the thousand with the most failures.
    """
    busiest = senders.orderBy(F.desc("messages"), "address").limit(MAX_ROWS)
    failing = senders.where("failed > 0").orderBy(F.desc("failed"), "address").limit(MAX_ROWS)
    return busiest.union(failing).distinct().orderBy(F.desc("messages"), "address")


def objects(messages: DataFrame) -> DataFrame:
    """
    Which addresses are published to, how often, and to how many recipients? For each day.
    """
    return (
        messages.where(
            is_multicast("to") & F.col("outcome").isin("delivered", "waiting", "dropped", "no-route")
        )
        .groupBy("date", F.col("to").alias("address"))
        .agg(
            F.count("*").alias("publications"),
            sum_or_zero(F.col("recipients") + F.col("waiting")).alias("copies"),
            F.max(F.col("recipients") + F.col("waiting")).cast("long").alias("most"),
            sum_or_zero(F.col("bytes")).alias("bytes"),
            sum_or_zero(F.col("bytes") * F.col("recipients")).alias("bytes_out"),
        )
    )


def objects_in_all(parts: DataFrame) -> DataFrame:
    """
    The same over all days.
    """
    sums = [F.sum(name).alias(name) for name in ("publications", "copies", "bytes", "bytes_out")]
    return parts.groupBy("address").agg(*sums, F.coalesce(F.max("most"), F.lit(0)).alias("most"))


def top_objects(addresses: DataFrame) -> DataFrame:
    """
    The thousand publication addresses with the most copies.
    """
    return addresses.orderBy(F.desc("copies"), "address").limit(MAX_ROWS)


QUESTIONS = (
    Analysis(
        "talkers",
        "messages",
        talkers,
        talkers_in_all,
        sum_fold("messages", "bytes", "copies", "failed", most="last"),
        cut=top_talkers,
        sums=("messages", "bytes", "failed"),
    ),
    Analysis(
        "objects",
        "messages",
        objects,
        objects_in_all,
        sum_fold("publications", "copies", "bytes", "bytes_out", most="most"),
        cut=top_objects,
        sums=("publications", "copies"),
    ),
)
