"""
Volume: messages by hour, between domains, and by size.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, sum_fold
from msgnode.mining.analyses.columns import percentiles
from msgnode.mining.sql.dialect import Dialect
from msgnode.mining.sql.expressions import ERRORS, FAILURE, bin_of, domain, kind, number_where, total

_HOURLY = ("date", "hour", "node", "connector", "type", "outcome")
_ERROR = ("date", "hour", "node", "outcome", "code", "reason")
HANDED_OVER = "outcome = 'delivered' AND micros IS NOT NULL AND connector IS DISTINCT FROM 'node'"


def volume(sql: Dialect, messages: str) -> str:
    """
    How many messages came in each hour, by node, connector, type, outcome and error, and how many copies were
    delivered?
    """
    return f"""
        SELECT date, hour, node, coalesce(connector, 'none') AS connector, {kind()} AS type, outcome,
            CASE WHEN outcome IN {ERRORS} THEN coalesce(code, 0) END AS code,
            CASE WHEN outcome IN {ERRORS} THEN reason END AS reason,
            count(*) AS messages, {total("bytes")} AS bytes, {total("recipients")} AS copies
        FROM {messages} GROUP BY ALL"""


def volume_in_all(parts: DataFrame) -> DataFrame:
    """
    The same over all batches, in the order of time.
    """
    sums = [F.sum(name).alias(name) for name in ("messages", "bytes", "copies")]
    return parts.groupBy(*_HOURLY).agg(*sums).orderBy(*_HOURLY)


def errors(parts: DataFrame) -> DataFrame:
    """
    Messages that were refused, dropped or had no route: by hour, node, outcome, code and reason.
    """
    if "code" not in parts.columns:  # all parts are older than these columns
        parts = parts.withColumns({"code": F.lit(0), "reason": F.lit(None).cast("string")})
    return (
        parts.where(F.col("outcome").isin(*ERRORS))
        .groupBy(*_ERROR)
        .agg(F.sum("messages").alias("number"))
        .orderBy(*_ERROR)
    )


def matrix(sql: Dialect, messages: str) -> str:
    """
    How much does each domain send to each other? For each day.
    """
    sender, recipient = (sql.origin.format(sql.named(name)) for name in ("from", "to"))
    sums = ", ".join(f"{total(name)} AS {name}" for name in ("messages", "bytes", "failed"))
    # To find the domain in the address of each message would cost much.
    return f"""
        SELECT date, {domain("sender")} AS from_domain, {domain("recipient")} AS to_domain, {sums}
        FROM (
            SELECT date, {sender} AS sender, {recipient} AS recipient,
                count(*) AS messages, sum(bytes) AS bytes, {number_where(FAILURE)} AS failed
            FROM {messages} GROUP BY ALL
        ) GROUP BY ALL"""


def matrix_in_all(parts: DataFrame) -> DataFrame:
    """
    The same over all days, the busiest pair first.
    """
    sums = [F.sum(name).alias(name) for name in ("messages", "bytes", "failed")]
    return (
        parts.groupBy("from_domain", "to_domain")
        .agg(*sums)
        .orderBy(F.desc("messages"), "from_domain", "to_domain")
    )


def sizes(sql: Dialect, messages: str) -> str:
    """
    How large are the messages of each type? `upto` doubles from 64 bytes on.
    """
    doublings = "least(ceil(log2(CAST(bytes AS DOUBLE)) - 1e-11), 62)"
    return f"""
        SELECT date, {kind()} AS type,
            CASE WHEN bytes > 64 THEN CAST(pow(2, {doublings}) AS BIGINT) ELSE 64 END AS upto,
            count(*) AS messages, {total("bytes")} AS bytes
        FROM {messages} WHERE bytes IS NOT NULL GROUP BY ALL"""


def sizes_in_all(parts: DataFrame) -> DataFrame:
    """
    The same over all batches.
    """
    return (
        parts.groupBy("type", "upto")
        .agg(F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes"))
        .orderBy("type", "upto")
    )


def handover(sql: Dialect, messages: str) -> str:
    """
    How many microseconds did the node need to deliver a message? A histogram by hour.
    """
    return f"""
        SELECT date, hour, node, {bin_of("micros")} AS bin, count(*) AS number
        FROM {messages} WHERE {HANDED_OVER} GROUP BY ALL"""


def handover_percentiles(parts: DataFrame) -> DataFrame:
    """
    Percentiles of the delivery time by day and node.
    """
    return percentiles(parts, "date", "node").orderBy("date", "node")


def handover_by_hour(parts: DataFrame) -> DataFrame:
    """
    Percentiles of the delivery time by hour, all nodes together.
    """
    return percentiles(parts, "date", "hour").orderBy("date", "hour")


QUESTIONS = (
    Analysis("volume", "messages", volume, volume_in_all, sum_fold("messages", "bytes", "copies")),
    Analysis("errors", "messages", volume, errors, shares="volume"),
    Analysis("matrix", "messages", matrix, matrix_in_all, sum_fold("messages", "bytes", "failed")),
    Analysis("sizes", "messages", sizes, sizes_in_all, sum_fold("messages", "bytes")),
    Analysis("handover", "messages", handover, handover_percentiles, sum_fold("number")),
    Analysis("handover_by_hour", "messages", handover, handover_by_hour, shares="handover"),
)
