"""
The report on what was carried: how much, between whom, and how large.
"""

from msgnode.mining.report import charts
from msgnode.mining.report.tables import Section, Tables, table


def volume(tables: Tables) -> Section:
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


def domains(tables: Tables) -> Section:
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


def talkers(tables: Tables) -> Section:
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


def sizes(tables: Tables) -> Section:
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
