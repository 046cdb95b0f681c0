"""
The report's chapter on records: volume, answers and refusals of typed messages, and ill-typed senders.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Row

from msgnode.mining.report.findings import Finding
from msgnode.mining.report.series import Error, Series
from msgnode.mining.report.tables import PERCENTS, Section, Tables, moment, table
from msgnode.mining.report.units import count

_HARM = 3.0  # an ill-typed answer is as bad as none


def name_records(section: Section, names: Mapping[str, str]) -> Section:
    """
    The chapter with the names of records, where they are known, in the place of their ids.
    """
    for each in section["tables"]:
        at = [heading for heading, _ in each["columns"]].index("record")
        for row in each["rows"]:
            row[at] = names.get(row[at], row[at])
    return section


def ill_typed_senders(rows: Sequence[Row], names: Mapping[str, str]) -> dict[Error, str]:
    """
    The sender of most of the ill-typed requests, by their error; `rows` have the most messages first.
    """
    most = next((row for row in rows if row.direction == "request"), None)
    if most is None:
        return {}
    return {
        ("refused", 400, "record"): f"most from {most.address}: {most.number:,} with {_wrong(most, names)}"
    }


def ill_typed_answers(rows: Sequence[Row], names: Mapping[str, str]) -> list[Finding]:
    """
    The senders of ill-typed answers: the one who asked got an error in the place of each.
    """
    found = []
    for row in rows:
        if row.direction == "answer":
            many = count(row.number, "answer")
            text = f"did not fit, {_wrong(row, names)}; the last at {moment(row.last.time)[:19]}."
            found.append(Finding(_HARM * row.number, f"{many} from {row.address}", text, "records"))
    return found


def _wrong(row: Row, names: Mapping[str, str]) -> str:
    """
    The part that did not fit: `slot ROOM of GET_TEMPERATURE`.
    """
    name = names.get(row.record, f"record {row.record}")
    return f"slot {row.slot} of {name}" if row.slot else name


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
        "text": "Messages that name a record. Ill-typed are those that do not fit the definition; "
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
