"""
The report's chapters on traffic: volume, domains, talkers, sizes.
"""

from msgnode.mining.report import charts
from msgnode.mining.report.series import Series
from msgnode.mining.report.tables import Section, Tables, table


def volume(tables: Tables, series: Series) -> Section:
    return {
        "id": "volume",
        "title": "Volume",
        "text": f"Messages by type and {series.steps.unit}, and the connectors of their senders.",
        "chart": charts.stack(series.steps.labels(), series.types, "type"),
        "tables": [
            table(
                charts.by(tables["volume"].rows, "node", "connector", "outcome"),
                [
                    ("node", "node", "text"),
                    ("connector", "connector", "text"),
                    ("outcome", "outcome", "text"),
                    ("messages", "messages", "number"),
                    ("bytes", "bytes", "bytes"),
                    ("copies", "copies", "number"),
                ],
                weigh=("messages", "messages"),
            )
        ],
    }


def nodes(tables: Tables, series: Series) -> Section:
    """
    The nodes side by side: how many messages each logged, and when it was silent.
    """
    known = [
        ("node", "node", "text"),
        ("first", "first line", "minute"),
        ("last", "last line", "minute"),
        ("version", "version", "text"),
        ("starts", "starts", "number"),
        ("unlogged", "messages not logged", "number"),
        ("lost", "lines lost", "number"),
    ]
    silent = [
        ("node", "node", "text"),
        ("since", "since", "minute"),
        ("until", "until", "minute"),
        ("minutes", "for", "minutes"),
        ("why", "why", "text"),
    ]
    return {
        "id": "nodes",
        "title": "Nodes",
        "text": f"The number of messages that each node logged, by {series.steps.unit}.",
        "chart": charts.stack(
            series.steps.labels(), dict(list(series.nodes.items())[: charts.LINES]), "node"
        ),
        "tables": [
            table(tables["nodes"], known),
            table(
                tables["silences"], silent, "Silent nodes", "'outage': a node that writes a line about "
                "itself each minute did not; 'no lines': one that writes no such lines, and perhaps had "
                "nothing to do.",
            ),
        ],
    }  # fmt: skip


def domains(tables: Tables, series: Series) -> Section:
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
        "text": "Messages between domains. 'node' is the node itself.",
        "chart": charts.matrix(tables["matrix"].rows),
        "tables": [table(tables["matrix"], columns, weigh=("messages", "messages"))],
    }


def talkers(tables: Tables, series: Series) -> Section:
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
        "text": "The busiest senders, and the publications with the largest fan-out.",
        "chart": charts.bars(tables["talkers"], "address", "messages"),
        "tables": [
            table(
                tables["talkers"],
                senders,
                "Senders",
                weigh=("messages", "messages"),
                whole=series.whole("talkers", "messages"),
            ),
            table(
                tables["objects"],
                objects,
                "Publications by fan-out",
                weigh=("copies", "copies"),
                whole=series.whole("objects", "copies"),
            ),
        ],
    }


def sizes(tables: Tables, series: Series) -> Section:
    columns = [
        ("type", "type", "text"),
        ("upto", "up to", "bytes"),
        ("messages", "messages", "number"),
        ("bytes", "bytes", "bytes"),
    ]
    return {
        "id": "sizes",
        "title": "Sizes",
        "text": "The sizes of messages, by type.",
        "chart": charts.sizes(tables["sizes"].rows),
        "tables": [table(tables["sizes"], columns)],
    }
