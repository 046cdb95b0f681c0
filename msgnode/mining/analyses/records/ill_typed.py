"""
Ill-typed messages: the senders of messages that do not fit the definition of their record.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, sum_fold
from msgnode.mining.analyses.columns import kind
from msgnode.mining.analyses.top_talkers import MAX_ROWS

_SENT = ("address", "record", "direction", "slot")


def direction() -> Column:
    """
    Does the message have the slots of answers, or those of requests?
    """
    return F.when(kind() == "response", "answer").otherwise("request")


def is_ill_typed() -> Column:
    return F.col("record").isNotNull() & (F.col("reason") == "record")


def ill_typed(messages: DataFrame) -> DataFrame:
    """
    Which addresses send messages that do not fit their record, and by which slot? With the latest example.

    The slot is null where the body as a whole does not fit, or the node does not know the record.
    """
    example = F.struct("time", "node", "to", "type", "id")
    return (
        messages.where(is_ill_typed())
        .groupBy("date", F.col("from").alias("address"), "record", direction().alias("direction"), "slot")
        .agg(F.count("*").alias("number"), F.max(example).alias("last"))
    )


def ill_typed_in_all(parts: DataFrame) -> DataFrame:
    """
    The same over all days.
    """
    return parts.groupBy(*_SENT).agg(F.sum("number").alias("number"), F.max("last").alias("last"))


def most_ill_typed(senders: DataFrame) -> DataFrame:
    """
    The thousand senders, records and slots with the most ill-typed messages.
    """
    return senders.orderBy(F.desc("number"), *_SENT).limit(MAX_ROWS)


QUESTIONS = (
    Analysis(
        "ill_typed",
        "messages",
        ill_typed,
        ill_typed_in_all,
        sum_fold("number", most="last"),
        cut=most_ill_typed,
        sums=("number",),
    ),
)
