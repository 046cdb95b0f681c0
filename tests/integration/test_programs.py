"""
The programs in README.md, docs/client.md and docs/devices.md, run as they stand beside a real node.
"""

import ast
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.process import PATIENCE, Lines, NodeProcess
from tests.integration.test_client import again
from tests.support.examples import blocks

HERE = "hyperty://localhost/thermometer"


@pytest.fixture
def node() -> Iterator[NodeProcess]:
    process = NodeProcess()
    yield process
    process.stop(signal.SIGKILL)


def program(path: str, number: int = 0) -> str:
    """
    A block of Python in a document.
    """
    return [block.text for block in blocks(path) if block.info == "python"][number]


def on_its_ports(text: str, node: NodeProcess) -> str:
    return text.replace("9090", str(node.ports["web"])).replace("9091", str(node.ports["line"]))


@pytest.mark.parametrize(
    "path, number, printed",
    [
        ("README.md", 0, "{'code': 200, 'state': 'on'}\n"),
        ("docs/client.md", 0, "{'value': 'hello'}\n"),
        ("docs/client.md", 1, "{'value': 'hello'}\n"),
    ],
)
def test_short_programs_print_what_is_said(node: NodeProcess, path: str, number: int, printed: str) -> None:
    """
    Each short program prints what the text around it says, and ends.
    """
    code = on_its_ports(program(path, number), node)

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)

    assert (0, printed, "") == (ran.returncode, ran.stdout, ran.stderr)


def test_readme_is_short() -> None:
    """
    The program in README.md has at most ten lines with something on them.
    """
    assert 10 >= len([line for line in program("README.md").splitlines() if line])


def test_thermometer_answers_also_after_a_kill(node: NodeProcess, tmp_path: Path) -> None:
    """
    The thermometer needs nothing but what MicroPython has; it answers and publishes, also after the
    node was killed and came back.
    """
    code = on_its_ports(program("docs/devices.md"), node).replace("EVERY = 10", "EVERY = 0.3")
    imported = {
        name.name for step in ast.walk(ast.parse(code)) if isinstance(step, ast.Import) for name in step.names
    }
    device = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    running = node
    try:
        news, answer = met(running)
        running = again(node, tmp_path)
        later, _ = met(running)
    finally:
        device.kill()
        device.communicate()
        running.stop(signal.SIGKILL)

    assert {"json", "socket", "time"} == imported
    assert (f"{HERE}/changes", {"value": 21.5}) == (news["to"], news["body"])
    assert {"code": 200, "value": 21.5} == answer
    assert {"value": 21.5} == later["body"]


def met(node: NodeProcess) -> tuple[Any, Any]:
    """
    An update of the thermometer, and the body of its answer, as a user gets them.
    """
    user = Lines(node.ports["line"], "runtime://localhost/user")
    sm = "domain://msg-node.localhost/sm"
    body = {"resources": [f"{HERE}/changes"]}
    user.ask({"id": 2, "type": "subscribe", "from": "runtime://localhost/user", "to": sm, "body": body})
    news = user.receive()
    user.send({"id": 3, "type": "read", "from": "runtime://localhost/user/x", "to": HERE})
    while (message := user.receive()) is not None:
        if message["type"] == "response":
            break
    user.close()
    assert message is not None, "the node is gone"
    return news, message["body"]
