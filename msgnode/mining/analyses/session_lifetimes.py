"""
Session lifetimes, from the first event to the last, reconstructed from event lines.

A session that goes on after the batch is `open`: the next batch continues from its row, so that earlier
events need not be read again.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from msgnode.mining.analyses.columns import HOUR_NANOSECONDS, count_where, date_of, hour_of_day

ENDS = ("closed", "expired", "renamed", "moved")
_SUMS = ("attached", "detached", "superseded", "aways", "away")
_CARRIED = ("began", "whole", *_SUMS, "longest_away")
SCHEMA = (
    "session string, node string, time long, event string, began long, whole boolean, attached long, "
    "detached long, superseded long, aways long, away long, longest_away long, ended string, length long, "
    "open boolean, date string, hour int, batch int"
)
COLUMNS = ("session", "node", "time", "event", *_CARRIED)


def session_lifetimes(events: DataFrame, carried: DataFrame | None, end: int) -> DataFrame:
    """
    One row for each session until `end` (hours since 1970); one that goes on is counted until then.

    `whole`: its beginning is in the log. `ended`: `closed`, `expired`, `renamed`, `moved`, `lost` (a new
    session has the same name, without an end of this one), or null. `away` is the time without a connection
    in nanoseconds, in `aways` absences; an absence that goes on is not counted yet.
    """
    rows = _events(events)
    if carried is not None:
        rows = rows.unionByName(carried.select(*COLUMNS))
    found = rows.transform(_numbered).transform(_gathered)
    last, until = F.col("last"), F.lit(end * HOUR_NANOSECONDS)
    still = F.col("ended").isNull()
    return found.select(
        "session",
        "node",
        F.col("last.time").alias("time"),
        last["event"].alias("event"),
        *_CARRIED,
        "ended",
        (F.when(still, until).otherwise(last["time"]) - F.col("began")).alias("length"),
        still.alias("open"),
        date_of(last["time"]).alias("date"),
        hour_of_day(last["time"]).alias("hour"),
    )


def _events(events: DataFrame) -> DataFrame:
    none = F.lit(None).cast("long")
    return events.select(
        "session",
        "node",
        "time",
        "event",
        F.col("time").alias("began"),
        (F.col("event") == "opened").alias("whole"),
        *[
            (F.col("event") == name).cast("long").alias(name)
            for name in ("attached", "detached", "superseded")
        ],
        none.alias("aways"),
        none.alias("away"),
        none.alias("longest_away"),
    )


def _numbered(rows: DataFrame) -> DataFrame:
    """
    Each event with the number of its lifetime, and the time since the previous event if there was no
    connection.
    """
    # The order at the same instant: opened, others, ends.
    rank = F.when(F.col("event") == "opened", 0).when(F.col("event").isin(*ENDS), 2).otherwise(1)
    ordered = Window.partitionBy("session", "node").orderBy("time", rank, "event")
    so_far = ordered.rowsBetween(Window.unboundedPreceding, 0)
    before = F.lag(F.struct("event", "time")).over(ordered)
    begins = F.col("whole") & (F.col("event") == "opened") | before["event"].isin(*ENDS)
    rows = rows.select("*", before.alias("before"), F.coalesce(begins, F.lit(True)).alias("begins"))
    gone = F.when(
        (F.col("before.event") == "detached") & ~F.col("begins"), F.col("time") - F.col("before.time")
    )
    rows = rows.select("*", count_where(F.col("begins")).over(so_far).alias("life"), gone.alias("gone"))
    # A detached event that is logged twice is one absence.
    return rows.withColumn("ends_away", F.col("gone").isNotNull() & (F.col("event") != "detached"))


def _gathered(rows: DataFrame) -> DataFrame:
    sums = [F.sum(name).alias(name) for name in ("attached", "detached", "superseded")]
    lived = rows.groupBy("session", "node", "life").agg(
        F.min("began").alias("began"),
        F.max("whole").alias("whole"),
        F.max(F.struct("time", _late(), "event")).alias("last"),
        *sums,
        (F.coalesce(F.sum("aways"), F.lit(0)) + count_where(F.col("ends_away"))).alias("aways"),
        (F.coalesce(F.sum("away"), F.lit(0)) + F.coalesce(F.sum("gone"), F.lit(0))).alias("away"),
        F.greatest(F.max("longest_away"), F.max("gone"), F.lit(0).cast("long")).alias("longest_away"),
    )
    newest = F.max("life").over(Window.partitionBy("session", "node"))
    ended = F.when(F.col("last.event").isin(*ENDS), F.col("last.event")).when(
        F.col("life") < newest, F.lit("lost")
    )
    return lived.withColumn("ended", ended)


def _late() -> Column:
    return F.when(F.col("event").isin(*ENDS), 2).when(F.col("event") == "opened", 0).otherwise(1)
