"""
What makes thousands of short tests quick: costs that pytest and Python have at each of them.
"""

import gc
import importlib.metadata
import os
import sys
from collections import deque
from collections.abc import Generator
from functools import cache
from typing import Any
from unittest import TestCase

import autobahn.twisted.websocket
import autobahn.websocket.protocol
import pytest
import twisted.trial._synctest
from _pytest.fixtures import FixtureFunctionDefinition, FixtureManager
from hypothesis import HealthCheck, settings
from twisted.logger import globalLogBeginner

from tests.support.fuzz import TIMES

# Images and machines of CI often say that no bytecode be kept. Then each worker, and each node that a test
# starts, would compile every module again: half of a node's start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# pytest asks for Twisted's version at each test, and its metadata are read and parsed each time.
importlib.metadata.version = cache(importlib.metadata.version)

# Autobahn colours and lays out what it would log at debug level, for each read and each connection.
for _module in (autobahn.twisted.websocket, autobahn.websocket.protocol):
    vars(_module).update(
        dict.fromkeys(vars(_module).keys() & {"hltype", "hlval", "pformat"}, lambda value: "")
    )

# Twisted keeps the newest 200 events for a log that begins later, and with an event the node that logged it.
vars(vars(globalLogBeginner)["_initialBuffer"]).update(_buffer=deque(maxlen=0))

# Trial looks at each module there is before each test, for flushWarnings, which no test uses.
vars(twisted.trial._synctest).update(_setWarningRegistryToNone=lambda modules: None)

_parsefactories = FixtureManager.parsefactories


def _parse_factories(manager: Any, *objects: Any, holder: Any = None, **more: Any) -> None:
    """
    pytest looks for fixtures among all that a test case has, a hundred methods of Trial's among them.
    """
    if isinstance(holder, TestCase):
        found = (value for base in type(holder).__mro__ for value in vars(base).values())
        if not any(isinstance(value, FixtureFunctionDefinition) for value in found):
            return
    if holder is not None:
        more["holder"] = holder
    _parsefactories(manager, *objects, **more)


FixtureManager.parsefactories = _parse_factories

# How slow an example is says how busy the machine is: what may take long is stated by tests of its own.
settings.register_profile(
    "msgnode",
    settings(),
    max_examples=25 * TIMES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("msgnode")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """
    Trial's test cases refer to themselves, and are made before gc.freeze: each would keep its whole node.
    """
    case = getattr(item, "instance", None)
    yield
    if isinstance(case, TestCase):
        vars(case).clear()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """
    What is imported stays until the end; the garbage collector need not look through it again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
