"""
What is wrong with a policy document: where it stands, what was expected, and the near name.
"""

from collections.abc import Iterable
from difflib import get_close_matches

from msgspec import Struct

Place = tuple[str | int, ...]


class Problem(Struct, frozen=True):
    """
    One thing wrong at a place of a document; `pointer` is a JSON pointer (RFC 6901).
    """

    pointer: str
    line: int
    column: int
    text: str
    where: str = ""

    def __str__(self) -> str:
        place = f"{self.where}:" if self.where else ""
        return f"{place}{self.line}:{self.column}: {self.pointer or '/'}: {self.text}"


class PolicyRefused(Exception):
    """
    A document that is no policy.  `problems` says all that is wrong, in the order of the text.
    """

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class InvalidValue(Exception):
    """
    A part of a document that cannot be read; caught where its place is known.

    `under` leads from there to the part.
    """

    def __init__(self, text: str, *under: str | int) -> None:
        super().__init__(text)
        self.under = under


def pointer(place: Place) -> str:
    """
    The JSON pointer of a place.
    """
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in place)


def near(name: object, known: Iterable[str]) -> str:
    """
    `, did you mean '...'?`, or nothing.
    """
    folded = {each.casefold(): each for each in known}
    found = get_close_matches(str(name).casefold()[:100], folded, 1)
    return f", did you mean '{folded[found[0]]}'?" if found else ""


def shown(value: object) -> str:
    """
    What came, as JSON says it, and short.
    """
    if isinstance(value, dict):
        return "an object" if value else "{}"
    if isinstance(value, list):
        return "a list" if value else "[]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"
