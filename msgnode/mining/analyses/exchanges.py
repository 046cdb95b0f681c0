"""
Exchanges: requests, matched with their responses.

An exchange is a request as one node saw it, with the responses that have its id and its two addresses
swapped. A response belongs to the latest such request at its own node, else to the latest one at another
node. An id that is used again therefore begins a new exchange. If both have a transaction and the
transactions differ, they do not match.

The log is shuffled once, by id and addresses, without a join: requests and responses are rows of one
sequence, and each response looks back along it. So an address with half of all traffic is still many keys. An
exchange that may get more responses after the batch is `open`, and the next batch continues it. This includes
messages that need no response but may get one.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from msgnode.mining.analyses.columns import (
    HOUR_NANOSECONDS,
    REQUESTS,
    SECOND_NANOSECONDS,
    date_of,
    hour_of_day,
    is_multicast,
    quotient,
)

RESPONSE_NANOSECONDS = 120 * SECOND_NANOSECONDS  # responses that come later do not count
_KEY = ("id", "asker", "asked")
_OF_REQUEST = ("node", "time", "transaction", "type", "expects", "outcome", "bytes", "record")
# Columns of an exchange that is carried over from the previous batch; lines of the log do not have them.
_SUMS = ("answers", "first_answer", "last_answer", "again")
SCHEMA = (
    "id string, asker string, asked string, transaction string, node string, time long, type string, "
    "expects boolean, "
    "outcome string, bytes long, record string, answers long, first_answer long, last_answer long, "
    "again boolean, "
    "first_micros long, micros long, open boolean, date string, hour int, batch int"
)
COLUMNS = (*_KEY, *_OF_REQUEST, *_SUMS)
TOLD = "expects or answers > 0"  # an exchange that analyses count


def exchanges(lines: DataFrame, carried: DataFrame | None, end: int) -> DataFrame:
    """
    All requests until `end` (hours since 1970), with the number and the times of their responses.

    `again`: the same request had come less than RESPONSE_NANOSECONDS before.
    """
    rows = lines.transform(_requests_and_answers)
    if carried is not None:
        rows = rows.unionByName(carried.select(*COLUMNS, F.lit(False).alias("is_answer")))
    found = rows.transform(_looking_back).transform(_gathered)
    began = F.col("time")
    may_go_on = began >= end * HOUR_NANOSECONDS - RESPONSE_NANOSECONDS
    return found.where(F.expr(TOLD) | may_go_on).select(
        *COLUMNS,
        quotient(F.col("first_answer") - began, 1000).alias("first_micros"),
        quotient(F.col("last_answer") - began, 1000).alias("micros"),
        may_go_on.alias("open"),
        date_of(began).alias("date"),
        hour_of_day(began).alias("hour"),
    )


def _requests_and_answers(messages: DataFrame) -> DataFrame:
    """
    The messages that can be part of an exchange, with addresses as in the request.
    """
    type = F.lower("type")
    answer = type == "response"
    arrived = F.col("outcome").isin("delivered", "waiting")
    usable = F.col("id").isNotNull() & F.col("from").isNotNull() & F.col("to").isNotNull()
    return messages.where(usable & arrived & (answer | ~is_multicast("to"))).select(
        "id",
        F.when(answer, F.col("to")).otherwise(F.col("from")).alias("asker"),
        F.when(answer, F.col("from")).otherwise(F.col("to")).alias("asked"),
        "transaction",
        "node",
        "time",
        type.alias("type"),
        type.isin(*REQUESTS).alias("expects"),
        "outcome",
        "bytes",
        "record",
        F.lit(0).cast("long").alias("answers"),
        F.lit(None).cast("long").alias("first_answer"),
        F.lit(None).cast("long").alias("last_answer"),
        F.lit(None).cast("boolean").alias("again"),
        answer.alias("is_answer"),
    )


def _looking_back(rows: DataFrame) -> DataFrame:
    """
    Each response with its request in `_request`; each request with itself.
    """
    order = ("time", "is_answer", "type", "bytes", "outcome")
    before = Window.partitionBy(*_KEY, "node").orderBy(*order).rowsBetween(Window.unboundedPreceding, -1)
    anywhere = Window.partitionBy(*_KEY).orderBy(*order, "node").rowsBetween(Window.unboundedPreceding, 0)
    is_answer, itself = F.col("is_answer"), F.struct(*_OF_REQUEST)
    request = F.when(~is_answer, itself)
    # This repartition serves both windows and the following grouping, so that there is one shuffle.
    rows = rows.repartition(*_KEY).select(
        "*",
        F.last(request, ignorenulls=True).over(before).alias("_before"),
        F.last(request, ignorenulls=True).over(anywhere).alias("_anywhere"),
    )
    belongs = (
        F.when(~is_answer, itself)
        .when(_may_belong("_before"), F.col("_before"))
        .when(is_answer & _may_belong("_anywhere"), F.col("_anywhere"))
    )
    again = F.coalesce("again", _may_belong("_before"), F.lit(False))
    return rows.withColumn("_request", belongs).withColumn("again", again)


def _may_belong(request: str) -> Column:
    """
    Is the request recent, and its transaction, if any, the same?
    """
    other = F.col("transaction") != F.col(f"{request}.transaction")
    return (F.col("time") - F.col(f"{request}.time") <= RESPONSE_NANOSECONDS) & ~F.coalesce(
        other, F.lit(False)
    )


def _gathered(rows: DataFrame) -> DataFrame:
    """
    One row for each exchange. Two requests at the same instant are two lines but one exchange.

    The fields of the request are part of the key: a minimum of texts would need one more sort.
    """
    request = ~F.col("is_answer")
    answered_at = F.when(F.col("is_answer"), F.col("time"))
    return (
        rows.where("_request is not null")
        .groupBy(*_KEY, *[F.col(f"_request.{name}").alias(name) for name in _OF_REQUEST])
        .agg(
            (F.sum("answers") + F.sum(F.col("is_answer").cast("long"))).alias("answers"),
            F.min(F.coalesce("first_answer", answered_at)).alias("first_answer"),
            F.max(F.coalesce("last_answer", answered_at)).alias("last_answer"),
            F.max(F.when(request, F.col("again"))).alias("again"),
        )
    )
