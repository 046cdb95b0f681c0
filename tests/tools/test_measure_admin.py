"""
tools/measure-admin says how long lists hold the event loop.
"""

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools/measure-admin"


def test_every_list_is_measured_and_answered() -> None:
    """
    With few sessions, as with many.
    """
    done = subprocess.run(
        [sys.executable, TOOL, "200"], capture_output=True, text=True, timeout=60, check=True
    )

    first, *lines = done.stdout.splitlines()
    assert first == "200 sessions, 10 of them attached"
    assert len(lines) > 10
    assert all(" 200  longest turn" in line for line in lines), lines
