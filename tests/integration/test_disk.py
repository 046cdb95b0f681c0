"""
A real disk of a few megabytes that fills up under a node, and has room again.
"""

import json
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.integration.process import Lines, NodeProcess

ANN = "runtime://localhost/ann"
MEBI = 1024 * 1024


@pytest.fixture
def small(tmp_path):
    """
    A directory on a disk of its own, of 100 MiB.
    """
    mount = ["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", str(tmp_path)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("only root may mount a disk")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=False)


def live(node):
    with urllib.request.urlopen(f"http://127.0.0.1:{node.ports['admin']}/live", timeout=5) as answer:
        return json.load(answer)


def test_low(small: Path):
    """
    Nothing new is taken on while the disk is low, everything else goes on, and the log yields before.
    """
    node = NodeProcess(state=str(small / "state"), traffic=str(small / "traffic"))
    wish = {"type": "subscribe", "from": ANN, "to": "domain://msg-node.localhost/sm"}
    try:
        ann = Lines(node.ports["line"], ANN)
        (small / "ballast").write_bytes(b"\0" * (98 * MEBI + MEBI // 2))
        for _ in ("log", "state"):
            node.read_until("nothing new is kept there")

        refused = ann.ask({**wish, "id": 2, "body": {"resources": ["a:b"]}})
        freed = ann.ask({**wish, "id": 3, "type": "unsubscribe", "body": {"resources": ["a:b"]}})
        status = live(node)

        assert [503, 200] == [refused["body"]["code"], freed["body"]["code"]]
        assert status["status"] == "degraded"
        (small / "ballast").unlink()
        for _ in ("log", "state"):
            node.read_until(" again")
        taken = ann.ask({**wish, "id": 4, "body": {"resources": ["a:b"]}})
        assert taken["body"]["code"] == 200
        assert live(node)["status"] == "up"
    finally:
        node.stop()
