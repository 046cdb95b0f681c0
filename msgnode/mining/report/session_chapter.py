"""
The report on who was there: sessions and their ends, who listens to whom, what one address did.
"""

from msgnode.mining.analyses.sessions import STORM_LEAST, STORM_TIMES
from msgnode.mining.report import charts
from msgnode.mining.report.tables import PERCENTS, Section, Tables, table


def sessions(tables: Tables) -> Section:
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
    milliseconds = [(name, f"{label}, ms", "number") for name, label, _ in PERCENTS]
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


def subscriptions(tables: Tables) -> Section:
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


def stories(tables: Tables) -> Section:
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
    rows = tables["stories"]
    told = [
        table(
            rows.where(rows.about == row.about).orderBy("time"),
            [c for c in lines if c[0] != "recipients"],
            row.about,
        )
        for row in rows.select("about").distinct().orderBy("about").limit(10).collect()
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
