"""
Lines of text into rows, and what is no line of the log kept aside with the reason.

A row carries the date and the hour of its file.  The contract promises that
its time lies in that hour; whatever does not is kept aside too, because runs
that add up rely on it.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from msgnode.mining.analyses.columns import hour_of
from msgnode.mining.pipeline.schema import TRAFFIC, VERSIONS

_HOUR = r"(\d{8})T(\d{2})\.jsonl(?:\.gz)?$"
_CORRUPT = "_corrupt"
# What no node writes; one such number would overflow every sum it is in.
_MOST = {"bytes": 2**32, "recipients": 2**24, "waiting": 2**24, "micros": 2**50}
MAX_LINE_CHARS = 4096  # characters of a bad line that are kept


def parsed(text: DataFrame) -> DataFrame:
    """
    Rows of the log from rows of `value` and `path`: the columns of a line, `date`, `hour`, `why` and `text`.

    `why` is null for a good line.
    """
    shape = StructType([*TRAFFIC.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    day = F.regexp_extract("path", _HOUR, 1)
    rows = text.where(F.trim("value") != "").select(
        "value",
        "path",
        F.from_json("value", shape, options).alias("line"),
        F.concat_ws("-", day.substr(1, 4), day.substr(5, 2), day.substr(7, 2)).alias("date"),
        F.regexp_extract("path", _HOUR, 2).cast("int").alias("hour"),
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


def _why() -> Column:
    """
    Why a line is kept aside, in the words of whoever looks after the files.
    """
    line = F.col("line")
    hours = F.unix_date(F.col("date").cast("date")) * 24 + F.col("hour")
    known = line["kind"].isin("message", "session")
    bad = (
        F.when(
            line.isNull() | line[_CORRUPT].isNotNull() | ~F.ltrim("value").startswith("{"),
            "not JSON of the log",
        )
        .when(line["v"].isNull(), "no version")
        .when(~line["v"].isin(*VERSIONS), F.concat(F.lit("version "), line["v"].cast("string")))
        .when(line["kind"].isNull() | ~known, "neither message nor session")
        .when(line["time"].isNull() | line["node"].isNull(), "without time or node")
        .when((line["kind"] == "message") & line["outcome"].isNull(), "a message without outcome")
        .when(
            (line["kind"] == "session") & (line["event"].isNull() | line["session"].isNull()), "half an event"
        )
    )
    for name, most in _MOST.items():
        bad = bad.when((line[name] < 0) | (line[name] > most), F.lit(f"{name} out of range"))
    return bad.when(hour_of(line["time"]) != hours, "not of the hour of its file")
