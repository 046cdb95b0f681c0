"""
Imports point down: the tap knows the connectors, the connectors know the core, the core knows no network.
"""

import ast
import sys
from pathlib import Path

import msgnode

PACKAGE = Path(msgnode.__file__).parent
EDGE = ("connectors", "cli", "client", "mining", "devregistry")
EDGE += ("tap", "options", "backends", "offers", "policywiring", "store", "restart")
# What the core may import besides the standard library.  platformdirs only
# says where a user's data lies; a Failure is an exception with its traceback.
CORE = {
    "msgspec",
    "platformdirs",
    "twisted.application.service",
    "twisted.internet.defer",
    "twisted.internet.interfaces",
    "twisted.internet.task",
    "twisted.logger",
    "twisted.python.failure",
    "zope.interface",
}
# What connectors share.  longpoll is poll's own, body and dial are rest's, tokens and what it needs
# idm's.
SHARED = {
    f"msgnode.connectors.{name}"
    for name in (
        "answers",
        "asked",
        "backlog",
        "cork",
        "faults",
        "hosts",
        "lane",
        "paths",
        "rest",
        "web",
        "wire",
    )
}
OWN = {
    ("msgnode.connectors.listener", "msgnode.connectors.tls"),
    ("msgnode.connectors.message", "msgnode.connectors.exchange"),
    ("msgnode.connectors.message", "msgnode.connectors.openapi"),
    ("msgnode.connectors.poll", "msgnode.connectors.longpoll"),
    ("msgnode.connectors.poll", "msgnode.connectors.posting"),
    ("msgnode.connectors.posting", "msgnode.connectors.longpoll"),
    ("msgnode.connectors.globalregistry", "msgnode.connectors.globalrecord"),
    ("msgnode.connectors.rest", "msgnode.connectors.body"),
    ("msgnode.connectors.rest", "msgnode.connectors.dial"),
    ("msgnode.connectors.rest", "msgnode.connectors.outcomes"),
    ("msgnode.connectors.outcomes", "msgnode.connectors.body"),
    ("msgnode.connectors.policysource", "msgnode.connectors.outcomes"),
    ("msgnode.connectors.idm", "msgnode.connectors.jws"),
    ("msgnode.connectors.idm", "msgnode.connectors.tokens"),
    ("msgnode.connectors.tokens", "msgnode.connectors.jws"),
    ("msgnode.connectors.tokens", "msgnode.connectors.provider"),
    ("msgnode.connectors.tokens", "msgnode.connectors.introspection"),
    ("msgnode.connectors.tokens", "msgnode.connectors.opaque"),
    ("msgnode.connectors.opaque", "msgnode.connectors.introspection"),
    ("msgnode.connectors.opaque", "msgnode.connectors.jws"),
    ("msgnode.connectors.introspection", "msgnode.connectors.jws"),
    ("msgnode.connectors.introspection", "msgnode.connectors.provider"),
    ("msgnode.connectors.provider", "msgnode.connectors.jws"),
}
# Socket.IO's modules, each of which may import those before it.
SOCKET_IO = [
    f"msgnode.connectors.{name}"
    for name in (
        "engineio",
        "socketacks",
        "socketpolls",
        "socketclient",
        "socketlane",
        "socketio",
        "polllane",
    )
]
OWN |= {(above, below) for n, above in enumerate(SOCKET_IO) for below in SOCKET_IO[:n]}


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
CORE_MODULES = [name for name in TREE if name.split(".")[1:2] == [] or name.split(".")[1] not in EDGE]


class TestImports:
    """
    The rule of the design, kept by reading the source.
    """

    def test_core(self):
        """
        The core imports the standard library, itself, and of others only what has no network in it.
        """
        wrong = [
            (name, imported)
            for name in CORE_MODULES
            for imported in IMPORTS[name]
            if imported not in CORE
            and imported not in CORE_MODULES
            and imported.partition(".")[0] not in sys.stdlib_module_names
        ]

        assert wrong == []

    def test_connectors(self):
        """
        Connectors do not import each other.
        """
        prefix = "msgnode.connectors."
        wrong = [
            (name, imported)
            for name in TREE
            for imported in IMPORTS[name]
            if name.startswith(prefix)
            and imported.startswith(prefix)
            and imported not in SHARED
            and (name, imported) not in OWN
        ]

        assert wrong == []

    def test_client(self):
        """
        The client shares with the node what an address and a closing are, and nothing else.
        """
        own = {
            imported
            for name in TREE
            for imported in IMPORTS[name]
            if name.startswith("msgnode.client") and imported.startswith("msgnode.")
        }

        assert {"msgnode.address", "msgnode.closing"} == {
            name for name in own if not name.startswith("msgnode.client")
        }

    def test_tap(self):
        """
        Nobody imports a tap.
        """
        taps = {"msgnode.tap", "msgnode.devregistry.tap"}
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

        assert found == ["msgnode.devregistry.tap", "msgnode.tap"]

    def test_tree(self):
        """
        The test sees the tree: the core, the connectors and the tap.
        """
        assert {"msgnode.router", "msgnode.session", "msgnode.config"} <= set(CORE_MODULES)
        assert {"msgnode.connectors.tcp", "msgnode.tap"} <= set(TREE) - set(CORE_MODULES)
