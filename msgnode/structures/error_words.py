"""
Parts of error texts: similar names, and the short form of an invalid value.
"""

from collections.abc import Iterable
from difflib import get_close_matches


def near(name: object, known: Iterable[str]) -> str:
    """
    `, did you mean '...'?`, or "".
    """
    folded = {each.casefold(): each for each in known}
    found = get_close_matches(str(name).casefold()[:100], folded, 1)
    return f", did you mean '{folded[found[0]]}'?" if found else ""


def shown(value: object) -> str:
    """
    A short form of an invalid value, for error texts.
    """
    if isinstance(value, dict):
        return "an object" if value else "{}"
    if isinstance(value, list):
        return "a list" if value else "[]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"
