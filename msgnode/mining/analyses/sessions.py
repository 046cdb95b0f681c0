"""
Sessions: how long they live, absences, takeovers, and reconnection storms.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, sum_fold
from msgnode.mining.analyses.columns import SECOND_NANOSECONDS, bin_of, count_where, percentiles, quotient
from msgnode.mining.analyses.top_talkers import MAX_ROWS

STORM_TIMES, STORM_LEAST = 10, 20
_MINUTE = 60 * SECOND_NANOSECONDS


def sessions(lives: DataFrame) -> DataFrame:
    """
    How do sessions end, how often do they reconnect, how long are they away? By the day of the last event.
    """
    ended = F.coalesce("ended", F.lit("goes on"))
    return lives.groupBy("date", "node", ended.alias("ended")).agg(
        F.count("*").alias("sessions"),
        F.sum(F.greatest(F.col("attached") - F.col("whole").cast("long"), F.lit(0))).alias("reconnects"),
        F.sum("superseded").alias("takeovers"),
        F.sum("aways").alias("aways"),
        F.sum("away").alias("away"),
        F.max("longest_away").alias("longest_away"),
    )


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


def lengths(lives: DataFrame) -> DataFrame:
    """
    How long do sessions live, if their beginning and end are in the log? A histogram in milliseconds.
    """
    return (
        lives.where("whole and ended is not null")
        .groupBy("date", "ended", bin_of(quotient(F.col("length"), 1_000_000)).alias("bin"))
        .agg(F.count("*").alias("number"))
    )


def length_percentiles(parts: DataFrame) -> DataFrame:
    """
    Percentiles of the lifetimes in milliseconds, by the kind of end.
    """
    return percentiles(parts, "ended").orderBy("ended")


def restless(lives: DataFrame) -> DataFrame:
    """
    Which sessions lose their connection most often? For each day.
    """
    return (
        lives.where("attached > 2")
        .groupBy("date", "session", "node")
        .agg(
            F.sum("attached").alias("attached"),
            F.sum("superseded").alias("takeovers"),
            F.sum("away").alias("away"),
            F.max("time").alias("last"),
        )
    )


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


def arrivals(events: DataFrame) -> DataFrame:
    """
    How many connections were made in each minute, and how many of them by new sessions?
    """
    return (
        events.where("event in ('attached', 'opened')")
        .groupBy("date", "node", quotient(F.col("time"), _MINUTE).alias("minute"))
        .agg(
            count_where(F.col("event") == "attached").alias("attached"),
            count_where(F.col("event") == "opened").alias("opened"),
        )
    )


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
