"""
The report: one HTML file with all that is needed to read it, so it can be mailed and opened anywhere.
"""

import json
import re
from importlib.resources import files
from typing import Any

from pyspark.sql import DataFrame

from msgnode.mining.report.sections import sections

_ASSETS = files("msgnode.mining") / "assets"


def write_report(about: dict[str, Any], tables: dict[str, DataFrame]) -> str:
    """
    The text of the page.  Of each table only its first rows come to the driver.
    """
    found = sections(about, tables)  # these say from when to when
    data = {"about": _about(about), "sections": found}
    return page("Traffic of the messaging node", data)


def page(title: str, data: dict[str, Any]) -> str:
    """
    The page with this data; nothing in it can end the element it stands in.
    """
    written = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str)
    # As a browser reads it, this is the same JSON.
    escaped = written.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    parts = {
        "title": title,
        "style": _asset("report.css"),
        "data": escaped,
        "library": _asset("echarts.min.js"),
        "script": _asset("report.js"),
    }
    return re.sub(r"@(\w+)@", lambda found: parts[found[1]], _asset("report.html"))


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text("utf-8")


def _about(about: dict[str, Any]) -> str:
    hidden = " Identifiers are pseudonyms." if about["pseudonyms"] else ""
    aside = f"; {about['bad']:,} lines could not be read and lie in _bad/" if about["bad"] else ""
    read = f"{about['lines']:,} lines of {about['files']:,} files in {about['logs']}"
    return f"{about['from']} to {about['until']} UTC, {read}{aside}.{hidden}"
