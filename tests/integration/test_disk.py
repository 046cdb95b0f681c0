"""
A real disk of a few megabytes that fills up under a node, and has room again.
"""

import json
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.process import PATIENCE, Lines, NodeProcess

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


def test_nothing_new_is_taken_on_while_the_disk_is_low(small: Path):
    """
    Nothing new is taken on while the disk is low, everything else goes on, and the log yields before.
    """
    node = NodeProcess(state=str(small / "state"), traffic=str(small / "traffic"))
    wish = {"type": "subscribe", "from": ANN, "to": "domain://msg-node.localhost/sm"}
    try:
        ann = Lines(node.ports["line"], ANN)
        (small / "ballast").write_bytes(b"\0" * (98 * MEBI + MEBI // 2))
        for _ in ("log", "state"):
            node.read_until("no new data is accepted")

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


def test_the_first_start_ever_may_be_on_a_full_disk(small: Path):
    """
    The node starts, degraded; its registry and the operators' token are there when there is room.
    """
    ballast = small / "ballast"
    with ballast.open("wb") as file, suppress(OSError):
        while True:
            file.write(b"\0" * MEBI)
    with ballast.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 512)
    node = NodeProcess(state=str(small / "state"), traffic="none")
    create = {"type": "read", "from": ANN, "to": "domain://registry.localhost"}
    question = {**create, "body": {"resource": "/hyperty/user/user://localhost/ann"}}
    try:
        assert live(node)["status"] == "degraded"
        ballast.unlink()
        node.read_until("registry: embedded")
        token = small / "state/admin-token"
        policies = f"http://127.0.0.1:{node.ports['admin']}/policy/policies"
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(urllib.request.Request(policies, headers={"Authorization": "Bearer x"}))
        assert token.read_text().startswith("mna_")
        ann = Lines(node.ports["line"], ANN)

        asked = ann.ask({**question, "id": 2})
        deadline = time.monotonic() + PATIENCE
        while asked["body"]["code"] in (503, 504) and time.monotonic() < deadline:
            time.sleep(0.5)  # it had been given up
            asked = ann.ask({**question, "id": 2})

        assert 404 == asked["body"]["code"], asked
        assert live(node)["status"] == "up"
    finally:
        node.stop()
