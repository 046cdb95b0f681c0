"""
Imports point down: the tap knows the connectors, the connectors know the core, the core knows no network.
"""

import ast
from pathlib import Path

import msgnode

PACKAGE = Path(msgnode.__file__).parent


def imports(path: Path) -> set[str]:
    """
    The modules a file imports, wherever it does, but those for the types alone.
    """
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for name in node.names:
                whole = f"{node.module}.{name.name}"
                found.add(whole if whole in TREE or node.module == "twisted.internet" else node.module)
    return found


def module(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TREE = {module(path): path for path in sorted(PACKAGE.rglob("*.py"))}
IMPORTS = {name: imports(path) for name, path in TREE.items()}


class TestImports:
    """
    The rule of the design, kept by reading the source.
    """

    def test_tap(self):
        """
        Nobody imports a tap.
        """
        taps = {name for name in TREE if name.endswith(".tap")}
        assert [name for name in TREE if taps & IMPORTS[name]] == []

    def test_no_cycle(self):
        """
        No module imports itself, however far round.
        """
        left = {name: {i for i in IMPORTS[name] if i in TREE} for name in TREE}
        while free := [name for name, needed in left.items() if not needed & left.keys()]:
            for name in free:
                del left[name]

        assert left == {}

    def test_reactor(self):
        """
        No module takes the reactor from the air but the taps, inside makeService.
        """
        found = [name for name in TREE if "twisted.internet.reactor" in IMPORTS[name]]

        assert found == [name for name in TREE if name.endswith(".tap")]
