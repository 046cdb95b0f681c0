"""
The findings of the report: one sentence for each thing that is wrong, the heaviest first.

The weight of a finding is about how many messages it concerns, times how bad that is for one of them; it
counts double while it goes on.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from msgnode.mining.report.episodes import Episode, ended, episode
from msgnode.mining.report.series import Bands, Counts, Error, Pair
from msgnode.mining.report.steps import HOUR, Steps
from msgnode.mining.report.tables import moment
from msgnode.mining.report.units import count, duration, share

SECOND = 1_000_000_000
SHOWN = 12
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
class Finding:
    """
    A finding: its first words, the rest of the sentence, and the section with the details.
    """

    weight: float
    word: str
    text: str
    section: str
    goes_on: bool = False


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
    last: Mapping[Error, float],
    newest: float,
) -> list[Finding]:
    """
    Refused, dropped and unroutable messages, by code and reason.

    `senders` says who sent most of them, `last` and `newest` are the times of the last one and of the newest
    message, in seconds since 1970.
    """
    found = []
    for (outcome, code, reason), counts in series.items():
        error = (outcome, code, reason)
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
        text += f", {senders[error]}" if error in senders else ""
        word = count(number, "message")
        when = ended(when, last.get(error, newest), newest - min(HOUR, 2 * steps.size))
        section = "records" if reason == "record" else "errors"
        found.append(_at(number * _HARM.get(code, 1.0), word, text, section, when, steps, counts))
    return found


def unanswered(
    series: Mapping[Pair, tuple[Counts, Counts]], steps: Steps, until: Mapping[Pair, float], newest: float
) -> list[Finding]:
    """
    Requests without an answer, by type and destination.

    `until` is the end of the last hour with such, and `newest` the time of the newest message, in seconds
    since 1970.
    """
    found = []
    for (type, destination), (requests, lost) in series.items():
        number, when = sum(lost), episode(lost)
        if when is not None:
            when = ended(when, until.get((type, destination), newest), newest - HOUR)
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
