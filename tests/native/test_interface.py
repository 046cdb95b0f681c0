"""
What is written down of the module for type checkers is what it has.
"""

import ast
import inspect
from pathlib import Path

import pytest

native = pytest.importorskip("msgnode_native", reason="msgnode_native is not built")

STUB = ast.parse((Path(__file__).parents[2] / "native/msgnode_native.pyi").read_text())


def names_of(node: ast.Module | ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}


def test_every_function_is_written_down():
    """
    Methods and functions have the names and the parameters that the file for type checkers says.
    """
    (plane,) = (each for each in STUB.body if isinstance(each, ast.ClassDef) and each.name == "Plane")
    for place, written in ((native.Plane, names_of(plane)), (native, names_of(STUB))):
        found = {name for name in dir(place) if not name.startswith("_") and name != "Plane"}
        found = {name for name in found if callable(getattr(place, name))}
        assert found - {"msgnode_native"} == {name for name in written if not name.startswith("_")}
        for name in found - {"msgnode_native"}:
            parameters = inspect.signature(getattr(place, name)).parameters
            arguments = written[name].args
            assert [*parameters] == [each.arg for each in (*arguments.args, *arguments.kwonlyargs)], name
