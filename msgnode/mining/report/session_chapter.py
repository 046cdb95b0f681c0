"""
The report's chapters on sessions: their ends, the subscription graph, and timelines.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.sessions import STORM_LEAST, STORM_TIMES
from msgnode.mining.execution.gathering import Asking
from msgnode.mining.execution.kept_plans import planned_once, where
from msgnode.mining.report import charts
from msgnode.mining.report.series import Series
from msgnode.mining.report.tables import PERCENTS, Section, Tables, counted_rows, table

EDGES = 60  # to draw
MAX_TOLD = 500  # lines of a timeline that was not requested


def sessions(tables: Tables, series: Series) -> Section:
    ends = [
        ("node", "node", "text"),
        ("ended", "ended", "text"),
        ("sessions", "sessions", "number"),
        ("reconnects", "reconnects", "number"),
        ("takeovers", "takeovers", "number"),
        ("aways", "times away", "number"),
        ("away_seconds", "time away", "seconds"),
        ("longest_away_seconds", "longest", "seconds"),
    ]
    lengths = [("ended", "ended", "text"), ("number", "sessions", "number")]
    milliseconds = [(name, label, "millis") for name, label, _ in PERCENTS]
    storms = [
        ("time", "minute", "minute"),
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
        "text": "The lifetimes of sessions, and how they end. 'lost': a new one began without it.",
        "tables": [
            table(tables["sessions"], ends),
            table(tables["lengths"], [*lengths, *milliseconds], "Lengths of complete lifetimes"),
            table(tables["storms"], storms, "Storms", f"Minutes with at least {STORM_LEAST} connections and "
                  f"{STORM_TIMES} times as many as in the node's median minute."),
            table(tables["restless"], restless, "Sessions with most connections", 
                  weigh=("attached", "connections"),
                  whole=series.whole("restless", "attached")),
        ],
    }  # fmt: skip


def subscriptions(tables: Tables, series: Series) -> Asking:
    [counted], busiest = yield [
        counted_rows(tables["edges"].rows), tables["edges"].head(EDGES)
    ]  # fmt: skip
    number = counted["rows"]
    drawn = charts.graph(busiest) if number <= EDGES else None
    if number == 0:
        about = "There are none between two sessions."
    elif drawn:
        about = "Arrows go from a publishing session to its subscribers."
    else:
        about = f"{number:,} pairs of a publisher and a subscriber are too many to draw; see the table."
    edges = [
        ("address", "address", "text"),
        ("publisher", "published by", "text"),
        ("observer", "subscribed by", "text"),
        ("publications", "publications", "number"),
    ]
    publications = [
        ("address", "address", "text"),
        ("publisher", "published by", "text"),
        ("publications", "publications", "number"),
        ("unheard", "without recipients", "number"),
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
        "text": f"Who publishes to whom. {about}",
        "chart": drawn,
        "tables": [
            table(tables["edges"], edges, "Publishers and subscribers", most=50),
            table(
                where(tables["publications"].rows, "unheard > 0"),
                publications,
                "Publications without recipients",
                weigh=("unheard", "publications without recipients"),
            ),
            table(
                tables["orphans"],
                orphans,
                "Subscriptions without publications",
                weigh=("observers", "subscribers"),
                whole=series.whole("orphans", "observers"),
            ),
        ],
    }


def stories(tables: Tables, series: Series) -> Asking:
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
    rows = tables["stories"].rows
    addresses = yield _addresses(rows)
    told = [
        table(
            _about(rows, row.about),
            [c for c in lines if c[0] != "recipients"],
            row.about,
            cut=MAX_TOLD,
        )
        for row in addresses
    ]
    if "conversation" in tables:
        told.append(
            table(
                tables["conversation"],
                lines,
                "One conversation",
                "Its path across nodes, in order of time.",
                cut=MAX_TOLD,
            )
        )
    return {
        "id": "stories",
        "title": "Timelines",
        "text": "Line by line: what one address did. Unless --story names others: the one with most failures "
        "and the one that sent most, in the newest hours; and the exchange with most answers.",
        "tables": told,
    }


@planned_once
def _addresses(rows: DataFrame) -> DataFrame:
    return rows.select("about").distinct().orderBy("about").limit(10)


@planned_once
def _about(rows: DataFrame, address: str) -> DataFrame:
    return rows.where(F.col("about") == address).orderBy("time")
