"""
The same conversations with a node with the compiled data plane and with one without: a dozen of them.

`tools/differential` holds a thousand.
"""

from pathlib import Path

import pytest

native = pytest.importorskip("msgnode_native", reason="msgnode_native is not built")

from tests.support.differential import converse  # noqa: E402

SEEDS = 12


def test_no_client_notices(tmp_path: Path) -> None:
    """
    All clients get the same bytes, the log has the same lines, and the counts are the same.
    """
    carried = [converse(native, seed, tmp_path / str(seed)) for seed in range(SEEDS)]

    assert sum(carried) > 20 * SEEDS, "hardly anything was carried"
