"""
Clock skew between nodes, estimated from the messages that pass between them.

A message that leaves node A at A's time and arrives at node B at B's time took its way, plus the skew of B's
clock. The shortest way in each direction bounds the skew, as in NTP (RFC 5905, 8): half the difference of
both is the estimate, half their sum the error. With one direction only, the skew has one bound.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from msgnode.mining.report.units import count, duration

LEAST_NANOSECONDS = 1_000_000  # a smaller skew is not worth a word
_KEY = ("id", "from", "to", "type", "transaction")


@dataclass(frozen=True)
class Way:
    """
    The messages from one node to another: how many, and the shortest time in nanoseconds, with the skew.
    """

    number: int
    shortest: int


@dataclass(frozen=True)
class Skew:
    """
    How far the clock of a node is ahead of the reference, in nanoseconds; `error` is None if only one
    direction is known: then the clock is at least that far ahead, or behind.
    """

    ahead: int
    error: int | None
    number: int

    def words(self, node: str, reference: str) -> str:
        messages = count(self.number, "message")
        if self.error is None:
            if self.ahead < 0:
                behind = f"at least {duration(-self.ahead / 1e9)} behind that of {reference}"
                return f"the clock of {node} is {behind} ({messages}, in one direction only)"
            if self.ahead > 0:
                ahead = f"at least {duration(self.ahead / 1e9)} ahead of that of {reference}"
                return f"the clock of {node} is {ahead} ({messages}, in one direction only)"
            why = f"{messages}, in one direction only"
            return f"the clock of {node} cannot be compared with that of {reference}: {why}"
        error = f"give or take {duration(self.error / 1e9)}, from {messages}"
        if abs(self.ahead) < LEAST_NANOSECONDS:
            return f"the clocks of {node} and {reference} agree ({error})"
        where = f"{'ahead of' if self.ahead > 0 else 'behind'} that of {reference}"
        return f"the clock of {node} is {duration(abs(self.ahead) / 1e9)} {where} ({error})"


def ways(messages: DataFrame) -> dict[tuple[str, str], Way]:
    """
    The ways between nodes that these messages took.

    A message is the same at both nodes if its id, addresses, type and transaction are equal, it passed one
    link more, and no other message has the same.
    """
    hop = F.coalesce("hops", F.lit(0)).alias("hop")
    known = messages.where("transaction is not null and id is not null").select(*_KEY, hop, "node", "time")
    same = ("id", "transaction")
    left = (
        known.groupBy(*_KEY, "hop")
        .agg(F.count("*").alias("number"), F.first("node").alias("source"), F.first("time").alias("left"))
        .where("number = 1")
        .withColumn("hop", F.col("hop") + 1)
        .drop("number")
    )
    arrived = (
        known.where("hop > 0")
        .groupBy(*_KEY, "hop", "node")
        .agg(F.count("*").alias("number"), F.first("time").alias("arrived"))
        .where("number = 1")
        .drop("number")
    )
    # Addresses and types may be missing on both sides.
    on = [left[name] == arrived[name] for name in (*same, "hop")]
    on += [left[name].eqNullSafe(arrived[name]) for name in _KEY if name not in same]
    found = (
        left.join(arrived, on)
        .where("source != node")
        .groupBy("source", "node")
        .agg(F.count("*").alias("number"), F.min(F.col("arrived") - F.col("left")).alias("shortest"))
    )
    return {(row["source"], row["node"]): Way(row["number"], row["shortest"]) for row in found.collect()}


def skews(known: Mapping[tuple[str, str], Way], reference: str) -> dict[str, Skew]:
    """
    The skew of each node that can be compared with the reference, by way of others if need be.
    """
    found = {reference: Skew(0, 0, 0)}
    while True:
        candidates = []
        for node, skew in found.items():
            for other in {name for pair in known for name in pair} - set(found):
                step = _between(known.get((node, other)), known.get((other, node)))
                if step is not None and skew.error is not None:
                    error = None if step.error is None else skew.error + step.error
                    reached = Skew(skew.ahead + step.ahead, error, step.number)
                    candidates.append((error is None, error or 0, other, reached))
        if not candidates:
            return {node: skew for node, skew in found.items() if node != reference}
        *_, other, reached = min(candidates, key=lambda each: each[:3])
        found[other] = reached


def _between(there: Way | None, back: Way | None) -> Skew | None:
    """
    How far the second node's clock is ahead of the first one's.
    """
    if there is not None and back is not None:
        ahead = (there.shortest - back.shortest) // 2
        return Skew(ahead, abs(there.shortest + back.shortest) // 2, there.number + back.number)
    if there is not None:  # it took no less than no time
        return Skew(min(0, there.shortest), None, there.number)
    if back is not None:
        return Skew(max(0, -back.shortest), None, back.number)
    return None
