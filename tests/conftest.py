"""
What makes thousands of short tests quick: costs that pytest and Python have at each of them.
"""

import gc
import importlib.metadata
from functools import cache

import pytest

# pytest asks for Twisted's version at each test, and its metadata are read and parsed each time.
importlib.metadata.version = cache(importlib.metadata.version)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """
    What is imported stays until the end; the garbage collector need not look through it again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
