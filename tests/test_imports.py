"""
Imports point one way: the rooms of the source have an order, and no circle is in them.
"""

import ast
from functools import cache
from pathlib import Path

from tests.support.source import PACKAGE, sources

# A room may import those before it, and its own.
LAYERS = ("structures", "records", "protocol", "config", "transport", "sessions", "storage", "policy", "bus")
LAYERS += ("backends", "nats", "links", "cluster", "foreign", "node", "connectors", "admin", "service")
# What lies beside the node, and all that it may import.
BESIDE = {
    "nats": set(),  # it could be published alone
    "client": {"structures", "records", "protocol", "transport"},
    "devregistry": {*LAYERS[:7], "backends.registry.global_record"},
    "mining": {"policy.decision", "policy.language", "policy.replay"},
    "cli": {*LAYERS[:8], "backends", "links", "cluster", "client", "mining"},
    "service": {*LAYERS, "devregistry"},
}
# Deciding knows no node: mining runs it on other machines.
PURE = {"policy.decision", "policy.language", "policy.replay", "protocol", "structures"}
# The core has no server or client of any protocol in it.
CORE = {*PURE, "sessions", "bus"}
MAX_MODULES = 15  # in a room


def module(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


TREE = {module(path): path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "__init__.py"}
ROOMS = {module(path.parent / "x").rpartition(".")[0] for path in TREE.values()} - {""}


def imports(path: Path) -> set[str]:
    """
    What a file imports, wherever it does, for types alone too; of ours the modules without `msgnode.`.
    """
    found = set()
    for node in sources()[path].imports:
        if isinstance(node, ast.Import):
            found |= {name.name.removeprefix("msgnode.") for name in node.names}
        else:
            assert node.level == 0, f"{path}: relative import"
            for name in node.names:
                whole = f"{node.module}.{name.name}".removeprefix("msgnode.")
                if node.module == "twisted.internet" or whole in TREE or whole in ROOMS:
                    found.add(whole)
                else:
                    found.add(str(node.module).removeprefix("msgnode."))
    return found


@cache
def all_imports() -> dict[str, set[str]]:
    return {name: imports(path) for name, path in TREE.items()}


def below(name: str) -> set[str]:
    """
    The rooms that a module may import, its own among them.
    """
    room = name.partition(".")[0]
    if name.rpartition(".")[0] in PURE and room == "policy":
        return PURE
    beside = BESIDE.get(room)
    return {room} | (set(LAYERS[: LAYERS.index(room)]) if beside is None else beside)


def is_in(name: str, rooms: set[str]) -> bool:
    parts = name.split(".")
    return any(".".join(parts[:n]) in rooms for n in range(1, len(parts) + 1))


def test_rooms_import_only_rooms_below():
    """
    What a module imports lies in its own room, in one below, or is not ours.
    """
    wrong = [
        (name, found)
        for name in TREE
        for found in all_imports()[name] & (TREE.keys() | ROOMS)
        if not is_in(found, below(name))
    ]

    assert wrong == []


def test_modules_import_in_no_circle():
    """
    No module imports itself, however far round, not even for its types.
    """
    left = {name: found & TREE.keys() for name, found in all_imports().items()}
    while free := [name for name, needed in left.items() if not needed & left.keys()]:
        for name in free:
            del left[name]

    assert left == {}


def test_rooms_can_be_taken_in():
    """
    No room has more modules than fit on a screen, and each says in one sentence what it is.
    """
    rooms = {path.parent for path in TREE.values()}

    for room in rooms - {PACKAGE}:
        assert len(list(room.glob("[!_]*.py"))) <= MAX_MODULES, room
        assert ast.get_docstring(ast.parse((room / "__init__.py").read_text())), room
    assert [path.name for path in PACKAGE.glob("*.py")] == ["__init__.py", "node.py"]


def test_deciding_needs_no_network():
    """
    What decides, and what is on the wire, imports neither Twisted's network nor a file of the node's.
    """
    network = ("twisted.web", "twisted.internet.", "autobahn", "treq", "sqlite3", "OpenSSL")

    for name in TREE:
        if is_in(name, PURE):
            allowed = {"twisted.internet.defer", "twisted.internet.interfaces", "twisted.internet.task"}
            found = {each for each in all_imports()[name] - allowed if each.startswith(network)}
            assert not found, name
        if is_in(name, CORE):
            assert not {
                each
                for each in all_imports()[name]
                if each.startswith(("twisted.web", "autobahn", "treq", "sqlite3"))
            }


def test_taps_are_imported_by_nobody():
    """
    A tap is the last: only Twisted's plugins name it, and no other module takes the reactor from the air.
    """
    taps = {name for name in TREE if name.endswith(".tap")}

    assert [name for name in TREE if taps & all_imports()[name]] == []
    assert {name for name in TREE if "twisted.internet.reactor" in all_imports()[name]} == taps
