"""
The one Spark of a test run, and the one process with sandboxes, for all integration tests.
"""

from collections.abc import Iterator

import pytest

from tests.integration.sandboxed import Sandboxes
from tests.mining.conftest import spark

__all__ = ["spark"]


@pytest.fixture(scope="session")
def sandboxes() -> Iterator[Sandboxes]:
    process = Sandboxes()
    yield process
    process.close()
