"""
The report's chapters on answers: latency, and unanswered requests.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from msgnode.mining.execution.kept_plans import planned_once
from msgnode.mining.report import charts
from msgnode.mining.report.series import Series
from msgnode.mining.report.tables import PERCENTS, Section, Tables, table


def answers(tables: Tables, series: Series) -> Section:
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
        "an answer has the request's id, and its addresses swapped.",
        "chart": charts.bands(series.recent, series.latency),
        "charts": [["The slowest hundredth (p99), by node", charts.nodes(series, "p99")]],
        "tables": [
            table(tables["latency"], [*columns, *PERCENTS], weigh=("number", "answers")),
            table(
                _by_node(tables["latency_by_node"].rows),
                [("node", "node", "text"), columns[2], *PERCENTS], "By node", "The newest hour of each node.",
            ),
            table(tables["chains"], chains, "Provisional answers", "All but the last answer are provisional; "
                  "times are until the first."),
            table(tables["slowest"], slowest, "The slowest"),
        ],
    }  # fmt: skip


def unanswered(tables: Tables, series: Series) -> Section:
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
        "text": "Requests that were delivered and got no answer within two minutes.",
        "tables": [
            table(
                tables["unanswered"],
                columns,
                weigh=("unanswered", "unanswered requests"),
                whole=series.whole("unanswered", "unanswered"),
            )
        ],
    }


def handover(tables: Tables, series: Series) -> Section:
    columns = [("date", "day", "text"), ("node", "node", "text"), ("number", "messages", "number")]
    return {
        "id": "handover",
        "title": "The node itself",
        "text": "The time between receiving and delivering a message in the node.",
        "chart": charts.bands(series.recent, series.handover),
        "tables": [table(tables["handover"], [*columns, *PERCENTS])],
    }


@planned_once
def _by_node(rows: DataFrame) -> DataFrame:
    hour = Window.partitionBy("node").orderBy(F.desc("date"), F.desc("hour"))
    return rows.withColumn("age", F.row_number().over(hour)).where("age = 1").orderBy("node")
