"""
The data of the charts: a few hundred numbers each, whatever the size of the log.
"""

from collections import defaultdict
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from msgnode.mining.execution.gathering import Asking
from msgnode.mining.execution.kept_plans import planned_once
from msgnode.mining.execution.stored_table import StoredTable
from msgnode.mining.report.findings import error_name
from msgnode.mining.report.series import Series
from msgnode.mining.report.steps import Steps
from msgnode.mining.sql.expressions import FAILED

DOMAINS = 15  # on each axis of the heat map
BARS = 15
LINES = 12  # of one chart
MAX_DRAWN = 30  # sessions in the subscription graph; with more its names would overlap


@planned_once
def totals(rows: DataFrame, *names: str) -> DataFrame:
    """
    The sums of columns; without names, those of the volume.
    """
    if names:
        return rows.agg(*[F.sum(name).alias(name) for name in names])
    lost = F.sum(F.when(F.col("outcome").isin(*FAILED), F.col("messages")).otherwise(F.lit(0)))
    sums = [F.sum(name).alias(name) for name in ("messages", "bytes", "copies")]
    return rows.agg(*sums, lost.alias("failed"))


@planned_once
def by(volume: DataFrame, *keys: str) -> DataFrame:
    """
    The volume grouped by other keys, the largest first.
    """
    sums = [F.sum(name).alias(name) for name in ("messages", "bytes", "copies")]
    return volume.groupBy(*keys).agg(*sums).orderBy(F.desc("messages"), *keys)


def stack(labels: list[str], series: dict[str, list[int]], colours: str) -> dict[str, Any]:
    """
    Counts above each other; `colours` says which names the page has colours for: type, code, node.
    """
    return {"kind": "stack", "labels": labels, "series": series, "unit": "number", "colours": colours}


def bands(steps: Steps, series: dict[str, Any]) -> dict[str, Any] | None:
    """
    Percentiles over time; None without any.
    """
    if not any(value is not None for values in series.values() for value in values):
        return None
    return {
        "kind": "bands", "labels": steps.labels(), "series": series, "unit": "micros", "colours": "percentile"
    }  # fmt: skip


def nodes(found: Series, name: str) -> dict[str, Any] | None:
    """
    One percentile of each node over time; None with a single node.
    """
    busiest = sorted(found.by_node, key=lambda node: -sum(found.answers[node]))[:LINES]
    if len(busiest) < 2:
        return None
    return {
        "kind": "lines",
        "labels": found.recent.labels(),
        "series": {node: found.by_node[node][name] for node in sorted(busiest)},
        "unit": "micros",
        "colours": "node",
    }


def errors(found: Series) -> dict[str, Any] | None:
    """
    Errors by code over time; beyond a dozen, the rest together.
    """
    codes: dict[str, list[int]] = {}
    for (outcome, code, reason), counts in found.errors.items():
        name = error_name(outcome, code, reason)
        if name not in codes and len(codes) == LINES:
            name = "others"
        known = codes.get(name, [0] * found.steps.number)
        codes[name] = [one + other for one, other in zip(known, counts, strict=True)]
    return stack(found.steps.labels(), codes, "code") if codes else None


def matrix(rows: DataFrame) -> Asking:
    """
    The busiest domains against each other; the rest is `others`.
    """
    found = yield [_busiest(rows, "from_domain"), _busiest(rows, "to_domain")]
    from_, to = ([row[0] for row in each] for each in found)
    found = yield _between(rows, frozenset(from_), frozenset(to))
    from_ += ["others"] * any(row.from_domain == "others" for row in found)
    to += ["others"] * any(row.to_domain == "others" for row in found)
    cells = sorted([to.index(row.to_domain), from_.index(row.from_domain), row.messages] for row in found)
    return {"kind": "heat", "from": from_, "to": to, "cells": cells}


@planned_once
def _busiest(rows: DataFrame, column: str) -> DataFrame:
    sums = rows.groupBy(column).agg(F.sum("messages").alias("messages"))
    return sums.orderBy(F.desc("messages"), column).limit(DOMAINS)


@planned_once
def _between(rows: DataFrame, from_: frozenset[str], to: frozenset[str]) -> DataFrame:
    def folded(column: str, known: frozenset[str]) -> Any:
        return F.when(F.col(column).isin(*known), F.col(column)).otherwise(F.lit("others")).alias(column)

    return (
        rows.select(folded("from_domain", from_), folded("to_domain", to), "messages")
        .groupBy("from_domain", "to_domain")
        .agg(F.sum("messages").alias("messages"))
    )


def bars(table: StoredTable, label: str, value: str) -> Asking:
    """
    The first rows of a table, which has the largest first.
    """
    found = yield table.head(BARS)
    return {
        "kind": "bars",
        "labels": [row[label] for row in found],
        "values": [row[value] for row in found],
        "unit": "number",
    }


def sizes(rows: DataFrame) -> Asking:
    """
    The number of messages by size and type.
    """
    found = yield _by_size(rows)
    steps = sorted({row.upto for row in found})
    series: dict[str, list[int]] = defaultdict(lambda: [0] * len(steps))
    for row in found:
        series[row.type][steps.index(row.upto)] += row.messages
    labels = [f"{step} B" if step < 1024 else f"{step // 1024} KiB" for step in steps]
    return stack(labels, dict(series), "type")


@planned_once
def _by_size(rows: DataFrame) -> DataFrame:
    return rows.orderBy("upto", "type")


def graph(edges: list[Row]) -> dict[str, Any] | None:
    """
    The edges, with sessions as nodes coloured by domain; None if there are too many to be readable.
    """
    degree: dict[str, int] = defaultdict(int)
    links: dict[tuple[str, str], int] = defaultdict(int)
    for row in edges:
        degree[row.publisher] += 1
        degree[row.observer] += 1
        links[row.publisher, row.observer] += row.publications
    if not links or len(degree) > MAX_DRAWN:
        return None
    nodes = [[name, _domain(name), number] for name, number in sorted(degree.items())]
    return {
        "kind": "graph",
        "nodes": nodes,
        "links": [[*ends, number] for ends, number in sorted(links.items())],
    }


def _domain(address: str) -> str:
    return address.partition("://")[2].partition("/")[0] or "none"
