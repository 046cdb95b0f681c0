"""
Load with each fault once; MSGNODE_FUZZ=31 adds half an hour of them, as they come.
"""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.fuzz import TIMES

TOP = Path(__file__).parent.parent.parent
MINUTES = str(TIMES - 1)  # after each fault came once
TIMEOUT = 1800 + 60 * TIMES  # a soak ends by itself when nothing moves any more


def test_promises_are_kept(tmp_path):
    """
    While the node is killed, connections break and clients send garbage, nothing is lost or comes twice.
    """
    figures = tmp_path / "figures.json"

    done = subprocess.run(
        [sys.executable, TOP / "tools/soak", "--seed", "7", "--minutes", MINUTES, "--json", figures],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(figures.read_text())
    assert found["broken promises"] == []
    assert found["kills"] > 0 and found["delivered"] > 1000


def test_promises_are_kept_between_domains(tmp_path):
    """
    While one link of three nodes is cut and each of them is killed, nothing is lost, doubled, out of order or
    kept silent about.
    """
    figures = tmp_path / "figures.json"
    command = [sys.executable, TOP / "tools/soak", "--federation", "3", "--minutes", "0", "--seed", "3"]

    done = subprocess.run(
        [*command, "--json", figures], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(figures.read_text())
    assert found["broken promises"] == []
    assert found["kills"] == 3 and found["messages delivered"] > 200


def test_promises_are_kept_by_several_nodes_of_one_domain(tmp_path):
    """
    While a node of three, a node with NATS, and NATS alone are killed, and connections break, nothing is
    lost, doubled, out of order or kept silent about, and each session is held once in the end.
    """
    figures = tmp_path / "figures.json"
    faults = ["break_connections", "kill_node", "kill_both", "kill_all_nats"]
    command = [sys.executable, TOP / "tools/soak", "--cluster", "3", "--sticky", "--minutes", "0"]

    done = subprocess.run(
        [*command, "--seed", "2", "--rate", "10", "--json", figures, "--only", *faults],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(figures.read_text())
    assert found["broken promises"] == []
    assert found["kills"] == 2 and found["messages delivered"] > 200
