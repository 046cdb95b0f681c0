"""
The rows of the data planes as a table: one line for each server that was measured.
"""

from typing import Any

from benchmark.report.statistics import doubts, ratio
from benchmark.report.tables import measured_on, number
from benchmark.scenarios.planes import AT_ONCE, COMPILED, NATS, PYTHON

HEAD = (
    "scenario",
    "server",
    "per second",
    "spread",
    "p50, ms",
    "p99, ms",
    "CPU, µs each",
    "by flow",
    "to nats-server",
    "to Python alone",
    "CPU to Python",
    "wanted",
)
BEGIN, END = "<!-- planes: begin -->", "<!-- planes: end -->"


def rows(results: dict[str, Any]) -> list[tuple[str, ...]]:
    """
    A row for each server of each scenario, as text.
    """
    return [_row(scenario, label) for scenario in results["scenarios"] for label in scenario["entrants"]]


def text(results: dict[str, Any]) -> str:
    """
    Columns padded with spaces.
    """
    table = [HEAD, *rows(results)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEAD))]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
    return "\n".join([*lines, *_remarks(results)])


def markdown(results: dict[str, Any]) -> str:
    """
    The machine, the versions and the table; each scenario is named once.
    """
    shown = ""
    lines = ["| " + " | ".join(row) + " |" for row in (HEAD, ("---",) * len(HEAD))]
    for row in rows(results):
        first = "" if row[0] == shown else row[0]
        shown = row[0]
        lines.append("| " + " | ".join((first, *row[1:])) + " |")
    remarks = [f"* {line}" for line in _remarks(results)]
    return "\n".join([*measured_on(results), "", *lines, *([""] if remarks else []), *remarks])


def _row(scenario: dict[str, Any], label: str) -> tuple[str, ...]:
    entrants, entrant = scenario["entrants"], scenario["entrants"][label]

    def to(other: str, key: str = "median") -> str:
        if other == label or other not in entrants:
            return ""
        value = ratio(entrant.get(key), entrants[other].get(key))
        return "" if value is None else f"{value:.2f}"

    return (
        scenario["title"] + ("" if scenario["unit"].endswith("/s") else f", {scenario['unit']}"),
        label,
        number(entrant["median"]),
        "" if entrant["spread"] is None else f"{entrant['spread']:.0%}",
        *(number(entrant[key]) if key in entrant else "" for key in ("p50", "p99", "cpu")),
        f"{entrant['by_flow']:.0%}" if entrant.get("plane") == "native" and "by_flow" in entrant else "",
        to(NATS),
        to(PYTHON),
        to(PYTHON, "cpu"),
        _wanted(scenario, label) if label in (COMPILED, AT_ONCE) else "",
    )


def _wanted(scenario: dict[str, Any], label: str) -> str:
    """
    What is wanted of this server, and whether it is so.
    """
    entrants, told = scenario["entrants"], []
    for row in scenario["compared"]:
        against = row["against"]
        if row["target"] is None or against == label or against not in entrants:
            continue
        value = ratio(entrants[label]["median"], entrants[against]["median"])
        bound = float(row["target"].split()[-1])
        broken = any(entrants[name]["lost"] or entrants[name]["errors"] for name in (label, against))
        met = value is not None and value >= bound and not broken
        figure = "" if value is None else f" ({value:.2f})" if against not in (NATS, PYTHON) else ""
        told.append(f"{bound:g} to {against}: {'met' if met else 'missed'}{figure}")
    return "; ".join(told)


def _remarks(results: dict[str, Any]) -> list[str]:
    return [
        f"{scenario['name']}, {label}: {doubt}"
        for scenario in results["scenarios"]
        for label, entrant in scenario["entrants"].items()
        for doubt in doubts(entrant)
    ]
