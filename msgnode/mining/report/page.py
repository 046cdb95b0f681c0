"""
The page of the report: one self-contained HTML file, which can be mailed and opened anywhere.
"""

import json
import re
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from pyspark.sql import DataFrame

from msgnode.mining.report.sections import sections
from msgnode.mining.report.series import load_series
from msgnode.mining.report.tables import Tables
from msgnode.mining.report.units import count, duration
from msgnode_report import library

_ASSETS = files("msgnode.mining") / "assets"


def write_report(about: dict[str, Any], tables: Tables, fine: dict[str, DataFrame]) -> str:
    """
    The text of the page. Only the first rows of each table are loaded on the driver.

    `about` has `begin` and `end` in seconds since 1970, the number of `lines`, `bad` lines and `files`, where
    the `logs` are, `pseudonyms`, `since` (an hour since 1970) if older days were removed, `period` if the
    report is about a part of the log, and `records`, names of records by id. `fine` has the sums by minute of
    a short log (series.minutes).
    """
    series = load_series(tables, fine, about["begin"], about["end"])
    data = {
        "about": _about(about),
        "nodes": sorted({*series.nodes, *series.by_node}),
        "sections": sections(about, tables, series),
    }
    return page("Traffic of the messaging node", data)


def page(title: str, data: dict[str, Any]) -> str:
    """
    The page with embedded data, escaped so that it cannot end its element.
    """
    written = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str)
    # To a JSON parser the escapes are equal to the characters.
    escaped = written.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    parts = {
        "title": title,
        "style": _asset("report.css"),
        "data": escaped,
        "library": library(),
        "script": _asset("report.js"),
    }
    return re.sub(r"@(\w+)@", lambda found: parts[found[1]], _asset("report.html"))


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text("utf-8")


def _about(about: dict[str, Any]) -> str:
    hidden = " Identifiers are pseudonyms." if about["pseudonyms"] else ""
    aside = f"; {count(about['bad'], 'line')} could not be read, see _bad/" if about["bad"] else ""
    read = f"{count(about['lines'], 'line')} of {count(about['files'], 'file')} in {about['logs']}"
    begin, end = about["begin"], about["end"]
    exact = bool(begin % 60 or end % 60)
    span = f"{_clock(begin, exact)} to {_clock(end, exact)} UTC, {duration(end - begin)}"
    kept = f" Days before {_clock(about['since'] * 3600)} were removed." if about.get("since") else ""
    part = " This is only a part of the log." if about.get("period") else ""
    return f"{span}; {read}{aside}.{kept}{part}{hidden}"


def _clock(seconds: int, exact: bool = False) -> str:
    form = "%Y-%m-%d %H:%M:%S" if exact else "%Y-%m-%d %H:%M"
    return datetime.fromtimestamp(seconds, UTC).strftime(form)
