"""
How long answers take, which never come, and which come in several parts.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, adding
from msgnode.mining.analyses.columns import PERCENTS, bin_of, count_where, destination, kind, percentiles
from msgnode.mining.analyses.top_talkers import MAX_ROWS

SLOWEST = 100


def latency(exchanges: DataFrame) -> DataFrame:
    """
    How many microseconds until the last answer?  Counted in bins, by hour, type and destination.
    """
    return (
        exchanges.where("answers > 0")
        .groupBy("date", "hour", kind().alias("type"), destination("asked").alias("destination"), _bin())
        .agg(F.count("*").alias("number"))
    )


def _bin() -> Column:
    return bin_of(F.col("micros")).alias("bin")


def latency_percentiles(parts: DataFrame) -> DataFrame:
    """
    Percentiles of that by type and destination, the most frequent first.
    """
    return percentiles(parts, "type", "destination").orderBy(F.desc("number"), "type", "destination")


def latency_by_hour(parts: DataFrame) -> DataFrame:
    """
    Percentiles of that by hour.
    """
    return percentiles(parts, "date", "hour").orderBy("date", "hour")


def unanswered(exchanges: DataFrame) -> DataFrame:
    """
    Which requests got no answer?  By the address that was asked, with the last of them.
    """
    example = F.struct("time", "node", "asker", "id")
    return (
        exchanges.where("expects")
        .groupBy("date", F.col("asked").alias("address"), kind().alias("type"))
        .agg(
            F.count("*").alias("requests"),
            count_where(F.col("answers") == 0).alias("unanswered"),
            F.max(F.when(F.col("answers") == 0, example)).alias("last"),
        )
    )


def most_unanswered(parts: DataFrame) -> DataFrame:
    """
    The thousand addresses that left most requests of a type unanswered.
    """
    return (
        parts.groupBy("address", "type")
        .agg(
            F.sum("requests").alias("requests"),
            F.sum("unanswered").alias("unanswered"),
            F.max("last").alias("last"),
        )
        .where("unanswered > 0")
        .orderBy(F.desc("unanswered"), "address", "type")
        .limit(MAX_ROWS)
    )


def chains(exchanges: DataFrame) -> DataFrame:
    """
    How many answers does a request get?  All but the last are provisional.
    """
    return exchanges.groupBy(
        kind().alias("type"),
        destination("asked").alias("destination"),
        F.least("answers", F.lit(20)).alias("answers"),
        bin_of(F.col("first_micros")).alias("bin"),
    ).agg(F.count("*").alias("number"))


def chains_by_length(parts: DataFrame) -> DataFrame:
    """
    The same over all batches, with percentiles of the time to the first answer; 20 stands for 20 and more.
    """
    found = percentiles(parts, "type", "destination", "answers")
    answered = {name: F.when(F.col("answers") > 0, F.col(name)).alias(name) for name in PERCENTS}
    return found.withColumns(answered).orderBy("type", "destination", "answers")


def slowest(exchanges: DataFrame) -> DataFrame:
    """
    Which exchanges took longest?
    """
    return slowest_of_all(
        exchanges.where("answers > 0").select(
            "time", "node", "id", "asker", "asked", "type", "answers", "first_micros", "micros"
        )
    )


def slowest_of_all(parts: DataFrame) -> DataFrame:
    """
    The hundred slowest.
    """
    return parts.orderBy(F.desc("micros"), *[c for c in parts.columns if c != "micros"]).limit(SLOWEST)


QUESTIONS = (
    Analysis("latency", "exchanges", latency, latency_percentiles, adding("number")),
    Analysis("latency_by_hour", "exchanges", latency, latency_by_hour, shares="latency"),
    Analysis(
        "unanswered",
        "exchanges",
        unanswered,
        most_unanswered,
        adding("requests", "unanswered", most="last"),
    ),
    Analysis("chains", "exchanges", chains, chains_by_length, adding("number")),
    Analysis("slowest", "exchanges", slowest, slowest_of_all, slowest_of_all),
)
