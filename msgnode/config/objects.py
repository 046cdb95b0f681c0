"""
The options of kept objects, and the patterns of their addresses.
"""

import re
from collections.abc import Iterator

from msgnode.config.sections import Bytes, Count, OrOff, Section

BELOW = "/..."  # at the end of a pattern: all that is below
CHANNELS = ("/changes/", "/children/", "/history/", "/subscription/")  # in the address of no object
_NO_OBJECTS = ("domain", "global", "mn", "runtime", "hyperty", "hyperty-runtime")
_PATTERN = re.compile(r"([a-z][a-z0-9+.-]*)://([^/*]+)(/[^/]+)+")


class ObjectsOptions(Section):
    """
    Options of kept objects: the patterns of their addresses, how much of their journal is kept and for how
    long, and their limits.
    """

    keep: list[str] = []
    keep_bytes: Bytes = 256 * 1024 * 1024
    keep_days: OrOff = 30
    max_objects: Count = 10_000
    max_objects_per_creator: OrOff = 1000
    max_object_bytes: Bytes = 1024 * 1024
    max_replay: Count = 10_000


def compiled(patterns: list[str]) -> re.Pattern[str]:
    """
    A regular expression for the addresses of all these objects.

    `*` stands for any characters of one segment; at the end, `/...` stands for all that is below.
    """
    return re.compile("|".join(map(_expression, patterns)) or r"(?!)")


def beginnings(patterns: list[str]) -> tuple[str, ...]:
    """
    The texts with which the addresses of these objects begin.
    """
    return tuple(dict.fromkeys(pattern.removesuffix(BELOW).partition("*")[0] for pattern in patterns))


def _expression(pattern: str) -> str:
    is_below = pattern.endswith(BELOW)
    start = pattern.removesuffix(BELOW) if is_below else pattern
    found = re.escape(start).replace(r"\*", "[^/]+")
    return found + "/.+" if is_below else found


def pattern_mistake(pattern: str, domain: str) -> str:
    """
    The mistake in a pattern; empty if there is none.
    """
    match = _PATTERN.fullmatch(pattern)
    if match is None or match[1] in _NO_OBJECTS or any(each in f"{pattern}/" for each in CHANNELS):
        return f"expected the addresses of objects, such as comm://{domain}/rooms/*, found {pattern!r}"
    if match[2].casefold() != domain.casefold():
        return f"expected objects of {domain}, whose node keeps them, found {pattern!r}"
    if any(segment.count("*") > 1 for segment in pattern.split("/")):
        return f"expected at most one * between two slashes, found {pattern!r}"
    return ""


def objects_mistakes(options: ObjectsOptions, domain: str, has_state: bool) -> Iterator[tuple[str, str]]:
    for pattern in options.keep:
        mistake = pattern_mistake(pattern, domain)
        if mistake:
            yield "objects.keep", mistake
    if options.keep and not has_state:
        yield "objects.keep", "expected a state directory to keep objects in, found state = 'none'"
