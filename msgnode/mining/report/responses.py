"""
The report on answers: how long they took, and which never came.
"""

from msgnode.mining.report import charts
from msgnode.mining.report.tables import PERCENTS, Section, Tables, table


def answers(tables: Tables) -> Section:
    columns = [("type", "type", "text"), ("destination", "to", "text"), ("number", "answered", "number")]
    chains = [*columns[:2], ("answers", "answers", "number"), ("number", "requests", "number"), *PERCENTS]
    slowest = [
        ("time", "asked", "moment"),
        ("micros", "last answer", "micros"),
        ("answers", "answers", "number"),
        ("type", "type", "text"),
        ("asker", "from", "text"),
        ("asked", "to", "text"),
        ("id", "id", "text"),
        ("node", "node", "text"),
    ]
    return {
        "id": "answers",
        "title": "Answers",
        "text": "How long it takes from a request until its last answer, as the node saw both; "
        "an answer has the request's id and its addresses turned round.",
        "chart": charts.bands(tables["latency_by_hour"]),
        "tables": [
            table(tables["latency"], [*columns, *PERCENTS]),
            table(tables["chains"], chains, "Provisional answers", "All but the last answer are provisional; "
                  "times are until the first."),
            table(tables["slowest"], slowest, "The slowest"),
        ],
    }  # fmt: skip


def unanswered(tables: Tables) -> Section:
    columns = [
        ("address", "asked", "text"),
        ("type", "type", "text"),
        ("requests", "requests", "number"),
        ("unanswered", "unanswered", "number"),
        ("last.time", "last", "moment"),
        ("last.asker", "by", "text"),
        ("last.id", "id", "text"),
    ]
    return {
        "id": "unanswered",
        "title": "Unanswered",
        "text": "Requests that were handed on and got no answer within two minutes.",
        "tables": [table(tables["unanswered"], columns)],
    }


def handover(tables: Tables) -> Section:
    columns = [("date", "day", "text"), ("node", "node", "text"), ("number", "messages", "number")]
    return {
        "id": "handover",
        "title": "The node itself",
        "text": "How long the node had a message before it handed it on.",
        "chart": charts.bands(tables["handover_by_hour"]),
        "tables": [table(tables["handover"], [*columns, *PERCENTS])],
    }
