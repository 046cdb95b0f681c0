"""
The sections of the report in their order: what is wrong, then the chapters.
"""

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
from msgnode.mining.report.silent_nodes import MAX_ROWS, silences
from msgnode.mining.report.tables import Section, Tables
from msgnode.mining.report.traffic import domains, nodes, sizes, talkers, volume
from msgnode.mining.report.units import count, share

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
# The rows of each table that are looked at.
_HEADS = {
    "ill_typed": 100, "silences": MAX_ROWS, "nodes": MAX_ROWS, "anomalies": 20, "storms": 100,
    "failures": 200, "repetitions": 200, "orphans": 1,
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
    ]
    if not about.get("period"):  # of a part it is not known where they belong
        tiles.append(["lines set aside", about["bad"], "number"])
    found, more = findings.ranked(_findings(about, series, messages, rows))
    several = "lighter ones are not listed; the sections have them"
    rest = f"{count(more, 'lighter one is not listed; the sections have it', several)}." if more else ""
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
        _by_error(tables["refusals"].rows),
        _newest(tables["talkers"].rows),
        _repeated(tables["silences"].rows),
        *[tables[name].head(most) for name, most in _HEADS.items()],
    ]


@planned_once
def _by_error(refusals: DataFrame) -> DataFrame:
    """
    For each error its messages, the time of the last one, and the domain that most came from.
    """
    error = ("outcome", "code", "reason")
    of_domain = refusals.groupBy(*error, "from_domain").agg(
        F.sum("number").alias("number"), F.max("last.time").alias("last")
    )
    most = F.max(F.struct("number", "from_domain")).alias("most")
    return of_domain.groupBy(*error).agg(F.sum("number").alias("number"), F.max("last").alias("last"), most)


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
    refused, [newest], repeated, *heads = rows
    first = dict(zip(_HEADS, heads, strict=True))
    ill_typed = first["ill_typed"]
    senders = _senders(refused) | ill_typed_senders(ill_typed, about["records"])
    now = (newest["last"] or 0) / findings.SECOND
    last = {_error(row): row.last / findings.SECOND for row in refused}
    found = findings.errors(series.errors, steps, messages, senders, last, now)
    found += findings.unanswered(series.lost, steps, series.lost_until, now)
    found += findings.slow_nodes(series.by_node, series.answers, series.recent)
    begun = {row.node: row["first"] for row in first["nodes"]}
    found += silences(first["silences"], repeated, series.nodes, begun, steps)
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
        text = "could not be read; _bad/ has the text and the reason."
        found.append(Finding(float(about["bad"]), count(about["bad"], "line"), text, "overview"))
    return found


def _senders(errors: list[Row]) -> dict[Error, str]:
    """
    For each error the domain that most of its messages came from, in words.
    """
    found = {}
    for row in errors:
        if row.most.number * 2 > row.number:
            many = "all" if row.most.number == row.number else share(row.most.number, row.number)
            found[_error(row)] = f"{many} from {row.most.from_domain}"
    return found


def _error(row: Row) -> Error:
    return row.outcome, row.code or 0, row.reason or ""
