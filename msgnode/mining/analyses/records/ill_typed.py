"""
Ill-typed messages: the senders of messages that do not fit the definition of their record.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, sum_fold
from msgnode.mining.analyses.top_talkers import MAX_ROWS
from msgnode.mining.sql.dialect import Dialect
from msgnode.mining.sql.expressions import example, kind, shown

_EXAMPLE = ("time", "node", "to", "type", "id")
# Does the message have the slots of answers, or those of requests?
DIRECTION = f"CASE WHEN {kind()} = 'response' THEN 'answer' ELSE 'request' END"
ILL_TYPED = "record IS NOT NULL AND reason = 'record'"
_SENT = ("address", "record", "direction", "slot")


def ill_typed(sql: Dialect, messages: str) -> str:
    """
    Which addresses send messages that do not fit their record, and by which slot? With the latest example.

    The slot is null where the body as a whole does not fit, or the node does not know the record.
    """
    return f"""
        SELECT date, {", ".join(_SENT)}, number, {shown(sql, "last", _EXAMPLE)} AS last
        FROM (
            SELECT date, {sql.named("from")} AS address, record, {DIRECTION} AS direction, slot,
                count(*) AS number, max({example(sql, _EXAMPLE)}) AS last
            FROM {messages} WHERE {ILL_TYPED} GROUP BY ALL
        )"""


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
