"""
A node in a process of its own with the compiled data plane, whichever way it waits for events.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgnode_native", reason="msgnode_native is not built")

from .process import PATIENCE, Lines, NodeProcess

TO_NODE = "domain://msg-node.localhost/sm"
POLLERS = {"": "its poller replaces", "nested": "its poller is nested"}
MESSAGES = 20


class LocalLines(Lines):
    """
    A client on a UNIX socket.
    """

    def __init__(self, path: Path, runtime: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(str(path))
        self._file = self.socket.makefile("rb")
        self.ask({"id": 1, "type": "open", "from": runtime, "to": "mn:/session"})


def start(directory: Path, switch: str, performance: str) -> NodeProcess:
    """
    A node that also listens to lines on a UNIX socket.
    """
    directory.mkdir(exist_ok=True)
    config = directory / "node.toml"
    anywhere = '"tcp:0:interface=127.0.0.1"'
    config.write_text(
        f'web = [{anywhere}]\nlines = [{anywhere}, "unix:{directory}/lines"]\n'
        f"[admin]\nlisten = {anywhere}\n[performance]\n{performance}\n"
    )
    return NodeProcess("--config", str(config), listeners=4, environment={"MSGNODE_NATIVE": switch})


@pytest.fixture(params=POLLERS)
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NodeProcess]:
    found = start(tmp_path, request.param, "native = true")
    assert f"carried by the compiled data plane; {POLLERS[request.param]}" in found.said
    yield found
    found.stop()


def carried(node: NodeProcess) -> int:
    """
    How many messages the data plane has carried so far.
    """
    with urllib.request.urlopen(f"http://127.0.0.1:{node.ports['admin']}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    (found,) = [line for line in lines if line.startswith("msgnode_messages_by_flow_total ")]
    return int(float(found.split()[1]))


def test_lines_on_a_unix_socket_are_carried(node: NodeProcess, tmp_path: Path):
    """
    Messages from a UNIX socket to another are carried by the plane, in order, and the log has them all.
    """
    ann = LocalLines(tmp_path / "lines", "runtime://localhost/ann")
    bob = LocalLines(tmp_path / "lines", "runtime://localhost/bob")
    message = {"type": "update", "from": "runtime://localhost/ann", "to": "runtime://localhost/bob"}
    for number in range(MESSAGES):
        ann.send({"id": number, **message, "body": {"value": "x"}})

    assert [(bob.receive() or {})["id"] for _ in range(MESSAGES)] == list(range(MESSAGES))

    # The first message of a flow is Python's, with all that its read brought.
    ann.send({"id": MESSAGES, **message, "body": {"value": "x"}})
    assert (bob.receive() or {})["id"] == MESSAGES
    assert carried(node) > 0
    for client in (ann, bob):
        client.close()
    deadline = time.monotonic() + PATIENCE
    while len(logged(node)) <= MESSAGES and time.monotonic() < deadline:
        time.sleep(0.05)
    assert logged(node) == list(range(MESSAGES + 1))


def logged(node: NodeProcess) -> list[int]:
    return [line["id"] for line in node.log() if line.get("type") == "update"]


def test_twisted_serves_its_own_descriptors(node: NodeProcess):
    """
    Listeners, HTTP and a second data path work beside the plane.
    """
    client = Lines(node.ports["line"], "runtime://localhost/c")

    answer = client.ask(
        {
            "id": 2,
            "type": "subscribe",
            "from": "runtime://localhost/c/sm",
            "to": TO_NODE,
            "body": {"resources": ["hyperty://localhost/c"]},
        }
    )
    with urllib.request.urlopen(f"http://127.0.0.1:{node.ports['admin']}/live") as live:
        report = json.load(live)

    assert answer["body"]["code"] == 200
    assert report["data_plane"] == "native"
    client.close()


def measured(node: NodeProcess) -> tuple[dict[str, Any], float]:
    """
    The report of `msgnode bench` on this node, and the node's CPU seconds for each message.
    """
    url, admin = f"tcp://127.0.0.1:{node.ports['line']}", f"http://127.0.0.1:{node.ports['admin']}"
    options = ["--pairs", "4", "--seconds", "1.5", "--json", "--url", url, "--admin", admin]
    before = cpu_seconds(node)
    ran = subprocess.run(
        [Path(sys.executable).with_name("msgnode"), "bench", *options],
        cwd=node.directory,
        capture_output=True,
        check=True,
        timeout=3 * PATIENCE,
    )
    report = json.loads(ran.stdout)
    return report, (cpu_seconds(node) - before) / report["arrived"]


def cpu_seconds(node: NodeProcess) -> float:
    fields = Path(f"/proc/{node.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_costs_less_than_python_alone(tmp_path: Path):
    """
    The compiled data plane carries plain messages, and a message costs the node less than in Python alone.
    """
    nodes = [
        start(tmp_path / name, "", f"native = {is_native}")
        for name, is_native in (("native", "true"), ("python", "false"))
    ]
    try:
        (native, cheap), (python, dear) = [measured(node) for node in nodes]
    finally:
        for node in nodes:
            node.stop()

    assert (native["data_plane"], python["data_plane"]) == ("native", "python")
    assert (native["lost"], python["lost"], python["by_flow"]) == (0, 0, 0.0)
    assert native["by_flow"] > 0.9
    assert cheap < 0.8 * dear
