"""
Rendering of pages: templates that escape what they show, and texts for numbers and times.
"""

import gzip
import json
import time
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, Undefined
from markupsafe import Markup, escape

from msgnode.structures.bit_rates import bits
from msgnode.structures.log_limits import printable

HERE = Path(__file__).parent
ASSETS = {
    "htmx.min.js": "text/javascript",
    "uPlot.iife.min.js": "text/javascript",
    "uPlot.min.css": "text/css",
    "dashboard.js": "text/javascript",
    "dashboard.css": "text/css",
    "icon.svg": "image/svg+xml",
}
# The pages in the menu: name, path and title; and the roles of which each needs one.
MENU = (
    ("", "/", "Overview"),
    ("sessions", "/sessions", "Sessions"),
    ("refusals", "/refusals", "Refusals"),
    ("top", "/top", "Top"),
    ("addresses", "/addresses", "Addresses"),
    ("trace", "/trace", "Trace"),
    ("nodes", "/nodes", "Nodes"),
    ("bans", "/bans", "Bans"),
    ("policies", "/policies", "Policies"),
    ("memory", "/memory", "Memory"),
    ("config", "/config", "Configuration"),
    ("audit", "/audit", "Audit"),
)
VIEWERS = ("viewer", "operator", "admin")
MENU_ROLES = {
    **{page: VIEWERS for page, _, _ in MENU},
    "audit": ("admin",),
    "policies": ("admin", "policy-manager"),
}
SHARED = ("base.html", "macros.html")  # templates that every page uses
SPARK_WIDTH, SPARK_HEIGHT = 120, 28
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def shown(value: Any) -> Any:
    """
    A value as templates put it into a page: names come from strangers, so control characters are replaced.
    """
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def number(value: float | None) -> str:
    """
    1234567 as 1,234,567; small fractions with two digits.
    """
    if value is None:
        return "–"
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.2f}"


def size(value: float | None) -> str:
    """
    A number of bytes with its unit.
    """
    if value is None:
        return "–"
    power = 0
    while value >= 1024 and power < len(UNITS) - 1:
        value, power = value / 1024, power + 1
    return f"{value:,.0f} {UNITS[power]}" if power == 0 or value >= 100 else f"{value:,.1f} {UNITS[power]}"


def duration(seconds: float | None) -> str:
    """
    Seconds in the two largest units: 3 d 4 h.
    """
    if seconds is None:
        return "–"
    left = max(0, int(seconds))
    parts = []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if left >= length:
            parts.append(f"{left // length} {unit}")
            left %= length
    return " ".join(parts[:2]) or f"{max(seconds, 0) * 1000:.0f} ms"


def short_time(seconds: float | None) -> str:
    """
    Seconds in microseconds, or in milliseconds: 512 µs, 8.19 ms.
    """
    if seconds is None:
        return "–"
    return f"{seconds * 1e6:.0f} µs" if seconds < 0.001 else f"{seconds * 1000:,.3g} ms"


def clock(at: float | None) -> str:
    """
    A time as 2026-11-24 02:41:07, in UTC.
    """
    return "–" if not at else time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))


def moment(at: float) -> str:
    """
    A time of the day with its milliseconds, in UTC.
    """
    return f"{time.strftime('%H:%M:%S', time.gmtime(at))}.{int(at % 1 * 1000):03}"


def iso(at: float) -> str:
    """
    A time as RFC 3339 has it, for machines.
    """
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def raw(value: Any) -> Markup:
    """
    A value for a field of a form, which must come back as it is: escaped, with all its characters.
    """
    return escape("" if isinstance(value, Undefined) else value)


def last_value(values: Sequence[float | None]) -> float | None:
    """
    The newest value that is known.
    """
    return next((value for value in reversed(values) if value is not None), None)


def newest(values: Sequence[float | None]) -> float | None:
    """
    The newest value; None if it is not known, however well older ones are.
    """
    return values[-1] if values else None


def spark(values: Sequence[float | None]) -> str:
    """
    The points of a small line chart.
    """
    known = [value for value in values if value is not None]
    top = max(known, default=0.0) or 1.0
    step = SPARK_WIDTH / max(1, len(values) - 1)
    return " ".join(
        f"{place * step:.1f},{SPARK_HEIGHT - 1 - value / top * (SPARK_HEIGHT - 2):.1f}"
        for place, value in enumerate(values)
        if value is not None
    )


def thinned(values: Sequence[float | None], most: int = 120) -> list[float | None]:
    """
    At most so many points, each the largest of those that it stands for.
    """
    if len(values) <= most:
        return list(values)
    width = -(-len(values) // most)
    found: list[float | None] = []
    for start in range(0, len(values), width):
        known = [value for value in values[start : start + width] if value is not None]
        found.append(max(known) if known else None)
    return found


class Renderer:
    """
    The templates, and the assets with a version in their URL, so that browsers may keep them.
    """

    def __init__(self) -> None:
        self.assets, self.zipped, self.version = _assets()
        self._templates = _environment()
        self._loaded: set[str] = set()

    def is_loaded(self, template: str) -> bool:
        """
        Whether the template is compiled, which takes some 50 ms.
        """
        return template in self._loaded

    def load(self, template: str) -> None:
        """
        Compiles the template, and those that every page uses; also in a thread.
        """
        for name in (*SHARED, template):
            self._templates.get_template(name)
        self._loaded.add(template)

    def render(self, template: str, **context: Any) -> bytes:
        return self._templates.get_template(template).render(**context).encode("utf-8", "replace")


@cache
def _environment() -> Environment:
    """
    The templates of all pages, each compiled once in a process.
    """
    version = _assets()[2]
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        auto_reload=False,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": number,
        "size": size,
        "bits": bits,
        "duration": duration,
        "clock": clock,
        "short_time": short_time,
        "spark": spark,
        "thinned": thinned,
        "last_value": last_value,
        "newest": newest,
        "iso": iso,
        "moment": moment,
        "raw": raw,
        "json": lambda value: json.dumps(value, ensure_ascii=False, default=str),
        "quoted": lambda text: quote(text, safe=""),
    }
    made.globals["asset"] = lambda name: f"/assets/{name}?v={version}"
    made.globals |= {
        "link": link,
        "with_value": with_value,
        "without": without,
        "menu": MENU,
        "menu_roles": MENU_ROLES,
    }
    return made


@cache
def _assets() -> tuple[dict[str, bytes], dict[str, bytes], str]:
    """
    The assets by name, the same compressed, and a word that changes with them.
    """
    assets = {name: (HERE / "assets" / name).read_bytes() for name in ASSETS}
    zipped = {name: gzip.compress(data, 9, mtime=0) for name, data in assets.items()}
    return assets, zipped, sha256(b"".join(assets.values())).hexdigest()[:12]


def link(path: str, **query: Any) -> str:
    """
    A URL with those parameters that are set.
    """
    wanted = {name: value for name, value in query.items() if value not in ("", None, 0)}
    return f"{path}?{urlencode(wanted, errors='replace')}" if wanted else path


def with_value(query: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    return {**query, name: value}


def without(query: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in query.items() if key != name}
