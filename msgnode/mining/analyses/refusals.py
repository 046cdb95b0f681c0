"""
Refusals: messages that were refused or had no route, and why.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, sum_fold
from msgnode.mining.sql.dialect import Dialect
from msgnode.mining.sql.expressions import ERRORS, destination, domain, example, kind, shown

_CAUSE = ("outcome", "code", "reason", "type", "from_domain", "destination")
_EXAMPLE = ("time", "node", "from", "to", "id", "session", "connector", "peer")


def refusals(sql: Dialect, messages: str) -> str:
    """
    Which messages failed? By outcome, code, reason, type, sender's domain and destination, with first and
    last example.
    """
    sender, recipient = (sql.origin.format(sql.named(name)) for name in ("from", "to"))
    causes, one = ", ".join(_CAUSE), example(sql, _EXAMPLE)
    # To find domain and destination of each message would cost much.
    return f"""
        SELECT date, {causes}, number,
            {shown(sql, "first", _EXAMPLE)} AS first, {shown(sql, "last", _EXAMPLE)} AS last
        FROM (
            SELECT date, outcome, code, reason, type, {domain("sender")} AS from_domain,
                {destination("recipient")} AS destination,
                CAST(sum(number) AS BIGINT) AS number, min(first) AS first, max(last) AS last
            FROM (
                SELECT date, outcome, coalesce(code, 0) AS code, reason, {kind()} AS type,
                    {sender} AS sender, {recipient} AS recipient,
                    count(*) AS number, min({one}) AS first, max({one}) AS last
                FROM {messages} WHERE outcome IN {ERRORS} GROUP BY ALL
            ) GROUP BY ALL
        )"""


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
