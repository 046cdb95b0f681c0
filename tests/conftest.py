"""
What makes thousands of short tests quick: costs that pytest and Python have at each of them.
"""

import gc
import importlib.metadata
import os
from functools import cache

import pytest
from hypothesis import settings

# pytest asks for Twisted's version at each test, and its metadata are read and parsed each time.
importlib.metadata.version = cache(importlib.metadata.version)


# As many examples as each change needs; MSGNODE_FUZZ=100 tries a hundred times as many.
settings.register_profile(
    "msgnode", settings(), max_examples=40 * int(os.environ.get("MSGNODE_FUZZ", "1")), deadline=None
)
settings.load_profile("msgnode")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """
    What is imported stays until the end; the garbage collector need not look through it again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
