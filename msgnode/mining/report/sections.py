"""
The sections of the report, in the order they are read: what stands out, then chapter by chapter.
"""

from typing import Any

from msgnode.mining.report import charts
from msgnode.mining.report.problems import decisions, loops, refusals, unusual
from msgnode.mining.report.responses import answers, handover, unanswered
from msgnode.mining.report.session_chapter import sessions, stories, subscriptions
from msgnode.mining.report.tables import Section, Tables, clock, moment
from msgnode.mining.report.traffic import domains, sizes, talkers, volume

# As they are read, after the overview; what a policy would have done comes last, where one was given.
SECTIONS = (
    volume,
    domains,
    talkers,
    answers,
    unanswered,
    handover,
    refusals,
    sessions,
    subscriptions,
    sizes,
    loops,
    unusual,
    stories,
)


def sections(about: dict[str, Any], tables: Tables) -> list[Section]:
    """
    All of them, as the script of the page takes them.
    """
    about["from"], about["until"] = clock(about["begin"]), clock(about["end"])
    found = [section(tables) for section in SECTIONS]
    if "decisions" in tables:
        found.append(decisions(tables))
    return [_overview(about, tables), *found]


def _overview(about: dict[str, Any], tables: Tables) -> Section:
    total = charts.totals(tables["volume"])
    answers = charts.totals(tables["unanswered"], "unanswered")["unanswered"]
    messages = total["messages"]
    tiles = [
        ["messages", messages, "number"],
        ["bytes received", total["bytes"], "bytes"],
        ["copies delivered", total["copies"], "number"],
        ["refused or no route", (total["failed"] / messages) if messages else 0, "share"],
        ["requests unanswered", answers, "number"],
        ["lines set aside", about["bad"], "number"],
    ]
    text = "What an operator would want to know first; the sections below have the rest."
    return {
        "id": "overview",
        "title": "At a glance",
        "text": text,
        "tiles": tiles,
        "striking": _striking(tables),
    }


def _striking(tables: Tables) -> list[list[str]]:
    """
    One sentence for each thing that somebody should look at, the first few of each kind.
    """
    found = []
    for row in tables["anomalies"].limit(4).collect():
        found.append(
            [
                f"{row.date} {row.hour:02}:00: {row.value:,} {row.measure}",
                f"where {row.usual:,.0f} would be usual.",
            ]
        )
    for row in tables["storms"].limit(3).collect():
        text = f"connections came in one minute to {row.node}; usual are {row.usual:,.0f}."
        found.append([f"{moment(row.time)[:16]}: {row.attached:,}", text])
    for row in tables["failures"].limit(3).collect():
        found.append([row.address, f"failed {row.failed:,} times in an hour with {row.type} to {row.to}."])
    for row in tables["repetitions"].limit(3).collect():
        found.append(
            [row.address, f"asked {row.to} again and again: {row.unanswered:,} unanswered in an hour."]
        )
    for row in tables["orphans"].limit(1).collect():
        found.append([row.address, f"is subscribed by {row.observers:,} and was never published to."])
    return found
