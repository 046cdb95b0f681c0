"""
Attacks on a node over sockets, in a small size.
"""

import json
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parent.parent.parent


def test_node_bears_attacks(tmp_path):
    """
    Whatever tools/attack does to a node, others go on, and what must be refused is refused.
    """
    results = tmp_path / "results.json"

    done = subprocess.run(
        [sys.executable, TOP / "tools/attack", "--size", "small", "--json", results],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(results.read_text())
    assert {attack["name"]: "" for attack in found} == {attack["name"]: attack["broke"] for attack in found}
    assert len(found) > 20
