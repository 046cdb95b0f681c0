"""
Traffic by record: how many messages name it, why some of them failed, and how fast requests were answered.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, sum_fold
from msgnode.mining.analyses.columns import percentiles
from msgnode.mining.analyses.records.ill_typed import DIRECTION, ILL_TYPED
from msgnode.mining.sql.dialect import Dialect
from msgnode.mining.sql.expressions import FAILURE, bin_of, number_where, total

_SUMS = ("messages", "bytes", "copies", "failed", "ill_typed")
_REFUSED = ("record", "direction", "outcome", "code", "reason")


def records(sql: Dialect, messages: str) -> str:
    """
    How many messages, bytes and copies has each record, and how many were refused? For each day.
    """
    return f"""
        SELECT date, record, {DIRECTION} AS direction, count(*) AS messages, {total("bytes")} AS bytes,
            {total("recipients")} AS copies, {number_where(FAILURE)} AS failed,
            {number_where(ILL_TYPED)} AS ill_typed
        FROM {messages} WHERE record IS NOT NULL GROUP BY ALL"""


def records_in_all(parts: DataFrame) -> DataFrame:
    """
    The same over all days, the most messages first.
    """
    sums = [F.sum(name).alias(name) for name in _SUMS]
    return parts.groupBy("record", "direction").agg(*sums).orderBy(F.desc("messages"), "record", "direction")


def record_refusals(sql: Dialect, messages: str) -> str:
    """
    Why did messages with a record fail? By record, outcome, code and reason.
    """
    return f"""
        SELECT date, record, {DIRECTION} AS direction, outcome, coalesce(code, 0) AS code, reason,
            count(*) AS number
        FROM {messages} WHERE record IS NOT NULL AND ({FAILURE} OR {ILL_TYPED}) GROUP BY ALL"""


def record_refusals_in_all(parts: DataFrame) -> DataFrame:
    """
    The same over all days, the most messages first.
    """
    return parts.groupBy(*_REFUSED).agg(F.sum("number").alias("number")).orderBy(F.desc("number"), *_REFUSED)


def record_latency(sql: Dialect, exchanges: str) -> str:
    """
    How many microseconds until the last answer? A histogram for each record of requests.

    The bin is null for requests without an answer.
    """
    return f"""
        SELECT date, record, CASE WHEN answers > 0 THEN {bin_of("micros")} END AS bin, count(*) AS number
        FROM {exchanges} WHERE record IS NOT NULL AND (answers > 0 OR expects) GROUP BY ALL"""


def record_latency_percentiles(parts: DataFrame) -> DataFrame:
    """
    Percentiles of the latency by record, with the number of unanswered requests, the most requests first.
    """
    counted = parts.groupBy("record").agg(
        F.sum("number").alias("requests"),
        F.sum(F.when(F.col("bin").isNull(), F.col("number")).otherwise(F.lit(0))).alias("unanswered"),
    )
    found = percentiles(parts.where("bin is not null"), "record").drop("number")
    return counted.join(found, "record", "left").orderBy(F.desc("requests"), "record")


QUESTIONS = (
    Analysis("records", "messages", records, records_in_all, sum_fold(*_SUMS)),
    Analysis("record_refusals", "messages", record_refusals, record_refusals_in_all, sum_fold("number")),
    Analysis("record_latency", "exchanges", record_latency, record_latency_percentiles, sum_fold("number")),
)
