"""
The findings about nodes without lines: one node, or all of them at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from msgnode.mining.analyses.presence import SILENT_MINUTES
from msgnode.mining.report.episodes import MOST
from msgnode.mining.report.findings import SECOND, Finding
from msgnode.mining.report.series import Counts
from msgnode.mining.report.steps import MINUTE, Steps
from msgnode.mining.report.tables import moment
from msgnode.mining.report.units import duration

MAX_ROWS = 1000  # of nodes, and of silences, that are loaded
FEW_SILENCES = 3  # of a node, which are said one by one
_HARM = {"outage": 3.0, "no lines": 1.0, "stopped": 0.5}
_MINUTE = MINUTE * SECOND


@dataclass(frozen=True)
class _Silence:
    """
    A time without lines, of a node or of all; `until` is None while it goes on.
    """

    since: int
    until: int | None
    minutes: int
    why: str

    def when(self, longest: bool) -> str:
        since, lasted = moment(self.since)[:16], duration(self.minutes * 60)
        if self.until is None:
            return f"since {since} ({lasted}), still going on"
        return f"{'the longest ' if longest else ''}from {since} for {lasted}"


def silences(
    rows: Sequence[Any],
    repeated: Iterable[Any],
    nodes: Mapping[str, Counts],
    begun: Mapping[str, int],
    steps: Steps,
) -> list[Finding]:
    """
    Nodes without lines, from the rows of that table, the longest first.

    `begun` has the time of the first line of each node. `repeated` has the `number` and the `minutes` of
    silences that are over, by `node` and `why`. If there are more than a few, they are one finding: else
    those of a node that is switched off each night hide all else. A silence is not said again if most of it
    is one of all nodes.
    """
    newest = steps.end(steps.number) * SECOND
    # Of more nodes or silences than were loaded, it is not known whether all were silent.
    together = _together(rows, begun, newest) if max(len(rows), len(begun)) < MAX_ROWS else []
    usual = {name: sum(counts) / _minutes(name, rows, steps) for name, counts in nodes.items()}
    found = _of_all(together, sum(usual.values()))
    often = {(row.node, row.why): row for row in repeated if row.number > FEW_SILENCES}
    own: dict[Any, list[Any]] = {}  # those of a finding
    for row in rows:
        kind = row.node, row.why
        own.setdefault(kind if row.until is not None and kind in often else (*kind, row.since), []).append(
            row
        )
    for kind, some in own.items():
        every = often.get(kind)
        number, minutes = (every.number, every.minutes) if every else (1, some[0].minutes)
        if _shared(some, together, newest) < MOST * minutes:
            first = some[0]  # the longest
            silence = _Silence(first.since, first.until, first.minutes, first.why)
            found.append(_finding(first.node, silence, number, minutes, usual.get(first.node, 0.0)))
    return found


def _minutes(node: str, rows: Sequence[Any], steps: Steps) -> float:
    """
    The minutes in which the node was there.
    """
    away: float = sum(row.minutes for row in rows if row.node == node and row.why != "no lines")
    return max(1.0, (steps.end(steps.number) - steps.begin(0)) / MINUTE - away)


def _together(rows: Sequence[Any], begun: Mapping[str, int], newest: int) -> list[_Silence]:
    """
    The times in which all nodes that had begun were silent, if these were two or more.
    """
    changes = [(time, 1, 0) for time in begun.values()]
    for row in rows:
        changes += [(row.since, 0, 1), (row.until or newest, 0, -1)]
    found: list[_Silence] = []
    known, silent = 0, 0
    since: int | None = None
    for time, same in groupby(sorted(changes), key=lambda change: change[0]):
        changed = list(same)
        # Where a silence ends and the next begins, or a node begins, there is a line.
        if since is not None and any(node or silence < 0 for _, node, silence in changed):
            whys = [row.why for row in rows if row.since < time and since < (row.until or newest)]
            why = max(whys, key=lambda each: _HARM[each])
            found.append(_Silence(since, time, (time - since) // _MINUTE, why))
            since = None
        known += sum(node for _, node, _ in changed)
        silent += sum(silence for _, _, silence in changed)
        if since is None and known > 1 and silent == known:
            since = time
    return [each for each in found if each.minutes > SILENT_MINUTES]


def _shared(rows: Sequence[Any], together: Sequence[_Silence], newest: int) -> float:
    """
    The minutes of these silences in which all nodes were silent.
    """
    shared: list[int] = [
        min(row.until or newest, each.until or newest) - max(row.since, each.since)
        for row in rows
        for each in together
    ]
    return sum(each for each in shared if each > 0) / _MINUTE


def _of_all(together: Sequence[_Silence], usual: float) -> list[Finding]:
    if len(together) <= FEW_SILENCES:
        return [_finding("All nodes", each, 1, each.minutes, usual) for each in together]
    longest = max(together, key=lambda each: each.minutes)
    minutes = sum(each.minutes for each in together)
    return [_finding("All nodes", longest, len(together), minutes, usual)]


def _finding(word: str, silence: _Silence, number: int, minutes: int, usual: float) -> Finding:
    goes_on = silence.until is None
    why = {"outage": "wrote no lines, not even about itself", "stopped": "was stopped"}.get(
        silence.why, "wrote no lines"
    )
    if word == "All nodes":
        why = why.replace("itself", "themselves").replace("was", "were")
    # A node that should say something each minute and does not is as bad as some lost messages, however idle
    # it was. One that writes no lines about itself may have had nothing to do, each night again.
    heavy = silence.minutes * usual if silence.why == "no lines" else minutes * max(1.0, usual)
    weight = _HARM[silence.why] * heavy * (2 if goes_on else 1)
    times = f" {number:,} times, {duration(minutes * 60)} in all" if number > 1 else ""
    text = f"{why}{times}{_usual(usual)}; {silence.when(longest=number > 1)}."
    return Finding(weight, word, text, "nodes", goes_on)


def _usual(a_minute: float) -> str:
    """
    The average number of messages, in the shortest time that has one at least, or in a day.
    """
    if not a_minute:
        return ""
    number, of = a_minute, "minute"
    if number < 1:
        number, of = (number * 60, "hour") if number * 60 >= 1 else (number * 1440, "day")
    if number < 1:
        return " (on average less than one message a day)"
    return f" (on average {number:,.1f} messages {'an' if of == 'hour' else 'a'} {of})"
