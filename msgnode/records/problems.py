"""
Errors in definitions of records: the place, what was expected and what was found.
"""

from typing import NamedTuple

MAX_PROBLEMS = 100  # listed of one set of definitions


class Place(NamedTuple):
    """
    A position in a file; line and column count from 1, the column in characters.
    """

    where: str
    line: int
    column: int


class Problem(NamedTuple):
    """
    An error in a definition, and where it is.
    """

    place: Place
    text: str

    def __str__(self) -> str:
        where, line, column = self.place
        return f"{where}:{line}:{column}: {self.text}"


class DefinitionsRefused(Exception):
    """
    Definitions with errors. `problems` lists them by file and position, at most MAX_PROBLEMS.
    """

    def __init__(self, problems: list[Problem]) -> None:
        listed = sorted(set(problems))[:MAX_PROBLEMS]
        lines = list(map(str, listed))
        if len(set(problems)) > len(listed):
            lines.append(f"and {len(set(problems)) - len(listed)} more")
        super().__init__("\n".join(lines))
        self.problems = listed


class SyntaxRefused(Exception):
    """
    A text that is not JSON or XML. `line` and `column` say where reading stopped.
    """

    def __init__(self, text: str, line: int, column: int) -> None:
        super().__init__(text)
        self.line = line
        self.column = column
