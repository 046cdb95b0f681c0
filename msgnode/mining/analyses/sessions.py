"""
Sessions: how long they live, absences, takeovers, and reconnection storms.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, sum_fold
from msgnode.mining.analyses.columns import SECOND_NANOSECONDS, percentiles, quotient
from msgnode.mining.analyses.top_talkers import MAX_ROWS
from msgnode.mining.sql.dialect import Dialect
from msgnode.mining.sql.expressions import bin_of, number_where, total

STORM_TIMES, STORM_LEAST = 10, 20
_MINUTE = 60 * SECOND_NANOSECONDS


def sessions(sql: Dialect, lives: str) -> str:
    """
    How do sessions end, how often do they reconnect, how long are they away? By the day of the last event.
    """
    sums = ", ".join(f"{total(name)} AS {name}" for name in ("aways", "away"))
    return f"""
        SELECT date, node, coalesce(ended, 'goes on') AS ended, count(*) AS sessions,
            {total("greatest(attached - CAST(whole AS INT), 0)")} AS reconnects,
            {total("superseded")} AS takeovers, {sums}, max(longest_away) AS longest_away
        FROM {lives} GROUP BY ALL"""


def sessions_by_end(parts: DataFrame) -> DataFrame:
    """
    The same over all days; times in seconds.
    """
    names = ("sessions", "reconnects", "takeovers", "aways")
    return (
        parts.groupBy("node", "ended")
        .agg(
            *[F.sum(name).alias(name) for name in names],
            quotient(F.sum("away"), SECOND_NANOSECONDS).alias("away_seconds"),
            quotient(F.max("longest_away"), SECOND_NANOSECONDS).alias("longest_away_seconds"),
        )
        .orderBy("node", "ended")
    )


def lengths(sql: Dialect, lives: str) -> str:
    """
    How long do sessions live, if their beginning and end are in the log? A histogram in milliseconds.
    """
    return f"""
        SELECT date, ended, {bin_of(sql.quotient.format("length", 1_000_000))} AS bin, count(*) AS number
        FROM {lives} WHERE whole AND ended IS NOT NULL GROUP BY ALL"""


def length_percentiles(parts: DataFrame) -> DataFrame:
    """
    Percentiles of the lifetimes in milliseconds, by the kind of end.
    """
    return percentiles(parts, "ended").orderBy("ended")


def restless(sql: Dialect, lives: str) -> str:
    """
    Which sessions lose their connection most often? For each day.
    """
    return f"""
        SELECT date, session, node, {total("attached")} AS attached, {total("superseded")} AS takeovers,
            {total("away")} AS away, max(time) AS last
        FROM {lives} WHERE attached > 2 GROUP BY ALL"""


def restless_in_all(parts: DataFrame) -> DataFrame:
    """
    The same over all days.
    """
    names = ("attached", "takeovers", "away")
    return parts.groupBy("session", "node").agg(
        *[F.sum(name).alias(name) for name in names], F.max("last").alias("last")
    )


def most_restless(sessions: DataFrame) -> DataFrame:
    """
    The thousand sessions with the most connections.
    """
    return sessions.orderBy(F.desc("attached"), "session", "node").limit(MAX_ROWS)


def arrivals(sql: Dialect, events: str) -> str:
    """
    How many connections were made in each minute, and how many of them by new sessions?
    """
    return f"""
        SELECT date, node, {sql.quotient.format("time", _MINUTE)} AS minute,
            {number_where("event = 'attached'")} AS attached, {number_where("event = 'opened'")} AS opened
        FROM {events} WHERE event IN ('attached', 'opened') GROUP BY ALL"""


def storms(parts: DataFrame) -> DataFrame:
    """
    Which minutes have at least 20 connections, and ten times as many as the node's median minute with any?
    """
    minutes = parts.groupBy("node", "minute").agg(
        F.sum("attached").alias("attached"), F.sum("opened").alias("opened")
    )
    usual = minutes.groupBy("node").agg(F.percentile("attached", F.lit(0.5)).alias("usual"))
    return (
        minutes.join(F.broadcast(usual), "node")
        .where((F.col("attached") >= STORM_LEAST) & (F.col("attached") >= F.col("usual") * STORM_TIMES))
        .select("node", (F.col("minute") * _MINUTE).alias("time"), "attached", "opened", "usual")
        .orderBy("time", "node")
    )


QUESTIONS = (
    Analysis(
        "sessions",
        "lives",
        sessions,
        sessions_by_end,
        sum_fold("sessions", "reconnects", "takeovers", "aways", "away", most="longest_away"),
    ),
    Analysis("lengths", "lives", lengths, length_percentiles, sum_fold("number")),
    Analysis(
        "restless",
        "lives",
        restless,
        restless_in_all,
        sum_fold("attached", "takeovers", "away", most="last"),
        cut=most_restless,
        sums=("attached",),
    ),
    Analysis("storms", "events", arrivals, storms, sum_fold("attached", "opened")),
)
