"""
The results as a table: text for the terminal, Markdown for docs/performance.md.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmark.report.statistics import doubts

HEAD = (
    "scenario",
    "unit",
    "ours",
    "against",
    "theirs",
    "ratio",
    "wanted",
    "",
    "spread",
    "cores: generator, server",
)
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def rows(results: dict[str, Any]) -> list[tuple[str, ...]]:
    """
    A row for each comparison, as text.
    """
    return [row for scenario in results["scenarios"] for row in _scenario_rows(scenario)]


def text(results: dict[str, Any]) -> str:
    """
    Columns padded with spaces.
    """
    table = [HEAD, *rows(results)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEAD))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    return "\n".join([*lines, *_complaints(results)])


def markdown(results: dict[str, Any]) -> str:
    """
    The machine, the versions, and the table.
    """
    lines = [
        *measured_on(results),
        "",
        *("| " + " | ".join(row) + " |" for row in (HEAD, ("---",) * len(HEAD), *rows(results))),
    ]
    complaints = _complaints(results)
    return "\n".join(lines + ([""] if complaints else []) + [f"* {line}" for line in complaints])


def measured_on(results: dict[str, Any]) -> list[str]:
    """
    When and on which machine, with which versions, how loaded, and how long.
    """
    machine = ", ".join(f"{key} {value}" for key, value in results["machine"].items())
    versions = ", ".join(f"{name} {version}" for name, version in sorted(results["versions"].items()))
    loads = [scenario["load_average"] for scenario in results["scenarios"] if "load_average" in scenario]
    load = f"  Load average {min(loads):.1f} to {max(loads):.1f}, with the benchmark itself." if loads else ""
    told = results["options"]
    writes = "what one read released in one write" if told["burst"] else "each message in a write of its own"
    return [
        f"Measured {results['when']} on {machine}.  {versions}.{load}",
        "",
        f"Medians of {told['rounds']} alternations of {told['seconds']:g} s each, after "
        f"{told['warmup']:g} s of warm-up; {writes}.",
    ]


def put(path: Path, table: str, marks: tuple[str, str] = (BEGIN, END)) -> None:
    """
    Write the table into the file: between the marks where it has them, else as the whole of it.
    """
    old = path.read_text() if path.exists() else ""
    before, begin, rest = old.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    new = f"{before}{begin}\n{table}\n{end}{after}" if begin and end else table + "\n"
    path.write_text(new)


def number(value: float | None) -> str:
    """
    Three digits or more, with commas in the thousands.
    """
    if value is None:
        return "failed"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _scenario_rows(scenario: dict[str, Any]) -> list[tuple[str, ...]]:
    entrants = scenario["entrants"]
    made: list[tuple[str, ...]] = []
    for row in scenario["compared"]:
        ours = entrants[scenario["ours"]]
        against = row["against"]
        theirs = "" if against is None else number(entrants[against]["median"])
        value = "" if against is None or row["value"] is None else f"{row['value']:.2f}"
        met = {None: "", True: "met", False: "missed"}[row["met"]]
        cells = (scenario["title"], scenario["unit"], number(ours["median"]), against or "", theirs, value)
        both = [ours] + ([entrants[against]] if against is not None else [])
        made.append((*cells, row["target"] or "", met, _each(both, _spread), _each(both, _cores)))
    return made


def _each(entrants: list[dict[str, Any]], told: Callable[[dict[str, Any]], str]) -> str:
    return " / ".join(text for entrant in entrants if (text := told(entrant)))


def _spread(entrant: dict[str, Any]) -> str:
    return "" if entrant["spread"] is None else f"{entrant['spread']:.0%}"


def _cores(entrant: dict[str, Any]) -> str:
    if "server_cores" not in entrant:
        return ""
    return f"{entrant['generator_cores']:.2f}, {entrant['server_cores']:.2f}"


def _complaints(results: dict[str, Any]) -> list[str]:
    besides = [
        f"{scenario['name']}, {label}: {name} {number(value)}"
        for scenario in results["scenarios"]
        for label, entrant in scenario["entrants"].items()
        for name, value in entrant.get("besides", {}).items()
    ]
    return besides + [
        f"{scenario['name']}, {label}: {doubt}"
        for scenario in results["scenarios"]
        for label, entrant in scenario["entrants"].items()
        for doubt in doubts(entrant)
    ]
