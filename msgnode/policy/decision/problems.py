"""
Errors in a policy document: where, and what was expected.
"""

from msgspec import Struct

Place = tuple[str | int, ...]


class Problem(Struct, frozen=True):
    """
    An error at a place of a document. `pointer` is a JSON pointer (RFC 6901).
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
    A document that is not a valid policy. `problems` lists all errors in the order of the text.
    """

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class InvalidValue(Exception):
    """
    An invalid part of a document. It is caught where the place of the part is known.

    `under` is the path from there to the part.
    """

    def __init__(self, text: str, *under: str | int) -> None:
        super().__init__(text)
        self.under = under


def pointer(place: Place) -> str:
    """
    The JSON pointer of a place.
    """
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in place)
