"""
What the charts of the report show: a few hundred numbers each, whatever the size of the log.
"""

from collections import defaultdict
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.columns import FAILED
from msgnode.mining.report.tables import latest

HOURS = 24 * 45  # more than that is shown by day
DOMAINS = 20  # to each side of the heat map
BARS = 15
EDGES = 150


def totals(rows: DataFrame, *names: str) -> dict[str, int]:
    """
    The sums of a table; without names those of the volume.
    """
    if names:
        found = rows.agg(*[F.sum(name).alias(name) for name in names]).first()
    else:
        lost = F.sum(F.when(F.col("outcome").isin(*FAILED), F.col("messages")).otherwise(F.lit(0)))
        sums = [F.sum(name).alias(name) for name in ("messages", "bytes", "copies")]
        found = rows.agg(*sums, lost.alias("failed")).first()
    return {name: value or 0 for name, value in (found.asDict() if found else {}).items()}


def by(volume: DataFrame, *keys: str) -> DataFrame:
    """
    The volume grouped otherwise, the most first.
    """
    sums = [F.sum(name).alias(name) for name in ("messages", "bytes", "copies")]
    return volume.groupBy(*keys).agg(*sums).orderBy(F.desc("messages"), *keys)


def volume(rows: DataFrame) -> dict[str, Any]:
    """
    Messages by type, in each hour or each day.
    """
    hour = F.format_string("%s %02d:00", "date", "hour")
    long = rows.select("date", "hour").distinct().count() > HOURS
    label = F.col("date") if long else hour
    summed = rows.groupBy(label.alias("label"), "type").agg(F.sum("messages").alias("messages"))
    found = latest(summed, "label", "type", most=HOURS * 16)
    labels = sorted({row.label for row in found})
    series: dict[str, list[int]] = defaultdict(lambda: [0] * len(labels))
    at = {label: index for index, label in enumerate(labels)}
    for row in found:
        series[row.type][at[row.label]] = row.messages
    ordered = sorted(series.items(), key=lambda item: -sum(item[1]))
    return {"kind": "stack", "labels": labels, "series": dict(ordered), "unit": "number"}


def bands(rows: DataFrame) -> dict[str, Any]:
    """
    Percentiles of each hour, of the last hours.
    """
    found = latest(rows, "date", "hour", most=HOURS)
    return {
        "kind": "bands",
        "labels": [f"{row.date} {row.hour:02}:00" for row in found],
        "series": {name: [row[name] for row in found] for name in ("p50", "p90", "p99")},
        "unit": "micros",
    }


def matrix(rows: DataFrame) -> dict[str, Any]:
    """
    The busiest domains against each other; what is left is `others`.
    """

    def busiest(column: str) -> list[str]:
        sums = rows.groupBy(column).agg(F.sum("messages").alias("messages"))
        return [row[0] for row in sums.orderBy(F.desc("messages"), column).limit(DOMAINS).collect()]

    from_, to = busiest("from_domain"), busiest("to_domain")

    def folded(column: str, known: list[str]) -> Any:
        return F.when(F.col(column).isin(known), F.col(column)).otherwise(F.lit("others")).alias(column)

    found = (
        rows.select(folded("from_domain", from_), folded("to_domain", to), "messages")
        .groupBy("from_domain", "to_domain")
        .agg(F.sum("messages").alias("messages"))
        .collect()
    )
    from_ += ["others"] * any(row.from_domain == "others" for row in found)
    to += ["others"] * any(row.to_domain == "others" for row in found)
    cells = sorted([to.index(row.to_domain), from_.index(row.from_domain), row.messages] for row in found)
    return {"kind": "heat", "from": from_, "to": to, "cells": cells}


def bars(rows: DataFrame, label: str, value: str) -> dict[str, Any]:
    """
    The first few of a table.
    """
    found = rows.orderBy(F.desc(value), label).limit(BARS).collect()
    return {
        "kind": "bars",
        "labels": [row[label] for row in found],
        "values": [row[value] for row in found],
        "unit": "number",
    }


def sizes(rows: DataFrame) -> dict[str, Any]:
    """
    How many messages there are of each size, by type.
    """
    found = rows.orderBy("upto", "type").collect()
    steps = sorted({row.upto for row in found})
    series: dict[str, list[int]] = defaultdict(lambda: [0] * len(steps))
    for row in found:
        series[row.type][steps.index(row.upto)] += row.messages
    labels = [f"{step} B" if step < 1024 else f"{step // 1024} KiB" for step in steps]
    return {"kind": "stack", "labels": labels, "series": dict(series), "unit": "number"}


def graph(edges: DataFrame) -> dict[str, Any] | None:
    """
    The busiest edges, with the sessions at their ends coloured by domain.
    """
    found = edges.limit(EDGES).collect()
    if not found:
        return None
    degree: dict[str, int] = defaultdict(int)
    links: dict[tuple[str, str], int] = defaultdict(int)
    for row in found:
        degree[row.publisher] += 1
        degree[row.observer] += 1
        links[row.publisher, row.observer] += row.publications
    nodes = [[name, _domain(name), number] for name, number in sorted(degree.items())]
    return {
        "kind": "graph",
        "nodes": nodes,
        "links": [[*ends, number] for ends, number in sorted(links.items())],
    }


def _domain(address: str) -> str:
    return address.partition("://")[2].partition("/")[0] or "none"
