"""
The examples of a bridge: an operator of another node runs the protostub of this one, in Deno and in Node.js.
"""

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from msgnode.foreign.sandbox.hosts import find_deno
from tests.integration.process import PATIENCE, Lines, NodeProcess

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "other-node"
HERE, THERE = "hyperty://b.example/here", "hyperty://other.example/there"


@pytest.fixture(scope="module")
def node() -> Iterator[NodeProcess]:
    process = NodeProcess("--domain", "b.example")
    yield process
    process.stop(signal.SIGKILL)


@pytest.mark.parametrize("program", ["deno", "node"])
def test_a_bridge_carries_messages_of_another_node(node: NodeProcess, program: str) -> None:
    """
    A request of a client there and its answer, then one to it, although nothing there speaks our protocol.
    """
    if program == "node" and shutil.which("node") is None:
        pytest.skip("needs nodejs")
    place = f"127.0.0.1:{node.ports['web']}"
    command = {
        "deno": [find_deno(), "run", "--no-prompt", f"--allow-net={place}", EXAMPLE / "deno.js"],
        "node": ["node", EXAMPLE / "node.mjs"],
    }[program]
    here = Lines(node.ports["line"], HERE)
    bridge = subprocess.Popen(
        [*command, f"http://{place}", f"runtime://other.example/{program}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert bridge.stdin is not None
    assert bridge.stdout is not None

    bridge.stdin.write(
        json.dumps({"id": 1, "type": "read", "from": THERE, "to": HERE, "body": {"a": 1}}) + "\n"
    )
    bridge.stdin.flush()
    asked = here.receive()
    here.send({"id": 1, "type": "response", "from": HERE, "to": THERE, "body": {"code": 200}})
    answer = json.loads(bridge.stdout.readline())
    here.send({"id": 2, "type": "update", "from": HERE, "to": THERE, "body": {"b": "ä"}})
    update = json.loads(bridge.stdout.readline())
    bridge.stdin.close()
    ended = bridge.wait(PATIENCE)
    bridge.stdout.close()
    here.close()

    assert asked is not None
    assert (asked["from"], asked["body"]["a"]) == (THERE, 1)
    assert answer == {"id": 1, "type": "response", "from": HERE, "to": THERE, "body": {"code": 200}}
    assert update == {"id": 2, "type": "update", "from": HERE, "to": THERE, "body": {"b": "ä"}}
    assert ended == 0
