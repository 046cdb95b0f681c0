"""
The one Spark of a test run, and the one process with sandboxes, for all integration tests.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.sandboxed import Sandboxes
from tests.mining.conftest import spark

__all__ = ["spark"]


# Files of few and long tests. xdist gives out the files with many tests first, and these last, so that one
# worker ended minutes after the others: they come first, with --no-loadscope-reorder.
LONG = (
    "test_run.py",
    "test_soak.py",
    "test_federation_routes.py",
    "test_packages.py",
    "test_attack.py",
    "test_mining_cluster.py",
    "test_mining_federation.py",
    "test_mining.py",
    "test_cluster_logins.py",
    "test_cluster_nodes.py",
    "test_link_operations.py",
)
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """
    Long files first; the others keep their order.
    """
    place = {HERE / name: number for number, name in enumerate(LONG)}
    assert all(path.exists() for path in place), "a name in LONG is of no file"
    items.sort(key=lambda item: place.get(item.path, len(LONG)))


@pytest.fixture(scope="session")
def sandboxes() -> Iterator[Sandboxes]:
    process = Sandboxes()
    yield process
    process.close()
