"""
The report's chapters on problems: refusals, loops, unusual hours, and replayed policies.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.anomalies import MIN_DAYS, SCORE
from msgnode.mining.execution.kept_plans import planned_once
from msgnode.mining.report import charts
from msgnode.mining.report.series import Series
from msgnode.mining.report.tables import Section, Tables, table


def refusals(tables: Tables, series: Series) -> Section:
    columns = [
        ("number", "number", "number"),
        ("code", "code", "number"),
        ("reason", "reason", "text"),
        ("cause", "in words", "text"),
        ("outcome", "outcome", "text"),
        ("type", "type", "text"),
        ("from_domain", "from domain", "text"),
        ("destination", "to domain", "text"),
        ("first.time", "first", "moment"),
        ("last.time", "last", "moment"),
        ("last.from", "last from", "text"),
        ("last.to", "last to", "text"),
        ("last.id", "last id", "text"),
    ]
    return {
        "id": "errors",
        "title": "Errors",
        "text": f"Messages that were refused, dropped or had no route: by code and {series.steps.unit}, "
        "and by cause, the most frequent first, with the last example.",
        "chart": charts.errors(series),
        "tables": [
            table(
                _refused(tables["refusals"].rows),
                columns,
                weigh=("number", "messages"),
            )
        ],
    }


@planned_once
def _refused(rows: DataFrame) -> DataFrame:
    code = F.nullif("code", F.lit(0))
    return rows.withColumn("code", code).orderBy(F.desc("number"), F.desc("last.time"))


def loops(tables: Tables, series: Series) -> Section:
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
        "text": "Senders that failed with the same message ten times or more in one hour.",
        "tables": [
            table(
                tables["failures"],
                columns,
                "Refused or without a route",
                weigh=("failed", "failures"),
                whole=series.whole("failures", "failed"),
            ),
            table(
                tables["repetitions"],
                columns,
                "Repeated, or without an answer",
                weigh=("unanswered", "unanswered requests"),
                whole=series.whole("repetitions", "unanswered"),
            ),
        ],
    }


def unusual(tables: Tables, series: Series) -> Section:
    columns = [
        ("date", "day", "text"),
        ("hour", "hour", "number"),
        ("scope", "of", "text"),
        ("name", "which", "text"),
        ("measure", "what", "text"),
        ("value", "there were", "number"),
        ("usual", "usual", "number"),
        ("score", "score", "number"),
        ("compared", "compared with", "text"),
        ("others", "hours compared", "number"),
    ]
    return {
        "id": "anomalies",
        "title": "Unusual hours",
        "text": "Hours unlike the same hour of other days. Usual is the median of those, and the "
        "score says how many times the usual distance from it (the median absolute deviation, scaled to a "
        f"standard deviation) the hour is away; {SCORE:g} and more are reported. An hour is compared with "
        f"the same hour of the same weekday; with fewer than {MIN_DAYS} of those, of all days, else with all "
        "hours.",
        "tables": [table(tables["anomalies"], columns)],
    }


def decisions(tables: Tables, series: Series) -> Section:
    columns = [
        ("rule", "rule", "text"),
        ("effect", "effect", "text"),
        ("change", "change", "text"),
        ("missing", "missing attribute", "text"),
        ("number", "messages", "number"),
        ("last.time", "last", "moment"),
        ("last.from", "example from", "text"),
        ("last.to", "example to", "text"),
        ("last.type", "type", "text"),
    ]
    return {
        "id": "policy",
        "title": "Policy",
        "text": "What the policy would have done to this traffic. 'undecidable': the log has too little.",
        "tables": [table(tables["decisions"], columns, weigh=("number", "messages"))],
    }
