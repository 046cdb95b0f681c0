"""
Refusals: messages that were refused or had no route, and why.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, sum_fold
from msgnode.mining.analyses.columns import destination, domain, failed, kind

_CAUSE = ("outcome", "code", "reason", "type", "from_domain", "destination")
# The order of the fields makes the minimum and maximum deterministic.
_EXAMPLE = ("time", "node", "from", "to", "id", "session", "connector", "peer")


def refusals(messages: DataFrame) -> DataFrame:
    """
    Which messages failed? By outcome, code, reason, type, sender's domain and destination, with first and
    last example.
    """
    example = F.struct(*_EXAMPLE)
    return (
        messages.where(failed() | (F.col("outcome") == "dropped"))
        .select(
            "date",
            "outcome",
            F.coalesce("code", F.lit(0)).alias("code"),
            "reason",
            kind().alias("type"),
            domain("from").alias("from_domain"),
            destination("to").alias("destination"),
            example.alias("example"),
        )
        .groupBy("date", *_CAUSE)
        .agg(F.count("*").alias("number"), F.min("example").alias("first"), F.max("example").alias("last"))
    )


def refusals_by_cause(parts: DataFrame) -> DataFrame:
    """
    The same over all batches, the most messages first.
    """
    if "reason" not in parts.columns:  # all parts are older than that column
        parts = parts.withColumn("reason", F.lit(None).cast("string"))
    return (
        parts.groupBy(*_CAUSE)
        .agg(F.sum("number").alias("number"), F.min("first").alias("first"), F.max("last").alias("last"))
        .withColumn("cause", cause())
        .orderBy(F.desc("number"), F.desc("last.time"), *_CAUSE)
    )


def cause() -> Column:
    """
    The code in words; docs/protocol.md, "Errors", explains them.
    """
    words = {
        400: "malformed",
        401: "no session, or a wrong token",
        403: "not allowed",
        404: "no session is bound to the address",
        409: "conflict",
        413: "too large",
        429: "too many or too much",
        501: "not offered by this node",
        503: "not available at that moment",
        504: "no response from a back end",
    }
    column = F.when(F.col("outcome") == "no-route", F.lit("no session is bound to the address"))
    column = column.when(F.col("outcome") == "dropped", F.lit("no recipient but the sender"))
    for code, text in words.items():
        column = column.when(F.col("code") == code, F.lit(text))
    return column.otherwise(F.lit("refused"))


QUESTIONS = (
    Analysis(
        "refusals",
        "messages",
        refusals,
        refusals_by_cause,
        sum_fold("number", least="first", most="last"),
    ),
)
