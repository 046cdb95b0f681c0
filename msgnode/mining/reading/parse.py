"""
Parsing: lines of text become rows. Invalid lines are set aside with a reason.

A row has the date and the hour of its file. The format promises that its time is in that hour; other lines
are set aside too, because incremental runs rely on it.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from msgnode.mining.analyses.columns import hour_of
from msgnode.mining.reading.schema import TRAFFIC, VERSIONS

_STAMP = len("20260731T00")  # a file's name ends with it, and with a suffix
_CORRUPT = "_corrupt"
# Upper limits of valid numbers; a larger one could overflow the sums.
MOST = {"bytes": 2**32, "recipients": 2**24, "waiting": 2**24, "micros": 2**50}
NO_JSON = "not JSON of the log"
LACKING = {
    "message": "a message without outcome",
    "session": "an event without 'event' or 'session'",
}
OTHER_HOUR = "its time is not in the hour of its file"
MAX_LINE_CHARS = 4096  # characters of an invalid line that are stored


def parsed(text: DataFrame) -> DataFrame:
    """
    Rows of the log from rows of `value` and `path`: the columns of a line, `date`, `hour`, `why` and `text`.

    `why` is null for a valid line.
    """
    shape = StructType([*TRAFFIC.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    stamp = _stamp()
    rows = text.where(_begins_as_object() | (F.trim("value") != "")).select(
        "value",
        "path",
        F.from_json("value", shape, options).alias("line"),
        F.concat_ws("-", stamp.substr(1, 4), stamp.substr(5, 2), stamp.substr(7, 2)).alias("date"),
        stamp.substr(10, 2).cast("int").alias("hour"),
    )
    rows = rows.select("*", _why().alias("why"))
    bad = F.col("why").isNotNull()
    return rows.select(
        *[F.col(f"line.`{field.name}`") for field in TRAFFIC.fields],
        "date",
        "hour",
        "why",
        F.when(bad, F.substring("value", 1, MAX_LINE_CHARS)).alias("text"),
        F.when(bad, F.col("path")).alias("path"),
    )


def _stamp() -> Column:
    """
    The hour in the name of a file, as 20260731T00. A regular expression would be evaluated for each line.
    """
    path = F.col("path")
    plain, packed = (F.substring(path, -_STAMP - len(end), _STAMP) for end in (".jsonl", ".jsonl.gz"))
    return F.when(path.endswith(".gz"), packed).otherwise(plain)


def _begins_as_object() -> Column:
    """
    Does the line begin as lines of a node do? This is asked first, for to trim a line copies it.
    """
    return F.col("value").startswith("{")


def _why() -> Column:
    """
    The reason why a line is set aside, for the operator; null for a valid line.
    """
    line = F.col("line")
    hours = F.unix_date(F.col("date").cast("date")) * 24 + F.col("hour")
    bad = (
        F.when(
            line.isNull()
            | line[_CORRUPT].isNotNull()
            | ~(_begins_as_object() | F.ltrim("value").startswith("{")),
            NO_JSON,
        )
        .when(line["v"].isNull(), "no version")
        .when(~line["v"].isin(*VERSIONS), F.concat(F.lit("version "), line["v"].cast("string")))
        .when(line["kind"].isNull(), "no kind")
        .when(line["time"].isNull() | line["node"].isNull(), "without time or node")
        .when((line["kind"] == "message") & line["outcome"].isNull(), LACKING["message"])
        .when(
            (line["kind"] == "session") & (line["event"].isNull() | line["session"].isNull()),
            LACKING["session"],
        )
    )
    for name, most in MOST.items():
        bad = bad.when((line[name] < 0) | (line[name] > most), F.lit(f"{name} out of range"))
    return bad.when(hour_of(line["time"]) != hours, OTHER_HOUR)
