"""
Anomalies: hours that differ from the same hour of other days, for all nodes together, for each node, for each
sender's domain and for each code.

The usual value of an hour is the median over the same hour of the same weekday, of all other days, or of all
other hours: the first of these that has MIN_DAYS values. The usual distance is the median absolute deviation
(MAD). Both are robust against a few odd days. An hour is reported if its distance is at least SCORE times the
usual one.

An hour without lines counts as zero, from the first hour of its node on. The hours in which the log begins
and ends may not be whole ones: no value is compared with theirs, and only too much in them is reported.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis, sum_fold
from msgnode.mining.analyses.columns import (
    HOUR_NANOSECONDS,
    SECOND_NANOSECONDS,
    computed_once,
    date_of,
    hour_of_day,
)
from msgnode.mining.sql.dialect import Dialect
from msgnode.mining.sql.expressions import FAILURE, domain, number_where, total

MIN_DAYS = 3  # least number of other days
MAX_DAYS = 56  # the last days of the log that are compared: eight weeks
SCORE = 6.0
NORMAL = 1.4826  # times the MAD of a normal distribution is its standard deviation
LEAST_DISTANCE = 3.0  # of any value: a few failures more than none are no anomaly
SLOW_MICROSECONDS = 100_000  # microseconds of handling
PARTIAL_SECONDS = 60  # an hour with no line in its first or last minute may be incomplete
MEASURES = ("messages", "bytes", "failed", "slow", "connections", "expired")
_OF_NAMES = {
    "node": tuple(name for name in MEASURES if name != "bytes"),
    "domain": ("messages", "failed"),
    "code": ("failed",),
}
_SERIES = ("scope", "name", "measure")
_SPAN = ("begin", "end", "first", "last")  # of the log: its hours, and the seconds of its lines in these


def hours(sql: Dialect, lines: str) -> str:
    """
    The counts of each hour that are compared, by node, by domain of the sender and by code.

    `first` and `last` are the seconds of the hour with the first and the last line.
    """
    second = f"CAST({sql.quotient.format('time', SECOND_NANOSECONDS)} % 3600 AS INT)"
    message, event = "kind = 'message'", "kind = 'session' AND event"
    sums = ", ".join(f"{total(name)} AS {name}" for name in MEASURES)
    # To find the domain in the address of each message would cost much.
    return f"""
        SELECT date, hour, node, CASE WHEN message THEN {domain("sender")} END AS domain, code,
            {sums}, min(first) AS first, max(last) AS last
        FROM (
            SELECT date, hour, node, {message} AS message,
                CASE WHEN {message} THEN {sql.origin.format(sql.named("from"))} END AS sender,
                CASE WHEN {message} AND {FAILURE} THEN coalesce(code, 0) END AS code,
                {number_where(message)} AS messages, sum(bytes) AS bytes,
                {number_where(f"{message} AND {FAILURE}")} AS failed,
                {number_where(f"{message} AND micros > {SLOW_MICROSECONDS}")} AS slow,
                {number_where(f"{event} = 'attached'")} AS connections,
                {number_where(f"{event} = 'expired'")} AS expired,
                min({second}) AS first, max({second}) AS last
            FROM {lines} GROUP BY ALL
        ) GROUP BY ALL"""


def anomalies(parts: DataFrame) -> DataFrame:
    """
    Which hours differ, in which count, and what is usual? The largest difference first.

    `scope` is `all`, `node`, `domain` or `code`, and `name` is which of them. `score` is the distance in
    usual distances. `compared` is `weekday`, `hour` or `all`: with the same hour of the same weekday, of all
    days, or with all hours; `others` is the number of values that it was compared with.
    """
    values = _grid(parts).transform(_with_others).transform(_with_usual)
    floor = F.greatest(F.sqrt("usual"), F.col("usual") * 0.05, F.lit(LEAST_DISTANCE))
    score = (F.col("value") - F.col("usual")) / F.greatest(F.col("mad") * NORMAL, floor)
    return (
        values.withColumn("score", F.round(score, 2))
        .where((F.col("score") >= SCORE) | (F.col("whole") & (F.col("score") <= -SCORE)))
        .select("date", "hour", *_SERIES, "value", "usual", "mad", "score", "compared", "others")
        .orderBy(F.desc(F.abs("score")), "date", "hour", *_SERIES)
    )


def _grid(parts: DataFrame) -> DataFrame:
    """
    The value of each series in each hour of the last days: 0 where there are no lines.

    A series is left out if none of its values is large enough to differ from any other.
    """
    number = F.unix_date(F.col("date").cast("date")).cast("long") * 24 + F.col("hour")
    numbered = parts.withColumn("number", number)
    span = numbered.agg(
        F.min("number").alias("begin"),
        F.max("number").alias("end"),
        F.min(F.struct("number", "first"))["first"].alias("first"),
        F.max(F.struct("number", "last"))["last"].alias("last"),
    )
    earliest = F.greatest("begin", F.col("end") - (24 * MAX_DAYS - 1))
    recent = numbered.drop("first", "last").transform(_with, span).where(F.col("number") >= earliest)
    series = (
        recent.transform(_series)
        .groupBy(*_SERIES, *_SPAN)
        .agg(
            F.max("value").alias("most"),
            F.min("number").alias("since"),
            F.collect_list(F.struct("number", "value")).alias("counts"),
        )
        .where(F.col("most") >= SCORE * LEAST_DISTANCE)
    )
    of_node = F.col("scope") == "node"
    series = series.withColumn("since", F.when(of_node, F.col("since")).otherwise(earliest))
    zeros = F.transform(
        F.sequence("since", "end"),
        lambda number: F.struct(number.alias("number"), F.lit(0).cast("long").alias("value")),
    )
    every = (
        series.select(*_SERIES, *_SPAN, "since", F.explode(F.concat("counts", zeros)).alias("count"))
        .groupBy(*_SERIES, *_SPAN, "since", F.col("count.number").alias("number"))
        .agg(F.sum("count.value").alias("value"))
    )
    at_begin = (F.col("number") == F.col("begin")) & (F.col("first") >= PARTIAL_SECONDS)
    at_end = (F.col("number") == F.col("end")) & (F.col("last") < 3600 - PARTIAL_SECONDS)
    node_begins = of_node & (F.col("number") == F.col("since"))
    time = F.col("number") * F.lit(HOUR_NANOSECONDS)
    return every.select(
        date_of(time).alias("date"),
        hour_of_day(time).alias("hour"),
        "number",
        *_SERIES,
        "value",
        (~(at_begin | at_end | node_begins)).alias("whole"),
    )


def _with(rows: DataFrame, one: DataFrame) -> DataFrame:
    """
    All rows with the columns of a single row. By a key, because rows in one partition then stay there.
    """
    key = F.lit(0).alias("key")
    return rows.select("*", key).join(F.broadcast(one.select("*", key)), "key").drop("key")


def _series(hours: DataFrame) -> DataFrame:
    """
    Rows of `scope`, `name`, `measure`, `number` and `value`, with the span of the log.
    """

    def named(scope: str, name: Column, measures: tuple[str, ...]) -> Column:
        counts = [F.struct(F.lit(each).alias("measure"), F.col(each).alias("value")) for each in measures]
        name = name.cast("string")
        return F.struct(F.lit(scope).alias("scope"), name.alias("name"), F.array(*counts).alias("counts"))

    scopes = [named("all", F.lit(""), MEASURES)]
    scopes += [named(scope, F.col(scope), measures) for scope, measures in _OF_NAMES.items()]
    return (
        hours.select("number", *_SPAN, F.explode(F.array(*scopes)).alias("one"))
        .where("one.name is not null")
        .select("number", *_SPAN, "one.scope", "one.name", F.explode("one.counts").alias("count"))
        .groupBy("scope", "name", F.col("count.measure").alias("measure"), "number", *_SPAN)
        .agg(F.sum("count.value").alias("value"))
    )


def _with_others(values: DataFrame) -> DataFrame:
    """
    Each value with `list`, the values it is compared with.
    """
    own = F.when(F.col("whole"), F.struct("number", F.col("value").cast("double").alias("value")))
    rows = values.select("*", own.alias("own"), (F.dayofweek(F.col("date").cast("date"))).alias("weekday"))
    same_weekday = Window.partitionBy(*_SERIES, "hour", "weekday")
    same_hour = Window.partitionBy(*_SERIES, "hour")
    all_hours = Window.partitionBy(*_SERIES)
    rows = rows.select("*", F.count("own").over(same_hour).alias("days"))
    rows = rows.select("*", F.max("days").over(all_hours).alias("most_days"))
    # A list of all hours is only made for a log of a few days.
    in_short_log = F.when(F.col("most_days") <= MIN_DAYS, F.col("own"))
    listed = rows.select(
        "*",
        F.collect_list("own").over(same_weekday).alias("by_weekday"),
        F.collect_list("own").over(same_hour).alias("by_hour"),
        F.collect_list(in_short_log).over(all_hours).alias("by_all"),
    )
    for name in ("by_weekday", "by_hour", "by_all"):
        listed = listed.withColumn(
            name,
            F.transform(
                F.filter(name, lambda other: other["number"] != F.col("number")), lambda other: other["value"]
            ),
        )
    enough = {name: F.size(name) >= MIN_DAYS for name in ("by_weekday", "by_hour", "by_all")}
    compared = (
        F.when(enough["by_weekday"], "weekday").when(enough["by_hour"], "hour").when(enough["by_all"], "all")
    )
    chosen = F.when(enough["by_weekday"], F.col("by_weekday")).when(enough["by_hour"], F.col("by_hour"))
    found = listed.select(
        "date", "hour", *_SERIES, "value", "whole", compared.alias("compared"),
        computed_once(chosen.otherwise(F.col("by_all")).alias("list")),
    )  # fmt: skip
    return found.where("compared is not null").withColumn("others", F.size("list"))


def _with_usual(values: DataFrame) -> DataFrame:
    known = values.select("*", computed_once(_median(F.col("list")).alias("usual")))
    distances = F.transform("list", lambda other: F.abs(other - F.col("usual")))
    return known.select("*", computed_once(_median(distances).alias("mad")))


def _median(numbers: Column) -> Column:
    """
    The median of an array; null for an empty one, whatever the optimiser evaluates first.
    """
    ordered, size = F.sort_array(numbers), F.size(numbers)
    lower = F.get(ordered, F.floor((size - 1) / 2).cast("int"))
    upper = F.get(ordered, F.floor(size / 2).cast("int"))
    return (lower + upper) / 2


QUESTIONS = (
    Analysis("anomalies", "lines", hours, anomalies, sum_fold(*MEASURES, least="first", most="last")),
)
