"""
Session lifetimes, from the first event to the last, reconstructed from event lines.

A session that goes on after the batch is `open`: the next batch continues from its row, so that earlier
events need not be read again.

The question is written in SQL, for two engines.
"""

from pyspark.sql import DataFrame

from msgnode.mining.analyses.columns import HOUR_NANOSECONDS
from msgnode.mining.sql.dialect import DUCKDB, SPARK, Dialect

ENDS = ("closed", "expired", "renamed", "moved")
_COUNTED = ("attached", "detached", "superseded")
_CARRIED = ("began", "whole", *_COUNTED, "aways", "away", "longest_away")
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
    spark = events.sparkSession
    if carried is None:
        return spark.sql(_lived(SPARK, _events("{events}"), end), events=events)
    rows = f"{_events('{events}')} UNION ALL {_carried('{carried}')}"
    return spark.sql(_lived(SPARK, rows, end), events=events, carried=carried)


def session_lifetimes_in_duckdb(carried: bool, end: int) -> str:
    """
    The same as a query of DuckDB, of the tables `lines` and, if rows are carried over, `carried`.
    """
    rows = _events("lines")
    return _lived(DUCKDB, f"{rows} UNION ALL {_carried('carried')}" if carried else rows, end)


def _events(events: str) -> str:
    counted = ", ".join(f"CAST(event = '{name}' AS BIGINT) AS {name}" for name in _COUNTED)
    return f"""
        SELECT session, node, time, event, time AS began, event = 'opened' AS whole, {counted},
            CAST(NULL AS BIGINT) AS aways, CAST(NULL AS BIGINT) AS away, CAST(NULL AS BIGINT) AS longest_away
        FROM {events} WHERE kind = 'session'"""


def _carried(rows: str) -> str:
    return f"SELECT {', '.join(COLUMNS)} FROM {rows}"


def _lived(sql: Dialect, rows: str, end: int) -> str:
    """
    Each event with the number of its lifetime, and in `gone` the time since the previous event if there was
    no connection; then a row for each lifetime.
    """
    # The order at the same instant: opened, others, ends.
    rank = f"CASE WHEN event = 'opened' THEN 0 WHEN event IN {ENDS} THEN 2 ELSE 1 END"
    until, last = end * HOUR_NANOSECONDS, "latest.time"
    return f"""
        WITH seen AS (
            SELECT *, {rank} AS rank FROM ({rows})
        ), following AS (
            SELECT *, row_number() OVER ordered AS place, lag(event) OVER ordered AS event_before,
                lag(time) OVER ordered AS time_before
            FROM seen
            WINDOW ordered AS (
                PARTITION BY session, node ORDER BY time NULLS FIRST, rank, event NULLS FIRST
            )
        ), beginning AS (
            SELECT *, coalesce(whole AND event = 'opened' OR event_before IN {ENDS}, TRUE) AS begins
            FROM following
        ), numbered AS (
            SELECT *,
                -- By place: events that are equal in all have no order of their own.
                sum(CASE WHEN begins THEN 1 ELSE 0 END) OVER (
                    PARTITION BY session, node ORDER BY place
                    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
                ) AS life,
                CASE WHEN event_before = 'detached' AND NOT begins THEN time - time_before END AS gone
            FROM beginning
        ), lived AS (
            SELECT session, node, life, min(began) AS began, max(whole) AS whole,
                max({sql.struct_of({name: name for name in ("time", "rank", "event")})}) AS latest,
                {", ".join(f"sum({name}) AS {name}" for name in _COUNTED)},
                -- A detached event that is logged twice is one absence.
                coalesce(sum(aways), 0)
                    + sum(CASE WHEN gone IS NOT NULL AND event != 'detached' THEN 1 ELSE 0 END) AS aways,
                coalesce(sum(away), 0) + coalesce(sum(gone), 0) AS away,
                greatest(max(longest_away), max(gone), CAST(0 AS BIGINT)) AS longest_away
            FROM numbered GROUP BY session, node, life
        ), ended AS (
            SELECT *,
                CASE WHEN latest.event IN {ENDS} THEN latest.event
                    WHEN life < max(life) OVER (PARTITION BY session, node) THEN 'lost' END AS ended
            FROM lived
        )
        SELECT session, node, {last} AS time, latest.event AS event, began, whole,
            {", ".join(f"CAST({name} AS BIGINT) AS {name}" for name in _CARRIED[2:])},
            ended, CASE WHEN ended IS NULL THEN {until} ELSE {last} END - began AS length,
            ended IS NULL AS open, {sql.day(last)} AS date, {sql.hour(last)} AS hour
        FROM ended"""
