"""
Top talkers: the busiest senders, and the publications with the largest fan-out.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, sum_fold
from msgnode.mining.sql.dialect import Dialect
from msgnode.mining.sql.expressions import FAILURE, PUBLISHED, is_multicast, number_where, total

MAX_ROWS = 1000  # rows of a table


def talkers(sql: Dialect, messages: str) -> str:
    """
    Which addresses send most, and how many of their messages fail? For each day.
    """
    sender = sql.named("from")
    return f"""
        SELECT date, {sender} AS address, count(*) AS messages, {total("bytes")} AS bytes,
            {total("recipients")} AS copies, {number_where(FAILURE)} AS failed, max(time) AS last
        FROM {messages} WHERE {sender} IS NOT NULL GROUP BY ALL"""


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


def objects(sql: Dialect, messages: str) -> str:
    """
    Which addresses are published to, how often, and to how many recipients? For each day.
    """
    recipient = sql.named("to")
    return f"""
        SELECT date, {recipient} AS address, count(*) AS publications,
            {total("recipients + waiting")} AS copies,
            CAST(max(recipients + waiting) AS BIGINT) AS most,
            {total("bytes")} AS bytes, {total("bytes * recipients")} AS bytes_out
        FROM {messages} WHERE outcome IN {PUBLISHED} AND {is_multicast(recipient)} GROUP BY ALL"""


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
