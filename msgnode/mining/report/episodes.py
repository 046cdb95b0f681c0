"""
Episodes: when a thing happened, since when, and whether it goes on at the end of the log.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from msgnode.mining.report.steps import DAY, MINUTE, Steps
from msgnode.mining.report.tables import moment
from msgnode.mining.report.units import duration

GAP = 3  # steps without an event that do not end an episode
MOST = 0.8  # of the events are in an episode
THROUGHOUT = 0.6  # of the steps
_SECOND = 1_000_000_000


@dataclass(frozen=True)
class Episode:
    """
    The time of a finding: from its first step to before `end`; `goes_on` at the end of the log.

    `throughout`: it is spread over most of the log, so it did not begin with an event. `last` is the time of
    the last event, or the end of its hour, in seconds since 1970: a step may be a day.
    """

    begin: int
    end: int
    goes_on: bool
    throughout: bool = False
    last: float = inf

    def words(self, steps: Steps) -> str:
        end = min(self.last, steps.end(self.end))
        if self.throughout:
            return "all through the log" + (
                "" if self.goes_on else f", until {moment(int(end) * _SECOND)[:16]}"
            )
        # It began at some time within its first step, so seconds would say too much.
        lasted = duration(max(MINUTE, end - steps.begin(self.begin)))
        if self.goes_on:
            # A day is long: it may be over since the morning.
            now = "also on the last day" if steps.size == DAY else "still going on"
            return f"since {steps.moment(self.begin)} ({lasted}), {now}"
        return f"from {steps.moment(self.begin)}, over after {lasted}"


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


def ended(when: Episode, last: float, recently: float) -> Episode:
    """
    The episode with the time of its last event, and over if that was not recently.

    The newest step may be long, and the last event at its beginning.
    """
    return replace(when, last=last, goes_on=when.goes_on and last >= recently)


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
