"""
Factories that log nothing: Twisted's write a line when they start and when they stop, with their names.
"""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

from autobahn.twisted.websocket import WebSocketServerFactory
from twisted.internet.protocol import Factory

import msgnode

PLAIN = re.compile(r"(?<![\w.])(Server|Client)?Factory\.forProtocol\(")
APART = ("msgnode.cli", "msgnode.mining")  # commands, which have no log of a node


def subclasses(of: type[Factory]) -> Iterator[type[Factory]]:
    for each in of.__subclasses__():
        yield each
        yield from subclasses(each)


def test_no_factory_of_the_node_logs_its_start() -> None:
    """
    Each class of ours sets `noisy`, as Autobahn's servers do themselves; none is made of Twisted's alone.
    """
    names = [module.name for module in pkgutil.walk_packages(msgnode.__path__, "msgnode.")]
    for name in names:
        if not name.startswith(APART) and not name.endswith("__main__"):
            importlib.import_module(name)

    found = {each for each in subclasses(Factory) if each.__module__.startswith("msgnode.")}

    assert len(found) >= 10
    own = [each for each in found if not issubclass(each, WebSocketServerFactory)]
    assert [] == sorted(each.__qualname__ for each in own if each.noisy)
    sources = [path.read_text("utf-8") for path in Path(msgnode.__path__[0]).rglob("*.py")]
    assert [] == [line for text in sources for line in text.splitlines() if PLAIN.search(line)]
