"""
The sections of the report, in the order they are read: what stands out, then each question.
"""

from typing import Any

from pyspark.sql import DataFrame

from msgnode.mining import charts
from msgnode.mining.anomalies import FEWEST, SCORE
from msgnode.mining.sessions import STORM_LEAST, STORM_TIMES
from msgnode.mining.shown import clock, moment, table

Tables = dict[str, DataFrame]
Section = dict[str, Any]
_PERCENTS = [(name, name.replace("p999", "p99.9"), "micros") for name in ("p50", "p90", "p99", "p999")]


def sections(about: dict[str, Any], tables: Tables) -> list[Section]:
    """
    All of them, as the script of the page takes them.
    """
    about["from"], about["until"] = clock(about["begin"]), clock(about["end"])
    found = [
        _volume(tables),
        _pairs(tables),
        _talkers(tables),
        _latency(tables),
        _unanswered(tables),
        _handover(tables),
        _refusals(tables),
        _sessions(tables),
        _graph(tables),
        _sizes(tables),
        _loops(tables),
        _anomalies(tables),
        _stories(tables),
    ]
    if "decisions" in tables:
        found.append(_decisions(tables))
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


def _volume(tables: Tables) -> Section:
    return {
        "id": "volume",
        "title": "Volume",
        "text": "How many messages came in, by type; and how they were connected that sent them.",
        "chart": charts.volume(tables["volume"]),
        "tables": [
            table(
                charts.by(tables["volume"], "node", "connector", "outcome"),
                [
                    ("node", "node", "text"),
                    ("connector", "connector", "text"),
                    ("outcome", "outcome", "text"),
                    ("messages", "messages", "number"),
                    ("bytes", "bytes", "bytes"),
                    ("copies", "copies", "number"),
                ],
            )
        ],
    }


def _pairs(tables: Tables) -> Section:
    columns = [
        ("from_domain", "from", "text"),
        ("to_domain", "to", "text"),
        ("messages", "messages", "number"),
        ("bytes", "bytes", "bytes"),
        ("failed", "failed", "number"),
    ]
    return {
        "id": "domains",
        "title": "Domains",
        "text": "Which domain talks to which. The colours are logarithmic. 'node' is the node itself.",
        "chart": charts.matrix(tables["matrix"]),
        "tables": [table(tables["matrix"], columns)],
    }


def _talkers(tables: Tables) -> Section:
    senders = [
        ("address", "address", "text"),
        ("messages", "messages", "number"),
        ("bytes", "bytes", "bytes"),
        ("copies", "copies", "number"),
        ("failed", "failed", "number"),
        ("last", "last seen", "moment"),
    ]
    objects = [
        ("address", "address", "text"),
        ("publications", "publications", "number"),
        ("copies", "copies", "number"),
        ("most", "most at once", "number"),
        ("bytes_out", "bytes out", "bytes"),
    ]
    return {
        "id": "talkers",
        "title": "Talkers",
        "text": "Who sends most, and what is heard by most.",
        "chart": charts.bars(tables["talkers"], "address", "messages"),
        "tables": [
            table(tables["talkers"], senders, "Senders"),
            table(tables["objects"], objects, "Publications by fan-out"),
        ],
    }


def _latency(tables: Tables) -> Section:
    columns = [("type", "type", "text"), ("destination", "to", "text"), ("number", "answered", "number")]
    chains = [*columns[:2], ("answers", "answers", "number"), ("number", "requests", "number"), *_PERCENTS]
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
            table(tables["latency"], [*columns, *_PERCENTS]),
            table(tables["chains"], chains, "Provisional answers", "All but the last answer are provisional; "
                  "times are until the first."),
            table(tables["slowest"], slowest, "The slowest"),
        ],
    }  # fmt: skip


def _unanswered(tables: Tables) -> Section:
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


def _handover(tables: Tables) -> Section:
    columns = [("date", "day", "text"), ("node", "node", "text"), ("number", "messages", "number")]
    return {
        "id": "handover",
        "title": "The node itself",
        "text": "How long the node had a message before it handed it on.",
        "chart": charts.bands(tables["handover_by_hour"]),
        "tables": [table(tables["handover"], [*columns, *_PERCENTS])],
    }


def _refusals(tables: Tables) -> Section:
    columns = [
        ("last.time", "last", "moment"),
        ("number", "number", "number"),
        ("cause", "cause", "text"),
        ("code", "code", "number"),
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


def _sessions(tables: Tables) -> Section:
    ends = [
        ("node", "node", "text"),
        ("ended", "ended", "text"),
        ("sessions", "sessions", "number"),
        ("reconnects", "reconnects", "number"),
        ("takeovers", "takeovers", "number"),
        ("aways", "times away", "number"),
        ("away_seconds", "seconds away", "number"),
        ("longest_away_seconds", "longest", "number"),
    ]
    lengths = [("ended", "ended", "text"), ("number", "sessions", "number")]
    milliseconds = [(name, f"{label}, ms", "number") for name, label, _ in _PERCENTS]
    storms = [
        ("time", "minute", "moment"),
        ("node", "node", "text"),
        ("attached", "connections", "number"),
        ("opened", "new sessions", "number"),
        ("usual", "usual", "number"),
    ]
    restless = [
        ("session", "session", "text"),
        ("node", "node", "text"),
        ("attached", "connections", "number"),
        ("takeovers", "takeovers", "number"),
        ("last", "last seen", "moment"),
    ]
    return {
        "id": "sessions",
        "title": "Sessions",
        "text": "How sessions live and end. 'lost' began anew without an end: the node forgot it.",
        "tables": [
            table(tables["sessions"], ends),
            table(tables["lengths"], [*lengths, *milliseconds], "Lengths of whole lives"),
            table(tables["storms"], storms, "Storms", f"Minutes with at least {STORM_LEAST} connections and "
                  f"{STORM_TIMES} times as many as in the node's median minute."),
            table(tables["restless"], restless, "Sessions with most connections"),
        ],
    }  # fmt: skip


def _graph(tables: Tables) -> Section:
    number = tables["edges"].count()
    drawn = charts.graph(tables["edges"])
    size = f"All {number:,}" if number <= charts.EDGES else f"The busiest {charts.EDGES} of {number:,}"
    publications = [
        ("address", "address", "text"),
        ("publisher", "published by", "text"),
        ("publications", "publications", "number"),
        ("unheard", "heard by nobody", "number"),
        ("last", "last", "moment"),
    ]
    orphans = [
        ("address", "address", "text"),
        ("observers", "subscribers", "number"),
        ("since", "since", "moment"),
        ("example", "one of them", "text"),
    ]
    return {
        "id": "graph",
        "title": "Subscriptions",
        "text": "Who listens to whom: arrows go from the session that publishes to those that subscribed. "
        f"{size} are drawn.",
        "chart": drawn,
        "tables": [
            table(
                tables["publications"].where("unheard > 0"), publications, "Publications that nobody hears"
            ),
            table(tables["orphans"], orphans, "Subscriptions to what was never published"),
        ],
    }


def _sizes(tables: Tables) -> Section:
    columns = [
        ("type", "type", "text"),
        ("upto", "up to", "bytes"),
        ("messages", "messages", "number"),
        ("bytes", "bytes", "bytes"),
    ]
    return {
        "id": "sizes",
        "title": "Sizes",
        "text": "How large messages are, by type.",
        "chart": charts.sizes(tables["sizes"]),
        "tables": [table(tables["sizes"], columns)],
    }


def _loops(tables: Tables) -> Section:
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


def _anomalies(tables: Tables) -> Section:
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


def _stories(tables: Tables) -> Section:
    lines = [
        ("time", "time", "moment"),
        ("node", "node", "text"),
        ("type", "type", "text"),
        ("event", "event", "text"),
        ("id", "id", "text"),
        ("from", "from", "text"),
        ("to", "to", "text"),
        ("outcome", "outcome", "text"),
        ("code", "code", "number"),
        ("recipients", "copies", "number"),
        ("micros", "node took", "micros"),
    ]
    stories = tables["stories"]
    told = [
        table(
            stories.where(stories.about == row.about).orderBy("time"),
            [c for c in lines if c[0] != "recipients"],
            row.about,
        )
        for row in stories.select("about").distinct().orderBy("about").limit(10).collect()
    ]
    if "conversation" in tables:
        told.append(
            table(
                tables["conversation"], lines, "One conversation", "Its way across nodes, in order of time."
            )
        )
    return {
        "id": "stories",
        "title": "Stories",
        "text": "Line by line: what one address did. Unless --story names some: the one with most failures "
        "and the one that sent most, in the newest hours; and the exchange with most answers.",
        "tables": told,
    }


def _decisions(tables: Tables) -> Section:
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
