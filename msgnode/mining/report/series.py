"""
The series of the report: counts and percentiles for each step of the time axis, loaded on the driver.

Steps without lines are zeros in counts, and None in percentiles.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Asked
from msgnode.mining.analyses.columns import hour_of, percentiles
from msgnode.mining.analyses.latency import latency_by
from msgnode.mining.analyses.volume import HANDED_OVER
from msgnode.mining.execution.gathering import served
from msgnode.mining.execution.kept_plans import planned_once
from msgnode.mining.report.steps import HOUR, LONG_SECONDS, MINUTE, Steps
from msgnode.mining.report.tables import Tables
from msgnode.mining.sql.dialect import Dialect
from msgnode.mining.sql.expressions import ERRORS, bin_of, kind

_MINUTE = f"(time - time % {MINUTE * 1_000_000_000})"
MAX_NODES = 50
MAX_PAIRS = 12  # of type and destination with unanswered requests
MAX_TOTALS = 100  # tables that are cut, and their measures
_SOURCES = ("volume", "errors", "answered", "latency_by_hour", "latency_by_node", "handover_by_hour")
PERCENTILES = ("p50", "p90", "p99")
Counts = list[int]
Bands = dict[str, list[int | None]]
Error = tuple[str, int, str]  # outcome, code, reason
Pair = tuple[str, str]  # type and destination


@dataclass
class Series:
    """
    The counts and percentiles that the report draws and judges. `recent` is the axis of percentiles, which a
    long log has by hour.

    `totals` are those of tables that are cut for show, by table and measure: rows and sum. `lost` has
    requests and unanswered requests for the types and destinations with the most unanswered, and `lost_until`
    the end of the last hour with such, in seconds since 1970.
    """

    steps: Steps
    recent: Steps
    types: dict[str, Counts] = field(default_factory=dict)
    nodes: dict[str, Counts] = field(default_factory=dict)
    errors: dict[Error, Counts] = field(default_factory=dict)
    lost: dict[Pair, tuple[Counts, Counts]] = field(default_factory=dict)
    lost_until: dict[Pair, int] = field(default_factory=dict)
    latency: Bands = field(default_factory=dict)
    by_node: dict[str, Bands] = field(default_factory=dict)
    answers: dict[str, Counts] = field(default_factory=dict)  # answered requests of each node
    handover: Bands = field(default_factory=dict)
    totals: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

    def whole(self, table: str, measure: str) -> tuple[int, int] | None:
        """
        The number of rows, and the sum of a measure, of a table that was cut for show; None if it is unknown.
        """
        return self.totals.get((table, measure))


def load_series(tables: Tables, fine: dict[str, DataFrame], begin: int, end: int) -> Series:
    """
    The series from `begin` to before `end` (seconds since 1970).

    By minute if `fine` has the sums of `minutes`.
    """
    steps = Steps(begin, end) if fine else Steps(begin, end, _coarse(begin, end))
    recent = steps if fine else Steps(max(begin, end - LONG_SECONDS), end, HOUR)
    found = Series(steps, recent)
    source = _by_minute(**fine) if fine else {name: tables[name].rows for name in _SOURCES}
    queries: dict[str, Any] = _queries(steps, recent, **source)
    rows = served(queries | {"totals": tables["totals"].head(MAX_TOTALS)})
    _fill(found, rows)
    return found


@planned_once
def _queries(steps: Steps, recent: Steps, **source: DataFrame) -> dict[str, DataFrame]:
    """
    A query for each series.
    """
    at, late = steps.column().alias("at"), recent.column().alias("at")
    volume = source["volume"].select(at, "type", "node", "messages")
    errors = source["errors"].select(
        at, "outcome", F.coalesce("code", F.lit(0)).alias("code"), "reason", "number"
    )
    return {
        "volume": volume.groupBy("at", "type", "node").agg(F.sum("messages").alias("messages")),
        "errors": errors.groupBy("at", "outcome", "code", "reason").agg(F.sum("number").alias("number")),
        "latency": source["latency_by_hour"].select(late, *PERCENTILES),
        "by_node": source["latency_by_node"].select(late, "node", "number", *PERCENTILES),
        "handover": source["handover_by_hour"].select(late, *PERCENTILES),
        "lost": _unanswered(source["answered"], steps),
    }


def _fill(found: Series, rows: dict[str, list[Row]]) -> None:
    steps, recent = found.steps, found.recent
    found.types = _summed(steps, ((row.type, row.at, row.messages) for row in rows["volume"]))
    nodes = _summed(steps, ((row.node, row.at, row.messages) for row in rows["volume"]))
    found.nodes = dict(list(nodes.items())[:MAX_NODES])
    found.errors = _summed(
        steps, (((row.outcome, row.code, row.reason or ""), row.at, row.number) for row in rows["errors"])
    )
    found.totals = {
        (row.table, row.measure): (row["rows"], row.total) for row in rows["totals"]
    }  # fmt: skip
    found.latency = _bands(recent, rows["latency"])
    for node in sorted({row.node for row in rows["by_node"]}):
        own = [row for row in rows["by_node"] if row.node == node]
        found.by_node[node] = _bands(recent, own)
        found.answers[node] = _counts(recent, ((row.at, row.number) for row in own))
    found.handover = _bands(recent, rows["handover"])
    found.lost = _lost(steps, rows["lost"])
    for row in rows["lost"]:
        pair = row.type, row.destination
        found.lost_until[pair] = max(found.lost_until.get(pair, 0), ((row.until or -1) + 1) * HOUR)


def _coarse(begin: int, end: int) -> int:
    return max(HOUR, Steps(begin, end).size)


def messages_by_minute(sql: Dialect, messages: str) -> str:
    """
    The number of messages with the same values, in the minute that begins at `time`.
    """
    error = {name: f"CASE WHEN outcome IN {ERRORS} THEN {name} END" for name in ("outcome", "code", "reason")}
    return f"""
        SELECT {_MINUTE} AS time, {kind()} AS type, node,
            {", ".join(f"{value} AS {name}" for name, value in error.items())},
            CASE WHEN {HANDED_OVER} THEN {bin_of("micros")} END AS bin, count(*) AS number
        FROM {messages} GROUP BY ALL"""


def latency_by_minute(sql: Dialect, exchanges: str) -> str:
    """
    The latency of exchanges, with `time` as the beginning of the minute in place of the hour.
    """
    timed = f"(SELECT *, {_MINUTE} AS minute FROM {exchanges})"
    return f"""
        SELECT minute AS time, node, type, destination, bin, number
        FROM ({latency_by(sql, timed, "minute")})"""


# The queries for `minutes`.
MINUTES: dict[str, Asked] = {
    "messages_by_minute": ("messages", messages_by_minute),
    "latency_by_minute": ("exchanges", latency_by_minute),
}


def minutes(found: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """
    Sums by minute, from the answers to MINUTES.
    """
    return _minutes(*[found[name] for name in MINUTES])


@planned_once
def _minutes(counted: DataFrame, latency: DataFrame) -> dict[str, DataFrame]:
    number = F.sum("number").alias("number")
    failed = counted.where("outcome is not null")
    return {
        "volume": counted.groupBy("time", "type", "node").agg(number),
        "errors": failed.groupBy("time", "outcome", "code", "reason").agg(number),
        "latency": latency,
        "handover": counted.where("bin is not null").groupBy("time", "bin").agg(number),
    }


@planned_once
def _by_minute(
    volume: DataFrame, errors: DataFrame, latency: DataFrame, handover: DataFrame
) -> dict[str, DataFrame]:
    """
    The same columns as the tables have, from sums by minute, with `time` in place of `date` and `hour`.
    """
    answered = latency.where("bin is not null")
    lost = F.when(F.col("bin").isNull(), F.col("number")).otherwise(F.lit(0)).alias("unanswered")
    return {
        "volume": volume.withColumnRenamed("number", "messages"),
        "errors": errors,
        "answered": latency.select("time", "type", "destination", F.col("number").alias("requests"), lost),
        "latency_by_hour": percentiles(answered, "time"),
        "latency_by_node": percentiles(answered, "time", "node"),
        "handover_by_hour": percentiles(handover, "time"),
    }


def _unanswered(answered: DataFrame, steps: Steps) -> DataFrame:
    """
    For each step the requests of the types and destinations with the most unanswered ones in `all`.
    """
    sums = [F.sum(name).alias(name) for name in ("requests", "unanswered")]
    pair = ("type", "destination")
    hour = F.unix_date(F.to_date("date")) * 24 + F.col("hour")
    if "time" in answered.columns:
        hour = hour_of(F.col("time"))
    # A step may be a day, and the last of them long ago.
    last = F.when(F.col("unanswered") > 0, hour).alias("until")
    rows = answered.select(steps.column().alias("at"), *pair, "requests", "unanswered", last)
    all_ = rows.groupBy(*pair).agg(F.sum("unanswered").alias("all")).where("all > 0")
    worst = all_.orderBy(F.desc("all"), F.concat_ws(" ", *pair)).limit(MAX_PAIRS)
    sums.append(F.max("until").alias("until"))
    return rows.join(F.broadcast(worst), [*pair]).groupBy(*pair, "all", "at").agg(*sums)


def _lost(steps: Steps, rows: list[Row]) -> dict[Pair, tuple[Counts, Counts]]:
    series = {}
    for _, type, destination in sorted({(-row["all"], row.type, row.destination) for row in rows}):
        own = [row for row in rows if (row.type, row.destination) == (type, destination)]
        series[type, destination] = (
            _counts(steps, ((row.at, row.requests) for row in own)),
            _counts(steps, ((row.at, row.unanswered) for row in own)),
        )
    return series


def _summed(steps: Steps, rows: Iterable[tuple[Any, int, int]]) -> dict[Any, Counts]:
    """
    A list of counts for each key, the largest sum first.
    """
    found: dict[Any, Counts] = defaultdict(lambda: [0] * steps.number)
    for key, at, number in rows:
        if 0 <= at < steps.number:
            found[key][at] += number
    return dict(sorted(found.items(), key=lambda item: (-sum(item[1]), item[0])))


def _counts(steps: Steps, rows: Iterable[tuple[int, int]]) -> Counts:
    found = [0] * steps.number
    for at, number in rows:
        if 0 <= at < steps.number:
            found[at] += number
    return found


def _bands(steps: Steps, rows: Sequence[Any]) -> Bands:
    found: Bands = {name: [None] * steps.number for name in PERCENTILES}
    for row in rows:
        if 0 <= row.at < steps.number:
            for name in PERCENTILES:
                found[name][row.at] = row[name]
    return found
