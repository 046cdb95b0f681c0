"""
The comparison of two periods, or of two nodes: what changed most, in words and in tables.

Counts are compared as rates per hour, because periods may differ in length. A change counts if it is unlikely
by chance: the difference of two counts in its standard deviations (Poisson), and at least a fifth.
"""

from dataclasses import dataclass
from math import log2, sqrt

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from msgnode.mining.analyses.analysis import Source
from msgnode.mining.analyses.columns import percentiles
from msgnode.mining.analyses.latency import LATENCY
from msgnode.mining.mined.period import Period
from msgnode.mining.report.findings import error_name
from msgnode.mining.report.units import count, duration, share
from msgnode.mining.sql.expressions import ERRORS, domain, kind

MAX_KEYS = 200  # of each kind, the largest of both periods
LEAST_SIGMA, LEAST_RATIO = 5.0, 1.2
LEAST_ANSWERS = 20  # in both periods, for a comparison of latencies
LEAST_LATENCY_RATIO = 1.5
# The weight of a change in each measure; one in volume has 1.
_MATTERS = {"error": 3.0, "unanswered": 3.0, "latency": 2.0, "session": 1.5}


@dataclass(frozen=True)
class Change:
    """
    A measure in both periods. Counts are per hour, latencies in microseconds, shares from 0 to 1.

    `score` orders changes; 0 for one that may be chance.
    """

    measure: str
    key: str
    unit: str
    a: float | None
    b: float | None
    score: float

    def words(self) -> str:
        """
        The change as a sentence.
        """
        name = {
            "error": "errors", "type": "messages of type", "node": "messages at", "domain": "messages from",
            "session": "sessions", "latency": "p99 of answers to", "unanswered": "unanswered requests to",
            "sender": "messages of",
        }[self.measure]  # fmt: skip
        if self.a == self.b:
            how = f"as before: {self._said(self.b)}"
        elif not self.a:
            how = f"new: {self._said(self.b)}"
        elif not self.b:
            how = f"none any more: before {self._said(self.a)}"
        else:
            how = f"{_times(self.a, self.b)}: {self._said(self.a)} before, {self._said(self.b)} now"
        return f"{name} {self.key}: {how}"

    def _said(self, value: float | None) -> str:
        return said(value, self.unit)


def said(value: float | None, unit: str) -> str:
    """
    A value in its unit; nothing if there is none.
    """
    if value is None:
        return "-"
    if unit == "micros":
        return duration(value / 1e6)
    if unit == "share":
        return share(value, 1)
    return f"{value:,.0f} an hour" if value >= 10 or not value else f"{value:.2g} an hour"


def compare(
    a: dict[Source, DataFrame], b: dict[Source, DataFrame], one: Period, other: Period
) -> list[Change]:
    """
    All measures of both periods, what changed most first.
    """
    hours = one.seconds / 3600, other.seconds / 3600
    found: list[Change] = []
    counted = _counts(a, b)
    for measure, key in sorted({*counted[0], *counted[1]}):
        values = [rows.get((measure, key), 0) for rows in counted]
        found.append(count_change(measure, key, values[0], values[1], hours))
    answered = [_answers(rows["exchanges"]) for rows in (a, b)]
    for key in sorted({*answered[0], *answered[1]}):
        found += answer_changes(key, answered[0].get(key), answered[1].get(key))
    return sorted(found, key=lambda change: (-change.score, change.measure, change.key))


def count_change(measure: str, key: str, a: int, b: int, hours: tuple[float, float]) -> Change:
    """
    The change of a count, as rates per hour.
    """
    before, now = a / hours[0], b / hours[1]
    deviation = sqrt(max(a, 1) / hours[0] ** 2 + max(b, 1) / hours[1] ** 2)
    sigma = abs(now - before) / deviation
    low, high = sorted((before, now))
    significant = sigma >= LEAST_SIGMA and (low == 0 or high / low >= LEAST_RATIO)
    # Twice as many is more of a change than a tenth more, however sure both are.
    times = min(8.0, log2(high / low)) if low else 8.0
    score = sqrt(sigma) * times * _MATTERS.get(measure, 1.0) if significant else 0.0
    return Change(measure, key, "rate", before, now, score)


def answer_changes(key: str, a: "Answers | None", b: "Answers | None") -> list[Change]:
    """
    The changes of latency and of the share of unanswered requests, for one type and destination.
    """
    found = []
    slow = [each.p99 if each is not None and each.answered >= LEAST_ANSWERS else None for each in (a, b)]
    before, now = slow
    if before and now:
        ratio = max(before, now) / min(before, now)
        assert a is not None and b is not None
        sure = sqrt(min(a.answered, b.answered)) / 4
        score = log2(ratio) * sqrt(sure) * _MATTERS["latency"] if ratio >= LEAST_LATENCY_RATIO else 0.0
        found.append(Change("latency", key, "micros", before, now, score))
    lost = [
        each.unanswered / each.requests if each is not None and each.requests else None for each in (a, b)
    ]
    if any(lost) and a is not None and b is not None and a.requests and b.requests:
        both = (a.unanswered + b.unanswered) / (a.requests + b.requests)
        deviation = sqrt(both * (1 - both) * (1 / a.requests + 1 / b.requests))
        one, other = lost[0] or 0.0, lost[1] or 0.0
        sigma = abs(other - one) / deviation if deviation else 0.0
        low, high = sorted((one, other))
        times = min(8.0, log2(high / low)) if low else 8.0
        significant = sigma >= LEAST_SIGMA and (not low or high / low >= LEAST_RATIO)
        score = sqrt(sigma) * times * _MATTERS["unanswered"] if significant else 0.0
        found.append(Change("unanswered", key, "share", one, other, score))
    return found


@dataclass(frozen=True)
class Answers:
    """
    The requests of one type to one destination in a period; `p99` in microseconds.
    """

    requests: int
    unanswered: int
    p99: int | None

    @property
    def answered(self) -> int:
        return self.requests - self.unanswered


def text(
    changes: list[Change], one: Period, other: Period, asked: tuple[Period, Period], most: int = 10
) -> list[str]:
    """
    The comparison as lines of text: sentences, then a table of each measure.

    `asked` are the periods of the question, of which the log may have only a part.
    """
    changed = [change for change in changes if change.score > 0]
    lines = [_heading("before:", one, asked[0]), _heading("now:   ", other, asked[1]), ""]
    if not changed:
        lines.append("Nothing changed by more than chance would do.")
    else:
        lines.append("What changed most:")
        lines += [f"{at:3}. {change.words()}" for at, change in enumerate(changed[:most], 1)]
        if len(changed) > most:
            lines.append(f"     and {count(len(changed) - most, 'smaller change')}")
    for measure, heading in _TABLES.items():
        rows = [change for change in changes if change.measure == measure]
        if rows:
            lines += ["", heading, *_table(rows, most)]
    return lines


def _heading(word: str, period: Period, asked: Period) -> str:
    ends = [
        text
        for is_cut, text in (
            (period.begin > asked.begin, "begins there"),
            (period.end < asked.end, "ends there"),
        )
        if is_cut
    ]
    cut = f"; the log {' and '.join(ends)}" if ends else ""
    return f"{word} {period}, {duration(period.seconds)}{cut}"


_TABLES = {
    "error": "Errors", "unanswered": "Unanswered requests, share of all", "latency": "Answers, p99",
    "node": "Messages by node", "type": "Messages by type", "domain": "Messages by domain of the sender",
    "sender": "Messages by sender", "session": "Sessions",
}  # fmt: skip


def _table(rows: list[Change], most: int) -> list[str]:
    rows = sorted(rows, key=lambda row: (-row.score, -max(row.a or 0, row.b or 0), row.key))
    cells = [("", "before", "now", "")]
    for row in rows[:most]:
        cells.append((row.key, said(row.a, row.unit), said(row.b, row.unit), _times(row.a, row.b)))
    widths = [max(len(row[at]) for row in cells) for at in range(3)]
    found = [f"  {a:{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d}".rstrip() for a, b, c, d in cells]
    if len(rows) > most:
        found.append(f"  {count(len(rows) - most, 'row')} more, with smaller changes")
    return found


def _times(a: float | None, b: float | None) -> str:
    if a == b or a is None or b is None:
        return ""
    if not a or not b:
        return "new" if b else "gone"
    ratio = b / a
    if 1 / 1.005 < ratio < 1.005:
        return "the same"
    if 0.5 < ratio < 2:
        return f"{(ratio - 1) * 100:+.0f} %"
    return f"{ratio:.3g} times" if ratio > 1 else f"{1 / ratio:.3g} times less"


def _counts(
    a: dict[Source, DataFrame], b: dict[Source, DataFrame]
) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int]]:
    """
    Counts by measure and key in both periods; of senders and domains only the largest of each period.
    """
    found = _shapes(a), _shapes(b)
    for measure, key in (("sender", F.col("from")), ("domain", F.expr(domain("`from`")))):
        keyed = [rows["messages"].where("`from` is not null").select(key.alias("key")) for rows in (a, b)]
        tops = [_top(rows) for rows in keyed]
        for counts, rows, own, other in zip(found, keyed, tops, reversed(tops), strict=True):
            # A key that is not among the largest of this period is counted too, and not taken for none.
            missing = sorted(set(other) - set(own)) if len(own) == MAX_KEYS else []
            rest = _top(rows.where(F.col("key").isin(*missing))) if missing else {}
            counts.update({(measure, name): number for name, number in (own | rest).items()})
    return found


def _shapes(rows: dict[Source, DataFrame]) -> dict[tuple[str, str], int]:
    """
    Counts by node, type, error and event, of which there are few.
    """
    found: dict[tuple[str, str], int] = {}

    def add(measure: str, key: str, number: int) -> None:
        found[measure, key] = found.get((measure, key), 0) + number

    shapes = rows["messages"].groupBy("node", F.expr(kind()).alias("type"), "outcome", "code", "reason")
    for row in shapes.agg(F.count("*").alias("number")).collect():
        add("node", row.node, row.number)
        add("type", row.type, row.number)
        if row.outcome in ERRORS:
            add("error", error_name(row.outcome, row.code or 0, row.reason or ""), row.number)
    for event, number in _top(rows["events"].select(F.col("event").alias("key"))).items():
        add("session", event, number)
    return found


def _top(rows: DataFrame) -> dict[str, int]:
    """
    The keys with the most rows, and how many these are.
    """
    counted = rows.groupBy("key").agg(F.count("*").alias("number"))
    largest = counted.orderBy(F.desc("number"), "key").limit(MAX_KEYS).collect()
    return {row.key: row.number for row in largest}


def _answers(exchanges: DataFrame) -> dict[str, Answers]:
    pair = F.concat_ws(" of type ", "destination", "type").alias("pair")
    histogram = LATENCY.summarise(exchanges).select(pair, "bin", "number").cache()
    lost = F.sum(F.when(F.col("bin").isNull(), F.col("number")).otherwise(F.lit(0)))
    asked = histogram.groupBy("pair").agg(F.sum("number").alias("requests"), lost.alias("unanswered"))
    slow = percentiles(histogram.where("bin is not null"), "pair").select("pair", "p99")
    rows = asked.join(slow, "pair", "left").orderBy(F.desc("requests"), "pair").limit(MAX_KEYS).collect()
    histogram.unpersist()
    return {row.pair: Answers(row.requests, row.unanswered, row.p99) for row in rows}
