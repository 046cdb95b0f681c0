"""
A conversation: the messages of one transaction, at all nodes, in the order of corrected time.
"""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from msgnode.mining.mined.clock_skew import Skew, skews, ways
from msgnode.mining.report.tables import moment
from msgnode.mining.report.units import count, duration

MAX_LINES = 1000
AROUND_NANOSECONDS = 1800 * 1_000_000_000  # of the log before and after, for the clocks
_SHOWN = (
    "time",
    "node",
    "type",
    "id",
    "transaction",
    "from",
    "to",
    "outcome",
    "code",
    "reason",
    "hops",
    "micros",
)


@dataclass(frozen=True)
class Conversation:
    """
    The lines of a conversation, each with `corrected`, the time by the clock of the first node.

    `cut`: it has more lines.
    """

    lines: list[dict[str, Any]]
    reference: str
    skews: dict[str, Skew]
    cut: bool = False

    def text(self) -> list[str]:
        """
        The conversation as lines of text: the clocks, then the messages.
        """
        if not self.lines:
            return ["no such conversation"]
        nodes = sorted({line["node"] for line in self.lines} - {self.reference})
        begin = self.lines[0]["corrected"]
        last = self.lines[-1]["corrected"]
        of = f"{count(len(self.lines), 'line')} at {count(1 + len(nodes), 'node')}"
        found = [
            f"{of}, {duration((last - begin) / 1e9)}, from {moment(begin)} UTC (clock of {self.reference})"
        ]
        for node in nodes:
            skew = self.skews.get(node)
            if skew is None:
                found.append(
                    f"the clock of {node} cannot be compared: no other message passed between the nodes"
                )
            else:
                found.append(skew.words(node, self.reference))
        found.append("")
        width = max(len(line["node"]) for line in self.lines)
        for line in self.lines:
            after = f"+{duration((line['corrected'] - begin) / 1e9)}" if line["corrected"] != begin else "0"
            error = " ".join(str(line[name]) for name in ("code", "reason") if line[name] is not None)
            way = f"{line['from'] or '-'} -> {line['to'] or '-'}"
            took = f", {duration(line['micros'] / 1e6)} in the node" if line["micros"] else ""
            outcome = f"{line['outcome']} {error}".rstrip()
            found.append(
                f"{after:>12}  {line['node']:{width}}  {line['type']} {line['id']}  {way}  {outcome}{took}"
            )
        if self.cut:
            found.append(f"only the first {MAX_LINES:,} lines; the time narrows it: --from, --to")
        return found

    def as_dict(self) -> dict[str, Any]:
        return {
            "reference": self.reference,
            "clocks": {node: vars(skew) for node, skew in self.skews.items()},
            "lines": self.lines,
            "cut": self.cut,
        }


def follow(messages: DataFrame, name: str) -> Conversation:
    """
    The conversation with this transaction, or of messages with this id, among the messages.
    """
    found = messages.where((F.col("transaction") == name) | (F.col("id") == name))
    rows = found.select(*_SHOWN).orderBy("time", "node", "type").limit(MAX_LINES + 1).collect()
    lines = [row.asDict() for row in rows[:MAX_LINES]]
    if not lines:
        return Conversation([], "", {})
    nodes = {line["node"] for line in lines}
    # The first node is that where the message had passed no link, whatever the clocks say.
    reference = min(lines, key=lambda line: (line["hops"] or 0, line["time"]))["node"]
    known = {}
    if len(nodes) > 1:
        first, last = lines[0]["time"] - AROUND_NANOSECONDS, lines[-1]["time"] + AROUND_NANOSECONDS
        known = skews(ways(messages.where(F.col("time").between(first, last))), reference)
    return arranged(lines, reference, known, cut=len(rows) > MAX_LINES)


def arranged(
    lines: list[dict[str, Any]], reference: str, known: dict[str, Skew], cut: bool = False
) -> Conversation:
    """
    The lines in the order of corrected time.
    """
    for line in lines:
        skew = known.get(line["node"])
        line["corrected"] = line["time"] - (skew.ahead if skew else 0)
    ordered = sorted(lines, key=lambda line: (line["corrected"], line["hops"] or 0, line["node"]))
    return Conversation(ordered, reference, known, cut)
