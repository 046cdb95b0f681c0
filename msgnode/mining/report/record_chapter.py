"""
The report's chapter on records: volume, answers and refusals of typed messages, and ill-typed senders.
"""

from msgnode.mining.report.series import Series
from msgnode.mining.report.tables import PERCENTS, Section, Tables, table


def records(tables: Tables, series: Series) -> Section:
    which = [("record", "record", "text"), ("direction", "direction", "text")]
    volume = [
        *which,
        ("messages", "messages", "number"),
        ("bytes", "bytes", "bytes"),
        ("copies", "copies", "number"),
        ("failed", "refused or no route", "number"),
        ("ill_typed", "ill-typed", "number"),
    ]
    latency = [
        which[0],
        ("requests", "requests", "number"),
        ("unanswered", "unanswered", "number"),
        *PERCENTS,
    ]
    senders = [
        ("address", "sender", "text"),
        *which,
        ("slot", "slot", "text"),
        ("number", "messages", "number"),
        ("last.time", "last", "moment"),
        ("last.to", "last to", "text"),
        ("last.id", "last id", "text"),
    ]
    causes = [
        *which,
        ("code", "code", "number"),
        ("reason", "reason", "text"),
        ("outcome", "outcome", "text"),
        ("number", "messages", "number"),
    ]
    return {
        "id": "records",
        "title": "Records",
        "text": "Messages that name a record, by its id. Ill-typed are those that do not fit the definition; "
        "an answer that is ill-typed becomes an error for the client that asked.",
        "tables": [
            table(tables["records"], volume, weigh=("messages", "messages")),
            table(
                tables["ill_typed"],
                senders,
                "Ill-typed senders",
                weigh=("number", "messages"),
                whole=series.whole("ill_typed", "number"),
            ),
            table(tables["record_latency"], latency, "Answers by record", weigh=("requests", "requests")),
            table(tables["record_refusals"], causes, "Errors by record", weigh=("number", "messages")),
        ],
    }
