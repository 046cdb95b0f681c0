"""
A minute of load with faults.
"""

import json
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parent.parent.parent


def test_promises_are_kept(tmp_path):
    """
    While the node is killed, connections break and clients babble, nothing is lost, doubled or mixed up.
    """
    figures = tmp_path / "figures.json"

    done = subprocess.run(
        [sys.executable, TOP / "tools/soak", "--seed", "7", "--minutes", "1", "--json", figures],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(figures.read_text())
    assert found["broken promises"] == []
    assert found["kills"] > 0 and found["delivered"] > 1000
