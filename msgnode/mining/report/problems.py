"""
The report on what went wrong: refusals, loops, unusual hours, and what a policy would refuse.
"""

from msgnode.mining.analyses.anomalies import FEWEST, SCORE
from msgnode.mining.report.tables import Section, Tables, table


def refusals(tables: Tables) -> Section:
    columns = [
        ("last.time", "last", "moment"),
        ("number", "number", "number"),
        ("cause", "cause", "text"),
        ("code", "code", "number"),
        ("reason", "reason", "text"),
        ("outcome", "outcome", "text"),
        ("type", "type", "text"),
        ("from_domain", "from", "text"),
        ("destination", "to", "text"),
        ("last.from", "example from", "text"),
        ("last.to", "example to", "text"),
        ("last.id", "id", "text"),
        ("first.time", "first", "moment"),
    ]
    return {
        "id": "refusals",
        "title": "Refusals",
        "text": "What was refused, dropped or had nowhere to go, newest first, with the last as an example.",
        "tables": [table(tables["refusals"], columns)],
    }


def loops(tables: Tables) -> Section:
    columns = [
        ("date", "day", "text"),
        ("hour", "hour", "number"),
        ("address", "sender", "text"),
        ("to", "to", "text"),
        ("type", "type", "text"),
        ("failed", "failed", "number"),
        ("unanswered", "unanswered", "number"),
        ("again", "same id again", "number"),
    ]
    return {
        "id": "loops",
        "title": "Loops",
        "text": "Who failed with the same thing ten times or more in one hour.",
        "tables": [
            table(tables["failures"], columns, "Refused or without a route"),
            table(tables["repetitions"], columns, "Asked again, or without an answer"),
        ],
    }


def unusual(tables: Tables) -> Section:
    columns = [
        ("date", "day", "text"),
        ("hour", "hour", "number"),
        ("measure", "what", "text"),
        ("value", "there were", "number"),
        ("usual", "usual", "number"),
        ("score", "score", "number"),
        ("other_days", "days compared", "number"),
    ]
    return {
        "id": "anomalies",
        "title": "Unusual hours",
        "text": "Hours unlike the same hour of other days. Usual is the median of those, and the "
        "score says how many times the usual distance from it (the median absolute deviation, scaled to a "
        f"standard deviation) the hour lies away; {SCORE:g} and more are told. With fewer than {FEWEST} "
        "other days all other hours are compared, and days compared is 0.",
        "tables": [table(tables["anomalies"], columns)],
    }


def decisions(tables: Tables) -> Section:
    columns = [
        ("rule", "rule", "text"),
        ("effect", "effect", "text"),
        ("change", "change", "text"),
        ("missing", "for want of", "text"),
        ("number", "messages", "number"),
        ("last.time", "last", "moment"),
        ("last.from", "example from", "text"),
        ("last.to", "example to", "text"),
        ("last.type", "type", "text"),
    ]
    return {
        "id": "policy",
        "title": "Policy",
        "text": "What the given policy would have done to this traffic. 'undecidable': the log cannot tell.",
        "tables": [table(tables["decisions"], columns)],
    }
