"""
From runs to figures: medians, ratios, and whether the target was met.
"""

from collections.abc import Sequence
from math import comb
from statistics import median
from typing import Any

from benchmark.scenarios.catalogue import Scenario, Target

BUSY = 0.85  # of a core; above it the generator may be what is measured
WIDE = 0.5  # spread above which a median says little

Run = dict[str, Any]  # what the generator printed: figure, lost, errors, cores used


def summary(runs: list[Run]) -> dict[str, Any]:
    """
    One entrant's runs as one: the median of what was measured, the sum of what was lost.
    """
    measured = [run for run in runs if run.get("figure") is not None]
    result: dict[str, Any] = {
        "median": median(run["figure"] for run in measured) if measured else None,
        "figures": [run["figure"] for run in measured],
        "spread": spread([run["figure"] for run in measured]),
        "lost": sum(run.get("lost", 0) for run in runs),
        "errors": [error for run in runs for error in run.get("errors", [])][:5],
    }
    for key in ("generator_cores", "server_cores", "cpu", "p50", "p99", "by_flow"):
        values = [run[key] for run in measured if key in run]
        if values:
            result[key] = median(values)
    besides: dict[str, list[float]] = {}
    for run in measured:
        for name, value in run.get("besides", {}).items():
            besides.setdefault(name, []).extend([] if value is None else [value])
    result["besides"] = {name: median(values) for name, values in besides.items() if values}
    return result | {key: run[key] for run in runs for key in {"rss", "lives", "plane"} & run.keys()}


def paired(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """
    Ours over theirs, pair by pair: the median ratio, and the ends of an interval in which it lies with a
    probability of at least 95 %, from the ranks (no distribution is supposed). It needs six pairs or more.
    """
    ratios = sorted(one / other for one, other in zip(ours, theirs, strict=True))
    number, rank, outside = len(ratios), 0, 0.0
    while (outside := outside + 2 * comb(number, rank) / 2**number) <= 0.05:
        rank += 1
    rank = max(0, rank - 1)
    return median(ratios), ratios[rank], ratios[-1 - rank]


def spread(figures: list[float]) -> float | None:
    """
    Highest less lowest, as a part of the median; None where there are not two.
    """
    return (max(figures) - min(figures)) / median(figures) if len(figures) > 1 and median(figures) else None


def doubts(entrant: dict[str, Any]) -> list[str]:
    """
    Why this entrant's figure should not be leant on.
    """
    reasons = [f"{entrant['lost']:,} messages lost"] if entrant["lost"] else []
    reasons += entrant["errors"][:1]
    if entrant.get("generator_cores", 0) > BUSY:
        reasons.append(f"the generator used {entrant['generator_cores']:.2f} of a core and may be the limit")
    if (entrant["spread"] or 0) > WIDE:
        low, high = min(entrant["figures"]), max(entrant["figures"])
        reasons.append(f"the runs differ widely, {low:,.0f} to {high:,.0f}")
    return reasons


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """
    Ours over theirs, where both were measured.
    """
    return ours / theirs if ours is not None and theirs else None


def compared(scenario: Scenario, entrants: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """
    Our entrant beside each of the others: figures, ratio, target, and whether it was met.
    """
    labels = [entrant.label for entrant in scenario.entrants if entrant.label in entrants]
    ours = scenario.entrants[0].label
    if ours not in entrants:
        return []
    rows = []
    for against in [None, *labels]:
        target = next((target for target in scenario.targets if target.against == against), None)
        if against == ours or (against is None and target is None and len(labels) > 1):
            continue
        figure = entrants[ours]["median"]
        value = figure if against is None else ratio(figure, entrants[against]["median"])
        beside = [entrants[ours]] + ([entrants[against]] if against is not None else [])
        rows.append({"against": against, "value": value, **_judged(target, value, beside)})
    return rows


def _judged(target: Target | None, value: float | None, beside: list[dict[str, Any]]) -> dict[str, Any]:
    if target is None:
        return {"target": None, "met": None}
    text = f"at most {target.bound:g}" if target.at_most else f"at least {target.bound:g}"
    # A peer that failed gives no ratio to meet a target with.
    if value is None or any(entrant["lost"] or entrant["errors"] for entrant in beside):
        return {"target": text, "met": False}
    return {"target": text, "met": value <= target.bound if target.at_most else value >= target.bound}
