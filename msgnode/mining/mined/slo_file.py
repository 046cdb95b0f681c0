"""
The file of service level objectives: TOML, one table `[[slo]]` for each.

    [[slo]]
    name = "reads are answered"
    share = 0.99            # of the requests, answered within the time
    within_ms = 500
    type = ["read"]         # all types if left out
    domain = "example.org"  # of the address asked, or of the sender for `not_refused`; all if left out
    days = 30               # the period of the error budget

    [[slo]]
    name = "nothing is refused"
    share = 0.999
    not_refused = true
    except_codes = [400, 403]  # the fault of the sender
"""

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

MAX_SLOS = 100
MAX_WITHIN_MS = 120_000  # later answers are not paired with their request


class BadSLO(ValueError):
    """
    The file cannot be used. The text names the line and the key.
    """


@dataclass(frozen=True)
class SLO:
    """
    A service level objective: this share of the messages is good, over so many days.

    Good is an answer within `within_ms`, or, with `not_refused`, that the message is neither refused nor
    without a route. `burn_1h` and `burn_6h` are the burn rates at which the check fails.
    """

    name: str
    share: float
    within_ms: float = 0.0
    not_refused: bool = False
    type: tuple[str, ...] = ()
    domain: tuple[str, ...] = ()
    except_codes: tuple[int, ...] = ()
    days: int = 30
    burn_1h: float = 14.4
    burn_6h: float = 6.0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_texts(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return bool(values) and all(isinstance(each, str) and each for each in values)


_EXPECTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "name": (lambda value: isinstance(value, str) and bool(value.strip()), "a text"),
    "share": (
        lambda value: _is_number(value) and 0 < value < 1,
        "a number above 0 and below 1, such as 0.99",
    ),
    "within_ms": (
        lambda value: _is_number(value) and 0 < value <= MAX_WITHIN_MS,
        f"milliseconds above 0, at most {MAX_WITHIN_MS}",
    ),
    "not_refused": (lambda value: value is True, "true, or no such key"),
    "type": (_is_texts, "a type, or a list of types"),
    "domain": (_is_texts, "a domain, or a list of domains"),
    "except_codes": (
        lambda value: isinstance(value, list) and all(type(each) is int for each in value),
        "a list of codes",
    ),
    "days": (lambda value: type(value) is int and 1 <= value <= 366, "whole days from 1 to 366"),
    "burn_1h": (lambda value: _is_number(value) and value > 0, "a number above 0"),
    "burn_6h": (lambda value: _is_number(value) and value > 0, "a number above 0"),
}


def parse_slos(text: str, path: str) -> list[SLO]:
    """
    The objectives of a file. BadSLO with `path:line: key: what is expected, what came`.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as why:
        line = re.search(r"at line (\d+)", str(why))
        raise BadSLO(f"{path}:{line[1] if line else 1}: {why}") from None
    for key in table:
        if key != "slo":
            raise BadSLO(f"{path}:{_line(text, key)}: {key}: unknown; the file has only tables [[slo]]")
    found = table.get("slo", [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise BadSLO(f"{path}:{_line(text, 'slo')}: slo: expected tables with the heading [[slo]]")
    if not found:
        raise BadSLO(f"{path}:1: slo: missing; expected one table [[slo]] or more")
    if len(found) > MAX_SLOS:
        raise BadSLO(f"{path}:1: slo: {len(found)} are too many; at most {MAX_SLOS}")
    slos = [_slo(each, at, text, path) for at, each in enumerate(found)]
    for at, slo in enumerate(slos):
        if slo.name in [other.name for other in slos[:at]]:
            raise BadSLO(
                f"{path}:{_line(text, 'name', at)}: name: {slo.name!r} is the name of another [[slo]]"
            )
    return slos


def _slo(given: dict[str, Any], at: int, text: str, path: str) -> SLO:
    def refused(key: str, why: str) -> BadSLO:
        return BadSLO(f"{path}:{_line(text, key, at)}: {key}: {why}")

    for key, value in given.items():
        if key not in _EXPECTED:
            raise refused(key, f"unknown; known are {', '.join(field.name for field in fields(SLO))}")
        is_good, expected = _EXPECTED[key]
        if not is_good(value):
            raise refused(key, f"expected {expected}, not {value!r}")
    for key in ("name", "share"):
        if key not in given:
            raise refused(key, "missing")
    if ("within_ms" in given) == ("not_refused" in given):
        raise refused("within_ms", "expected either within_ms or not_refused = true")
    if "except_codes" in given and "not_refused" not in given:
        raise refused("except_codes", "only for not_refused")
    lists = {
        key: tuple(value.lower() for value in _listed(given[key]))
        for key in ("type", "domain")
        if key in given
    }
    return SLO(**given | lists | {"except_codes": tuple(given.get("except_codes", ()))})


def _listed(value: str | list[str]) -> list[str]:
    return value if isinstance(value, list) else [value]


def _line(text: str, key: str, table: int = 0) -> int:
    """
    The line of a key in a table [[slo]], counted from 0; if it is not there, the line of the heading.
    """
    heading, seen = 1, -1
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*\[\[\s*slo\s*\]\]", line):
            seen += 1
            if seen == table:
                heading = number
        elif seen in (table, -1) and re.match(rf"""\s*(\[+\s*)?["']?{re.escape(key)}["']?\s*[=\].]""", line):
            return number
    return heading
