"""
The findings of the report: one sentence for each thing that is wrong, the heaviest first.

The weight of a finding is about how many messages it concerns, times how bad that is for one of them; it
counts double while it goes on.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from msgnode.mining.report.series import Bands, Counts, Error, Pair
from msgnode.mining.report.steps import DAY, HOUR, Steps
from msgnode.mining.report.tables import moment
from msgnode.mining.report.units import count, duration, share

SECOND = 1_000_000_000
SHOWN = 12
GAP = 3  # steps without an event that do not end an episode
MOST = 0.8  # of the events are in an episode
THROUGHOUT = 0.6  # of the steps
SLOW_TIMES, SLOW_MICROSECONDS, SLOW_LEAST = 4, 50_000, 20  # against the node's median; answers in a step
# How bad for one message: lost is worse than refused, and a wrong request is the fault of its sender.
_HARM = {507: 5.0, 503: 3.0, 504: 3.0, 429: 1.5, 400: 0.5, 404: 0.5}
WORDS = {
    400: "malformed",
    401: "no session, or a wrong token",
    403: "not allowed",
    404: "no session is bound to the address",
    409: "conflict",
    413: "too large",
    429: "too many or too much",
    501: "not offered",
    503: "not available",
    504: "a back end did not answer",
    507: "no room",
}
_REASONS = {"record": "the body does not fit the record"}


@dataclass(frozen=True)
class Episode:
    """
    The time of a finding: from its first step to before `end`; `goes_on` at the end of the log.

    `throughout`: it is spread over most of the log, so it did not begin with an event.
    """

    begin: int
    end: int
    goes_on: bool
    throughout: bool = False

    def words(self, steps: Steps) -> str:
        if self.throughout:
            return "all through the log" + ("" if self.goes_on else f", until {steps.moment(self.end)}")
        lasted = duration((self.end - self.begin) * steps.size)
        if self.goes_on:
            # A day is long: it may be over since the morning.
            now = "also on the last day" if steps.size == DAY else "still going on"
            return f"since {steps.moment(self.begin)} ({lasted}), {now}"
        return f"from {steps.moment(self.begin)}, over after {lasted}"


@dataclass(frozen=True)
class Finding:
    """
    A finding: its first words, the rest of the sentence, and the section with the details.
    """

    weight: float
    word: str
    text: str
    section: str
    goes_on: bool = False


def episode(counts: Sequence[float]) -> Episode | None:
    """
    When it happened: the shortest span with most of the events, and what joins it without a long gap.
    """
    total = sum(counts)
    if total <= 0:
        return None
    begin, end = _densest(counts, MOST * total)
    rate = sum(counts[begin:end]) / (end - begin)
    # As far as the next steps have a quarter of the events of the span itself.
    reach = max(GAP, (end - begin) // 4)
    while end < len(counts) and sum(counts[end : end + reach]) >= rate * reach / 4:
        end = _last(counts, end + reach)
    while begin > 0 and sum(counts[max(0, begin - reach) : begin]) >= rate * reach / 4:
        begin = next(at for at in range(max(0, begin - reach), begin) if counts[at])
    while begin > 0 and counts[begin - 1] >= rate / 10:
        begin -= 1
    while end < len(counts) and counts[end] >= rate / 10:
        end += 1
    if end - begin > THROUGHOUT * len(counts) and len(counts) > 2 * GAP:
        last = _last(counts, len(counts))
        return Episode(0, last, len(counts) - last <= reach, throughout=True)
    # The newest step is often only begun.
    return Episode(begin, end, end >= len(counts) - 1)


def _densest(counts: Sequence[float], least: float) -> tuple[int, int]:
    """
    The shortest span of steps with so many events, the latest of equal ones.
    """
    best, begin, inside = (0, len(counts)), 0, 0.0
    for at, number in enumerate(counts):
        inside += number
        while inside - counts[begin] >= least:
            inside -= counts[begin]
            begin += 1
        if inside >= least and at + 1 - begin <= best[1] - best[0]:
            best = begin, at + 1
    return best


def _last(counts: Sequence[float], end: int) -> int:
    """
    The step after the last event before `end`.
    """
    return max(at + 1 for at, number in enumerate(counts[:end]) if number)


def error_name(outcome: str, code: int, reason: str) -> str:
    """
    An error as the page names it: `429 rate`, `no-route`.
    """
    return " ".join(filter(None, (str(code or ""), reason))) or outcome


def errors(
    series: Mapping[Error, Counts],
    steps: Steps,
    messages: int,
    senders: Mapping[Error, str],
    ages: Mapping[Error, float],
) -> list[Finding]:
    """
    Refused, dropped and unroutable messages, by code and reason.

    `senders` says who sent most of them, `ages` are the seconds from the last one to the newest message.
    """
    found = []
    for (outcome, code, reason), counts in series.items():
        number, when = sum(counts), episode(counts)
        if when is None or (outcome == "dropped" and code != 507):  # the sender was the only recipient
            continue
        what = error_name(outcome, code, reason)
        why = _REASONS.get(reason) or WORDS.get(code, "")
        if outcome == "no-route":
            why = "no session is bound to the address"
        verb = {"no-route": "had no route", "dropped": "were dropped"}.get(outcome, "were refused")
        text = f"{verb} with {what}" if what not in verb and outcome != "no-route" else verb
        text += f" ({why})" if why else ""
        text += f", {share(number, messages)} of all"
        text += f", {senders[outcome, code, reason]}" if (outcome, code, reason) in senders else ""
        word = count(number, "message")
        # The newest step is long; the last error may have been at its beginning.
        if ages.get((outcome, code, reason), 0) > min(HOUR, 2 * steps.size):
            when = replace(when, goes_on=False)
        section = "records" if reason == "record" else "errors"
        found.append(_at(number * _HARM.get(code, 1.0), word, text, section, when, steps, counts))
    return found


def unanswered(
    series: Mapping[Pair, tuple[Counts, Counts]], steps: Steps, ages: Mapping[Pair, float]
) -> list[Finding]:
    """
    Requests without an answer, by type and destination.

    `ages` are the seconds from the end of the last hour with such to the newest message.
    """
    found = []
    for (type, destination), (requests, lost) in series.items():
        number, when = sum(lost), episode(lost)
        if when is not None:
            if ages.get((type, destination), 0) > HOUR:
                when = replace(when, goes_on=False)
            of = share(number, sum(requests))
            text = f"to {destination} got no answer, {of} of them"
            found.append(
                _at(3.0 * number, count(number, f"{type} request"), text, "unanswered", when, steps, lost)
            )
    return found


def slow_nodes(by_node: Mapping[str, Bands], answers: Mapping[str, Counts], steps: Steps) -> list[Finding]:
    """
    Nodes through which answers took several times as long as in their median step.
    """
    found = []
    for node, bands in by_node.items():
        p99 = [
            value if value is not None and number >= SLOW_LEAST else None
            for value, number in zip(bands["p99"], answers[node], strict=True)
        ]
        known = [value for value in p99 if value is not None]
        if len(known) < 4:
            continue
        usual = median(known)
        limit = max(SLOW_MICROSECONDS, SLOW_TIMES * usual)
        slow = [
            number if value is not None and value >= limit else 0
            for value, number in zip(p99, answers[node], strict=True)
        ]
        when = episode(slow)
        if when is None:
            continue
        worst = max(value or 0 for value, is_slow in zip(p99, slow, strict=True) if is_slow)
        text = (
            f"was slow: of the answers through it one in a hundred took {duration(worst / 1e6)} or longer, "
            f"usual is {duration(usual / 1e6)}"
        )
        found.append(_at(0.2 * sum(slow), node, text, "answers", when, steps))
    return found


def loops(rows: Iterable[Any], counted: str, text: Callable[[int, Any], str]) -> list[Finding]:
    """
    Senders in a loop, one finding for each sender, address and type, over all hours.
    """
    # Each row has the sums of its loop, of which other rows may have been cut.
    own = {(row.address, row.to or "", row.type): row for row in rows if row.loop[counted]}
    found = []
    for row in own.values():
        number, hours = row.loop[counted], row.loop.hours
        span = f"in {hours:,} hours, {row.loop.first} to {row.loop.last}"
        if hours == 1:
            span = f"in the hour from {row.loop.first}"
        # Half: the failures themselves are in another finding.
        found.append(Finding(0.5 * number, row.address, f"{text(number, row)} {span}.", "loops"))
    return found


def unusual(rows: Iterable[Any]) -> list[Finding]:
    """
    Hours unlike others, of all nodes, or of one node, domain or code.
    """
    words = {
        "failed": "failed messages",
        "slow": "messages that took the node long",
        "expired": "sessions expired",
    }
    found = []
    for row in rows:
        value = f"{row.value:,} {words.get(row.measure, row.measure)}"
        of = "" if row.scope == "all" else f" of {row.scope} {row.name}"
        # Of a part of the traffic the same is said again.
        weight = (0.05 if row.scope == "all" else 0.04) * abs(row.value - row.usual)
        weight /= 1000 if row.measure == "bytes" else 1
        text = f"had {value}{of}, usual are {row.usual:,.0f}."
        found.append(Finding(weight, f"{row.date} {row.hour:02}:00", text, "anomalies"))
    return found


def storms(rows: Iterable[Any]) -> list[Finding]:
    """
    Minutes in which many sessions connected again.
    """
    return [
        Finding(
            2.0 * (row.attached - row.usual),
            row.node,
            f"got {count(row.attached, 'connection')} in the minute of {moment(row.time)[:16]}, "
            f"usual are {row.usual:,.0f}.",
            "sessions",
        )
        for row in rows
    ]


def ranked(found: Iterable[Finding], shown: int = SHOWN) -> tuple[list[Finding], int]:
    """
    The heaviest findings, and how many more there are.
    """
    ordered = sorted(found, key=lambda each: (-each.weight, each.word, each.text))
    return ordered[:shown], max(0, len(ordered) - shown)


def _at(
    weight: float,
    word: str,
    text: str,
    section: str,
    when: Episode,
    steps: Steps,
    counts: Sequence[int] = (),
) -> Finding:
    """
    A finding with its time. If some of the `counts` lie outside, the time is said of those inside.
    """
    inside, total = sum(counts[when.begin : when.end]), sum(counts)
    most = f"{inside:,} of them " if inside < total and not when.throughout else ""
    now = when.goes_on and not when.throughout
    return Finding(weight * (2 if now else 1), word, f"{text}; {most}{when.words(steps)}.", section, now)
