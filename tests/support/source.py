"""
The program's source, parsed once for all tests that read it: a parse of all of it takes seconds.
"""

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgnode

PACKAGE = Path(msgnode.__file__).parent


class Source(NamedTuple):
    """
    What is looked for in a module: the whole trees would be millions of objects.
    """

    path: Path
    text: str
    imports: list[ast.Import | ast.ImportFrom]
    docstrings: list[tuple[int, str]]  # with the line of what they describe
    calls: list[ast.Call]


@cache
def sources() -> dict[Path, Source]:
    """
    Each module of the package, by its path.
    """
    return {path: _read(path) for path in sorted(PACKAGE.rglob("*.py"))}


def _read(path: Path) -> Source:
    found = Source(path, path.read_text("utf-8"), [], [], [])
    for node in ast.walk(ast.parse(found.text)):
        if isinstance(node, ast.Call):
            found.calls.append(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.imports.append(node)
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.docstrings.append((getattr(node, "lineno", 1), ast.get_docstring(node) or ""))
    return found
