"""
tools/measure-relay says what a relayed request costs beside a direct one.
"""

import re
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools/measure-relay"
LINE = re.compile(
    r"(GET|POST) /\S+ +(direct|relayed) +median \d+\.\d\d ms, CPU at holder and other node: \d+, \d+ us"
)


def test_measures_polls_and_posts() -> None:
    """
    The tool prints the median and the CPU time of both nodes, for each kind of request and each way.
    """
    made = subprocess.run(
        [sys.executable, TOOL, "20"], capture_output=True, text=True, check=True, timeout=100
    )

    found = [LINE.match(line) for line in made.stdout.splitlines()]
    expected = [("GET", "direct"), ("GET", "relayed"), ("POST", "direct"), ("POST", "relayed")]
    assert expected == [line.groups() for line in found if line is not None]
