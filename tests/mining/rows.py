"""
Small logs by hand.
"""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from msgnode.mining.reading.schema import TRAFFIC
from tests.support.examples import TOP

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
START = 1_785_456_000 * SECOND  # 2026-07-31T00:00Z
FIRST = START // HOUR
LINES = StructType([*TRAFFIC.fields, StructField("date", StringType()), StructField("hour", IntegerType())])

# With these the log of the fixture `mined_log` is mined.
MINED_LOG_OPTIONS = (
    "--pseudonymise", "a key of sixteen", "--policy", str(TOP / "etc/policies/block-partner.json"),
)  # fmt: skip

ANN, BOB = "hyperty://a.example/ann", "hyperty://b.example/bob"


def message(seconds: float, from_: str | None = ANN, to: str | None = BOB, **more: Any) -> dict[str, Any]:
    """
    A message, so many seconds after the start.
    """
    line = {"type": "update", "id": "1", "outcome": "delivered", "bytes": 100, "recipients": 1, "waiting": 0}
    return _line("message", seconds) | line | {"from": from_, "to": to} | more


def event(seconds: float, event: str, session: str = "runtime://a.example/1", **more: Any) -> dict[str, Any]:
    """
    An event in the life of a session.
    """
    return _line("session", seconds) | {"event": event, "session": session} | more


def own(seconds: float, event: str, **more: Any) -> dict[str, Any]:
    """
    A line of a node about itself.
    """
    counts = {"started": START, "version": "1.0", "revision": "a", "messages": 0, "unlogged": 0, "lost": 0}
    return _line("node", seconds) | counts | {"event": event} | more


def _line(kind: str, seconds: float) -> dict[str, Any]:
    time = START + int(seconds * SECOND)
    day, hour = divmod(time // HOUR - FIRST, 24)
    dates = ("2026-07-31", "2026-08-01", "2026-08-02", "2026-08-03", "2026-08-04", "2026-08-05")
    return {"v": 1, "kind": kind, "node": "mn1", "time": time, "date": dates[day], "hour": hour}


def log(spark: SparkSession, *lines: dict[str, Any]) -> DataFrame:
    """
    These lines as the questions get them.
    """
    return spark.createDataFrame([tuple(line.get(name) for name in LINES.names) for line in lines], LINES)


def table(rows: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """
    The rows of an answer, in their order.
    """
    return [tuple(row) for row in (rows.select(*columns) if columns else rows).collect()]
