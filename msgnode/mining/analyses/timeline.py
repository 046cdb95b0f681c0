"""
Everything one address did, and the way of one conversation; line by line, in order.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_SHOWN = (
    "time",
    "node",
    "kind",
    "event",
    "type",
    "id",
    "from",
    "to",
    "outcome",
    "code",
    "recipients",
    "waiting",
    "bytes",
    "micros",
    "session",
    "connector",
    "peer",
)


def story(lines: DataFrame, address: str) -> DataFrame:
    """
    What did this address do, and what was done to it?  A runtime's story holds that of its session.
    """
    below = address.rstrip("/") + "/"
    named = [(F.col(c) == address) | F.col(c).startswith(below) for c in ("from", "to")]
    about = (F.col("session") == address) | named[0] | named[1] | F.array_contains("resources", address)
    return lines.where(about).select(*_SHOWN).orderBy("time", "kind", "node", "id", "event", "type")


def conversation(lines: DataFrame, id: str, one: str | None = None, other: str | None = None) -> DataFrame:
    """
    The way of a message and its answers across nodes: all with this id, between these two if they are named.
    """
    found = lines.where((F.col("kind") == "message") & (F.col("id") == id))
    if one is not None:
        found = found.where(F.col("from").isin(one, other) & F.col("to").isin(one, other))
    return found.select(*_SHOWN).orderBy("time", "type", "node")
