"""
Presence: when each node wrote lines, and when it fell silent.

A node writes a line about itself each minute, so minutes without any line of it are an outage, unless it had
said that it stops. Nodes of version 0.1.0 do not write such lines: there, hours without lines may be hours
without clients, and are reported as `no lines`.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Analysis
from msgnode.mining.analyses.columns import SECOND_NANOSECONDS
from msgnode.mining.sql.dialect import Dialect
from msgnode.mining.sql.expressions import example, number_where, shown, total

SILENT_MINUTES = 3  # without a line, for a node that writes one each minute
NO_LINES_MINUTES = 60  # the same for a node that does not
_MINUTE = 60 * SECOND_NANOSECONDS
_SAID = ("time", "version", "revision")
_COUNTED = ("started", "messages", "unlogged", "lost")


def presence(sql: Dialect, lines: str) -> str:
    """
    When did each node write lines in each hour? One row for each node and hour.

    `first` and `last` are minutes since 1970, `gaps` the longer times between two lines, in minutes; `alive`
    is the number of lines about the node itself, `stops` the minutes in which it stopped, and `runs` what
    each of its runs had counted at its end, or at the end of the hour.
    """
    own, stopped = "kind = 'node'", "own.event = 'stopped'"
    of_line = sql.struct_of(
        {"event": "event", "said": example(sql, _SAID), "counted": example(sql, _COUNTED)}
    )
    gap = sql.struct_of({"since": "before", "until": "minute"})
    ended = sql.set.format(f"CASE WHEN {stopped} THEN {shown(sql, 'own.counted', _COUNTED)} END")
    newest = shown(sql, "max(own.counted)", _COUNTED)
    # Sets and maxima of structs cost much for each row: all other lines of a minute are one.
    return f"""
        WITH minutes AS (
            SELECT date, hour, node, {sql.quotient.format("time", _MINUTE)} AS minute,
                CASE WHEN {own} THEN {of_line} END AS own, {number_where(own)} AS alive,
                {number_where(f"{own} AND event = 'started'")} AS starts
            FROM {lines} GROUP BY ALL
        ), following AS (
            SELECT *, lag(minute) OVER (PARTITION BY date, hour, node ORDER BY minute) AS before FROM minutes
        )
        SELECT date, hour, node, min(minute) AS first, max(minute) AS last,
            {sql.set.format(f"CASE WHEN minute - before > {SILENT_MINUTES} THEN {gap} END")} AS gaps,
            {total("alive")} AS alive, {total("starts")} AS starts,
            {sql.set.format(f"CASE WHEN {stopped} THEN minute END")} AS stops,
            {shown(sql, "max(own.said)", _SAID)} AS said,
            {sql.with_one.format(ended, newest)} AS runs
        FROM following GROUP BY date, hour, node"""


def nodes(parts: DataFrame) -> DataFrame:
    """
    Each node: since when and until when there are lines of it, its version, and what it did not log.

    `alive` is the number of its lines about itself: 0 for a node that does not write them, and then how often
    it started is not known. `lost` and
    `unlogged` add up what each run of the node counted.
    """
    runs = (
        parts.select("node", F.explode("runs").alias("run"))
        .groupBy("node", "run.started")
        .agg(F.max("run.unlogged").alias("unlogged"), F.max("run.lost").alias("lost"))
        .groupBy("node")
        .agg(F.sum("unlogged").alias("unlogged"), F.sum("lost").alias("lost"))
    )
    seen = parts.groupBy("node").agg(
        (F.min("first") * _MINUTE).alias("first"),
        (F.max("last") * _MINUTE).alias("last"),
        F.sum("alive").alias("alive"),
        F.when(F.sum("alive") > 0, F.sum("starts")).alias("starts"),
        F.max("said").alias("said"),
    )
    return (
        seen.join(F.broadcast(runs), "node", "left")
        .select(
            "node", "first", "last", "alive", "starts", "said.version", "said.revision", "unlogged", "lost"
        )
        .orderBy("node")
    )


def silences(parts: DataFrame) -> DataFrame:
    """
    When was a node silent? First what goes on, then outages, the longest first.

    `why` is `outage`, `stopped` (the node had said so), or `no lines` (the node does not write lines about
    itself). `until` is null while it goes on: the node's lines end before those of other nodes.
    """
    order = Window.partitionBy("node").orderBy("date", "hour")
    hours = parts.select(
        "*",
        F.lead("first").over(order).alias("next"),
        F.coalesce(F.lag("alive").over(order), F.lit(0)).alias("before"),
        F.max("last").over(Window.partitionBy(F.lit(0))).alias("end"),
    )
    after = F.struct(F.col("last").alias("since"), F.col("next").alias("until"))
    gap = F.explode(F.concat("gaps", F.array(after)))
    until = F.coalesce(F.col("gap.until"), F.col("end"))
    # A node that fell silent at the beginning of an hour may have no line about itself in that hour.
    just_begun = (F.col("before") > 0) & (F.col("gap.since") % 60 < SILENT_MINUTES)
    found = hours.select("*", gap.alias("gap")).select(
        "node",
        F.col("gap.since").alias("since"),
        F.col("gap.until").alias("until"),
        (until - F.col("gap.since")).alias("minutes"),
        F.when(F.array_contains("stops", F.col("gap.since")), F.lit("stopped"))
        .when((F.col("alive") > 0) | just_begun, F.lit("outage"))
        .otherwise(F.lit("no lines"))
        .alias("why"),
    )
    least = F.when(F.col("why") == "no lines", F.lit(NO_LINES_MINUTES)).otherwise(F.lit(SILENT_MINUTES))
    return (
        found.where(F.col("minutes") > least)
        .select(
            "node",
            (F.col("since") * _MINUTE).alias("since"),
            (F.col("until") * _MINUTE).alias("until"),
            "minutes",
            "why",
        )
        .orderBy(
            F.desc(F.col("until").isNull()),
            F.desc(F.col("why") == "outage"),
            F.desc("minutes"),
            "node",
            "since",
        )
    )


QUESTIONS = (
    Analysis("nodes", "lines", presence, nodes),
    Analysis("silences", "lines", presence, silences, shares="nodes"),
)
