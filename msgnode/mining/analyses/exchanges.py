"""
Requests and their answers.

An exchange is one request as one node saw it, with the answers that have its
id and its two addresses turned round.  An answer belongs to the latest such
request at its own node, and only if there is none to the latest at another
node.  So an id that is used again begins a new exchange.  Where both have a
transaction and those differ, they are nobody's answer and no repetition.

The log is shuffled once, by id and addresses, and nothing is joined: requests
and answers are rows of one sequence, and each answer looks back along it.  An
address with half of all traffic is still many keys.  An exchange that may get
more answers when the batch ends is `open`; the next batch begins with it.  So
does what wants no answer and may get one: it is `open` without being told.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from msgnode.mining.analyses.columns import (
    HOUR,
    REQUESTS,
    SECOND,
    date_of,
    hour_of_day,
    is_multicast,
    quotient,
)

PATIENCE = 120 * SECOND  # an answer that comes later belongs to nothing
_KEY = ("id", "asker", "asked")
_OF_REQUEST = ("node", "time", "transaction")
# What a carried exchange brings along; a line of the log has none of it.
_SUMS = ("answers", "first_answer", "last_answer", "again")
SCHEMA = (
    "id string, asker string, asked string, transaction string, node string, time long, type string, "
    "expects boolean, "
    "outcome string, bytes long, answers long, first_answer long, last_answer long, again boolean, "
    "first_micros long, micros long, open boolean, date string, hour int, batch int"
)
COLUMNS = (*_KEY, "transaction", "node", "time", "type", "expects", "outcome", "bytes", *_SUMS)
TOLD = "expects or answers > 0"  # an exchange that questions are asked about


def exchanges(lines: DataFrame, carried: DataFrame | None, end: int) -> DataFrame:
    """
    Every request until `end` (hours since 1970) with the number and the times of its answers.

    `again` says that the same request had come less than PATIENCE before.
    """
    rows = lines.transform(_requests_and_answers)
    if carried is not None:
        rows = rows.unionByName(carried.select(*COLUMNS, F.lit(False).alias("is_answer")))
    found = rows.transform(_looking_back).transform(_gathered)
    began = F.col("time")
    may_go_on = began >= end * HOUR - PATIENCE
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
    What can be part of an exchange, with the addresses the way round that the request has them.
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
        F.lit(0).cast("long").alias("answers"),
        F.lit(None).cast("long").alias("first_answer"),
        F.lit(None).cast("long").alias("last_answer"),
        F.lit(None).cast("boolean").alias("again"),
        answer.alias("is_answer"),
    )


def _looking_back(rows: DataFrame) -> DataFrame:
    """
    Each answer with the request it belongs to (`home`, `began`), each request with itself.
    """
    order = ("time", "is_answer", "type", "bytes", "outcome")
    here = Window.partitionBy(*_KEY, "node").orderBy(*order).rowsBetween(Window.unboundedPreceding, 0)
    before = here.rowsBetween(Window.unboundedPreceding, -1)
    anywhere = Window.partitionBy(*_KEY).orderBy(*order, "node").rowsBetween(Window.unboundedPreceding, 0)
    request = F.when(~F.col("is_answer"), F.struct(*_OF_REQUEST))
    # Said here, one shuffle serves both windows and the grouping after them.
    rows = rows.repartition(*_KEY).select(
        "*",
        F.last(request, ignorenulls=True).over(here).alias("_here"),
        F.last(request, ignorenulls=True).over(before).alias("_before"),
        F.last(request, ignorenulls=True).over(anywhere).alias("_anywhere"),
    )
    near = _may_belong("_here")
    far = _may_belong("_anywhere")
    belongs = F.when(near, F.col("_here")).when(F.col("is_answer") & far, F.col("_anywhere"))
    again = F.coalesce("again", _may_belong("_before"), F.lit(False))
    return rows.withColumn("_request", belongs).withColumn("again", again)


def _may_belong(request: str) -> Column:
    """
    Is it not long ago, and does no transaction say otherwise?
    """
    other = F.col("transaction") != F.col(f"{request}.transaction")
    return (F.col("time") - F.col(f"{request}.time") <= PATIENCE) & ~F.coalesce(other, F.lit(False))


def _gathered(rows: DataFrame) -> DataFrame:
    """
    One row an exchange.  Two requests of one moment are two lines but one exchange.
    """
    request = ~F.col("is_answer")
    answered_at = F.when(F.col("is_answer"), F.col("time"))

    def of_request(name: str) -> Column:
        return F.min(F.when(request, F.col(name))).alias(name)

    return (
        rows.where("_request is not null")
        .groupBy(*_KEY, F.col("_request.node").alias("node"), F.col("_request.time").alias("time"))
        .agg(
            of_request("transaction"),
            of_request("type"),
            F.max(F.when(request, F.col("expects"))).alias("expects"),
            of_request("outcome"),
            of_request("bytes"),
            (F.sum("answers") + F.sum(F.col("is_answer").cast("long"))).alias("answers"),
            F.min(F.coalesce("first_answer", answered_at)).alias("first_answer"),
            F.max(F.coalesce("last_answer", answered_at)).alias("last_answer"),
            F.max(F.when(request, F.col("again"))).alias("again"),
        )
    )
