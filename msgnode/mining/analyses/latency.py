"""
Latency: the time until the last response, unanswered requests, and chains of provisional responses.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, sum_fold
from msgnode.mining.analyses.columns import PERCENTS, percentiles
from msgnode.mining.analyses.top_talkers import MAX_ROWS
from msgnode.mining.sql.dialect import Dialect
from msgnode.mining.sql.expressions import bin_of, destination, example, kind, shown, total

SLOWEST = 100
_SLOW = (
    "date", "time", "node", "id", "asker", "asked", "type", "answers", "first_micros", "micros",
)  # fmt: skip
_EXAMPLE = ("time", "node", "asker", "id")
_ANSWERED = ("date", "hour", "node", "type", "destination")


def latency(sql: Dialect, exchanges: str) -> str:
    """
    How many microseconds until the last response? A histogram by hour, node, type and destination.

    The bin is null for requests without a response.
    """
    return latency_by(sql, exchanges, "date", "hour")


def latency_by(sql: Dialect, exchanges: str, *times: str) -> str:
    """
    The same by these columns in place of the hour.
    """
    by = ", ".join(times)
    # To find the destination of each row would cost much.
    return f"""
        SELECT {by}, node, type, {destination("asked")} AS destination, bin,
            CAST(sum(number) AS BIGINT) AS number
        FROM (
            SELECT {by}, node, {kind()} AS type, {sql.origin.format("asked")} AS asked,
                CASE WHEN answers > 0 THEN {bin_of("micros")} END AS bin, count(*) AS number
            FROM {exchanges} WHERE answers > 0 OR expects GROUP BY ALL
        ) GROUP BY ALL"""


def _answered(parts: DataFrame) -> DataFrame:
    return parts.where("bin is not null")


def latency_percentiles(parts: DataFrame) -> DataFrame:
    """
    Percentiles of the latency by type and destination, the most frequent first.
    """
    return percentiles(_answered(parts), "type", "destination").orderBy(
        F.desc("number"), "type", "destination"
    )


def latency_by_hour(parts: DataFrame) -> DataFrame:
    """
    Percentiles of the latency by hour.
    """
    return percentiles(_answered(parts), "date", "hour").orderBy("date", "hour")


def latency_by_node(parts: DataFrame) -> DataFrame:
    """
    Percentiles of the latency by hour and node.
    """
    return percentiles(_by_node(_answered(parts)), "date", "hour", "node").orderBy("date", "hour", "node")


def answered(parts: DataFrame) -> DataFrame:
    """
    How many requests had no response? By hour, node, type and destination; requests that need no response
    count if they got one.
    """
    lost = F.sum(F.when(F.col("bin").isNull(), F.col("number")).otherwise(F.lit(0)))
    if "node" not in parts.columns:  # such parts have no requests without a response
        parts = parts.withColumn("node", F.lit(None).cast("string"))
    return (
        parts.where("node is not null")
        .groupBy(*_ANSWERED)
        .agg(F.sum("number").alias("requests"), lost.alias("unanswered"))
        .orderBy(*_ANSWERED)
    )


def _by_node(parts: DataFrame) -> DataFrame:
    # Parts made before the node was counted lack the column.
    known = F.coalesce("node", F.lit("unknown")) if "node" in parts.columns else F.lit("unknown")
    return parts.withColumn("node", known)


def unanswered(sql: Dialect, exchanges: str) -> str:
    """
    Which requests got no response? By recipient, with the latest example.
    """
    # A maximum of structs sorts its rows: all that were answered are one of them.
    return f"""
        SELECT date, address, type, requests, unanswered, {shown(sql, "last", _EXAMPLE)} AS last
        FROM (
            SELECT date, address, type, {total("number")} AS requests,
                {total("CASE WHEN example IS NOT NULL THEN number END")} AS unanswered, max(example) AS last
            FROM (
                SELECT date, asked AS address, {kind()} AS type,
                    CASE WHEN answers = 0 THEN {example(sql, _EXAMPLE)} END AS example, count(*) AS number
                FROM {exchanges} WHERE expects GROUP BY ALL
            ) GROUP BY date, address, type
        )"""


def unanswered_in_all(parts: DataFrame) -> DataFrame:
    """
    The addresses with unanswered requests of a type, over all batches.
    """
    return (
        parts.groupBy("address", "type")
        .agg(
            F.sum("requests").alias("requests"),
            F.sum("unanswered").alias("unanswered"),
            F.max("last").alias("last"),
        )
        .where("unanswered > 0")
    )


def most_unanswered(addresses: DataFrame) -> DataFrame:
    """
    The thousand addresses with the most unanswered requests of a type.
    """
    return addresses.orderBy(F.desc("unanswered"), "address", "type").limit(MAX_ROWS)


def chains(sql: Dialect, exchanges: str) -> str:
    """
    How many responses does a request get? All but the last are provisional.
    """
    return f"""
        SELECT date, type, {destination("asked")} AS destination, answers, bin,
            CAST(sum(number) AS BIGINT) AS number
        FROM (
            SELECT date, {kind()} AS type, {sql.origin.format("asked")} AS asked,
                least(answers, 20) AS answers, {bin_of("first_micros")} AS bin, count(*) AS number
            FROM {exchanges} WHERE answers > 0 OR expects GROUP BY ALL
        ) GROUP BY ALL"""


def chains_by_length(parts: DataFrame) -> DataFrame:
    """
    The same over all batches, with percentiles of the time to the first response; 20 means 20 or more.
    """
    found = percentiles(parts, "type", "destination", "answers")
    answered = {name: F.when(F.col("answers") > 0, F.col(name)).alias(name) for name in PERCENTS}
    return found.withColumns(answered).orderBy("type", "destination", "answers")


def slowest(sql: Dialect, exchanges: str) -> str:
    """
    Which exchanges took longest? The hundred slowest of each day.

    They are looked for among those in the highest bins of a histogram: to sort all costs much.
    """
    order = ", ".join(f"{name} NULLS FIRST" for name in _SLOW if name != "micros")
    return f"""
        WITH answered AS (
            SELECT {", ".join(_SLOW)}, {bin_of("micros")} AS bin FROM {exchanges} WHERE answers > 0
        ), counted AS (
            SELECT date, bin, count(*) AS number FROM answered GROUP BY ALL
        ), above AS (
            SELECT date, bin, sum(number) OVER (PARTITION BY date ORDER BY bin DESC) - number AS number
            FROM counted
        ), least AS (
            SELECT date AS day, min(bin) AS bin FROM above WHERE number < {SLOWEST} GROUP BY ALL
        ), ranked AS (
            SELECT {", ".join(_SLOW)},
                row_number() OVER (PARTITION BY date ORDER BY micros DESC NULLS LAST, {order}) AS rank
            FROM answered JOIN least ON day = date AND answered.bin >= least.bin
        )
        SELECT {", ".join(_SLOW)} FROM ranked WHERE rank <= {SLOWEST}"""


def slowest_of_days(parts: DataFrame) -> DataFrame:
    """
    The hundred slowest exchanges of each day.
    """
    slow = Window.partitionBy("date").orderBy(*_slowest_first(parts))
    return parts.withColumn("rank", F.row_number().over(slow)).where(F.col("rank") <= SLOWEST).drop("rank")


def slowest_of_all(parts: DataFrame) -> DataFrame:
    """
    The hundred slowest exchanges.
    """
    return parts.orderBy(*_slowest_first(parts)).limit(SLOWEST).drop("date")


def _slowest_first(rows: DataFrame) -> list[Column]:
    return [F.desc("micros"), *[F.asc(name) for name in rows.columns if name != "micros"]]


LATENCY = Analysis("latency", "exchanges", latency, latency_percentiles, sum_fold("number"))
QUESTIONS = (
    LATENCY,
    Analysis("latency_by_hour", "exchanges", latency, latency_by_hour, shares="latency"),
    Analysis("latency_by_node", "exchanges", latency, latency_by_node, shares="latency"),
    Analysis("answered", "exchanges", latency, answered, shares="latency"),
    Analysis(
        "unanswered",
        "exchanges",
        unanswered,
        unanswered_in_all,
        sum_fold("requests", "unanswered", most="last"),
        cut=most_unanswered,
        sums=("unanswered",),
    ),
    Analysis("chains", "exchanges", chains, chains_by_length, sum_fold("number")),
    Analysis("slowest", "exchanges", slowest, slowest_of_all, slowest_of_days),
)
