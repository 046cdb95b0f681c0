"""
The sections of the report in their order: what is wrong, then the chapters.
"""

from collections import defaultdict
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from msgnode.mining.execution.gathering import Asking, served
from msgnode.mining.execution.kept_plans import planned_once
from msgnode.mining.report import charts, findings
from msgnode.mining.report.findings import Finding
from msgnode.mining.report.problems import decisions, loops, refusals, unusual
from msgnode.mining.report.record_chapter import (
    ill_typed_answers,
    ill_typed_senders,
    name_records,
    records,
)
from msgnode.mining.report.responses import answers, handover, unanswered
from msgnode.mining.report.series import Error, Series
from msgnode.mining.report.session_chapter import sessions, stories, subscriptions
from msgnode.mining.report.tables import Section, Tables
from msgnode.mining.report.traffic import domains, nodes, sizes, talkers, volume
from msgnode.mining.report.units import share

# The order after the overview: problems first. The chapter on a replayed policy comes last.
SECTIONS = (
    refusals,
    unanswered,
    answers,
    records,
    nodes,
    volume,
    domains,
    talkers,
    loops,
    unusual,
    sessions,
    handover,
    subscriptions,
    sizes,
)
_CAUSES = 1000  # of refusals, to find out who sent most
# The rows of each table that are looked at.
_HEADS = {
    "ill_typed": 100, "silences": 1000, "anomalies": 20, "storms": 100, "failures": 200, "repetitions": 200,
    "orphans": 1,
}  # fmt: skip


def sections(about: dict[str, Any], tables: Tables, series: Series) -> list[Section]:
    """
    All sections, as the page's script reads them.
    """
    asked: list[Any] = [section(tables, series) for section in SECTIONS]
    if "stories" in tables:
        asked.append(stories(tables, series))
    if "decisions" in tables:
        asked.append(decisions(tables, series))
    found: list[Section] = served([_overview(about, tables, series), *asked])
    name_records(found[1 + SECTIONS.index(records)], about["records"])
    return found


def _overview(about: dict[str, Any], tables: Tables, series: Series) -> Asking:
    # Asked together: each round is an execution.
    [[total], [requests], *rows] = yield [
        charts.totals(tables["volume"].rows),
        charts.totals(tables["answered"].rows, "requests", "unanswered"),
        *_of_findings(tables),
    ]
    messages = total["messages"] or 0
    tiles = [
        ["messages", messages, "number"],
        ["bytes received", total["bytes"] or 0, "bytes"],
        ["copies delivered", total["copies"] or 0, "number"],
        ["refused or no route", (total["failed"] / messages) if messages else 0, "share"],
        ["requests unanswered", requests["unanswered"] or 0, "number"],
        ["of requests", requests["requests"] or 0, "number"],
        ["lines set aside", about["bad"], "number"],
    ]
    found, more = findings.ranked(_findings(about, series, messages, rows))
    rest = f"{more} lighter ones are not listed; the sections have them." if more else ""
    return {
        "id": "overview",
        "title": "What is wrong",
        "text": "By weight: how many messages are concerned, and how badly; what goes on counts double.",
        "tiles": tiles,
        "striking": [[each.word, each.text, each.section, each.goes_on] for each in found],
        "more": rest,
    }


def _of_findings(tables: Tables) -> list[Any]:
    """
    The queries for `_findings`.
    """
    return [
        tables["refusals"].head(_CAUSES),
        _newest(tables["talkers"].rows),
        _repeated(tables["silences"].rows),
        *[tables[name].head(most) for name, most in _HEADS.items()],
    ]


@planned_once
def _newest(talkers: DataFrame) -> DataFrame:
    return talkers.agg(F.max("last").alias("last"))


@planned_once
def _repeated(silences: DataFrame) -> DataFrame:
    ended = silences.where("until is not null").groupBy("node", "why")
    return ended.agg(F.count("*").alias("number"), F.sum("minutes").alias("minutes"))


def _findings(about: dict[str, Any], series: Series, messages: int, rows: list[list[Row]]) -> list[Finding]:
    """
    All findings, in no order.
    """
    steps = series.steps
    causes, [newest], repeated, *heads = rows
    first = dict(zip(_HEADS, heads, strict=True))
    ill_typed = first["ill_typed"]
    senders = _senders(causes) | ill_typed_senders(ill_typed, about["records"])
    ages = _ages(causes, newest["last"] or 0)
    found = findings.errors(series.errors, steps, messages, senders, ages)
    found += findings.unanswered(series.lost, steps)
    found += findings.slow_nodes(series.by_node, series.answers, series.recent)
    found += findings.silences(first["silences"], repeated, series.nodes, steps)
    found += findings.unusual(first["anomalies"])
    found += findings.storms(first["storms"])
    found += findings.loops(
        first["failures"],
        "failed",
        lambda number, row: f"failed {number:,} times with {row.type} to {row.to}",
    )
    found += findings.loops(
        first["repetitions"],
        "unanswered",
        lambda number, row: f"repeated {row.type} to {row.to}: {number:,} unanswered",
    )
    for row in first["orphans"]:
        text = f"is subscribed by {row.observers:,} and was never published to."
        found.append(Finding(0.1 * row.observers, row.address, text, "graph"))
    found += ill_typed_answers(ill_typed, about["records"])
    if about["bad"]:
        text = "could not be read; they are in _bad/, with the reason."
        found.append(Finding(float(about["bad"]), f"{about['bad']:,} lines", text, "overview"))
    return found


def _ages(causes: list[Row], newest: int) -> dict[Error, float]:
    """
    How many seconds before the newest message the last message with each error came.
    """
    found: dict[Error, float] = {}
    for row in causes:
        error = row.outcome, row.code or 0, row.reason or ""
        age = max(0, newest - row["last"]["time"]) / findings.SECOND
        found[error] = min(age, found.get(error, age))
    return found


def _senders(causes: list[Row]) -> dict[Error, str]:
    """
    For each error the domain that most of its messages came from, in words.
    """
    rows: dict[Error, list[Row]] = defaultdict(list)
    for row in causes:
        rows[row.outcome, row.code or 0, row.reason or ""].append(row)
    found = {}
    for error, own in rows.items():
        domains: dict[str, int] = defaultdict(int)
        for row in own:
            domains[row.from_domain] += row.number
        domain, most = max(domains.items(), key=lambda item: (item[1], item[0]))
        number = sum(domains.values())
        if most * 2 > number:
            many = "all" if most == number else share(most, number)
            found[error] = f"{many} from {domain}"
    return found
