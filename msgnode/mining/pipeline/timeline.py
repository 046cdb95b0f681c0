"""
Timelines: all lines of one address, and all lines of one conversation, in order.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from msgnode.mining.execution.kept_plans import planned_once

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


def address_timeline(lines: DataFrame, address: str) -> DataFrame:
    """
    What did this address do, and what was done to it? For a runtime, this includes its session.
    """
    below = address.rstrip("/") + "/"
    named = [(F.col(c) == address) | F.col(c).startswith(below) for c in ("from", "to")]
    about = (F.col("session") == address) | named[0] | named[1] | F.array_contains("resources", address)
    return (
        lines.where(about)
        .select(*_SHOWN)
        .orderBy("time", "kind", "node", "id", "event", "type", "session", "from", "to")
    )


@planned_once
def conversation(lines: DataFrame, id: str, one: str | None = None, other: str | None = None) -> DataFrame:
    """
    The lines of a message and its responses at all nodes: those with this id and between two addresses, or,
    without addresses, those with this id or transaction.
    """
    same = F.col("id") == id
    if one is None:
        same |= F.col("transaction") == id
    found = lines.where((F.col("kind") == "message") & same)
    if one is not None:
        found = found.where(F.col("from").isin(one, other) & F.col("to").isin(one, other))
    return found.select(*_SHOWN).orderBy("time", "type", "node", "from", "to", "outcome")
