"""
Protostubs of each generation in the real sandbox, at real nodes.
"""

import json
import shutil
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

import pytest

from tests.integration.process import Lines, NodeProcess
from tests.integration.sandboxed import STUBS, TOP, Sandboxed, Sandboxes, is_gone

numbers = count(1)
SM = "domain://msg-node.b.example/sm"
FAR = "hyperty://b.example/far"


@pytest.fixture(scope="module")
def sandboxes() -> Iterator[Sandboxes]:
    process = Sandboxes()
    yield process
    process.close()


@pytest.fixture(scope="module")
def node() -> Iterator[NodeProcess]:
    process = NodeProcess("--domain", "b.example")
    yield process
    process.stop(signal.SIGKILL)


def code(name: str) -> str:
    return (STUBS / name).read_text()


def own(name: str) -> str:
    return (TOP / "msgnode" / "stub" / name).read_text()


GENERATIONS = {
    "activate": (code("vertx_activate.js"), "url", "ws://{}/ws"),
    "systemjs": (code("vertx_systemjs.js"), "url", "ws://{}/ws"),
    "matrix": (code("matrix.js"), "messagingnode", "ws://{}/stub/connect"),
    "nodejs": (code("nodejs.js"), "url", "wss://{}"),
    "own": (own("default.ps.js"), "url", "ws://{}/ws"),
    "own-activate": (own("activate.js"), "url", "ws://{}/ws"),
}


def started(sandboxes: Sandboxes, generation: str, port: int, **limits: Any) -> Sandboxed:
    text, key, url = GENERATIONS[generation]
    place = f"127.0.0.1:{port}"
    stub = sandboxes.start(
        f"{generation}-{next(numbers)}", text, {key: url.format(place)}, [place], **limits
    )
    stub.live()
    return stub


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_stub_of_each_generation_carries_messages_both_ways(
    sandboxes: Sandboxes, node: NodeProcess, generation: str
) -> None:
    """
    A request of ours without a body, its answer, and a request of theirs to an address subscribed by the stub.
    """
    far = Lines(node.ports["lines" if "lines" in node.ports else "line"], FAR)
    stub = started(sandboxes, generation, node.ports["web"])
    near = f"hyperty://a.example/{stub.name}"

    stub.post({"id": 1, "type": "subscribe", "from": stub.runtime, "to": SM, "body": {"resources": [near]}})
    subscribed = stub.posted()
    stub.post({"id": 2, "type": "create", "from": near, "to": FAR})
    request = far.receive()
    assert request is not None
    far.send({"id": 2, "type": "response", "from": FAR, "to": near, "body": {"code": 200, "value": "ä"}})
    answer = stub.posted()
    far.send({"id": 3, "type": "read", "from": FAR, "to": near, "body": {"a": 1}})
    asked = stub.posted()
    far.close()

    assert subscribed["body"]["code"] == 200
    assert (request["id"], request["type"], request["from"], request["to"]) == (2, "create", near, FAR)
    assert answer == {
        "id": 2,
        "type": "response",
        "from": FAR,
        "to": near,
        "body": {"code": 200, "value": "ä"},
    }
    assert asked == {"id": 3, "type": "read", "from": FAR, "to": near, "body": {"a": 1}}
    assert stub.stop() == "was stopped"
    assert is_gone(stub.pid)


@pytest.mark.parametrize("generation", ["activate", "systemjs", "matrix", "own"])
def test_a_stub_comes_back_when_its_node_does(sandboxes: Sandboxes, generation: str) -> None:
    """
    `kill -9` of the other node, and a new one on the same port.
    """
    first = NodeProcess("--domain", "b.example")
    port = first.ports["web"]
    stub = started(sandboxes, generation, port)
    first.stop(signal.SIGKILL)
    stub.wait("status", "disconnected")
    again = NodeProcess(
        "--domain", "b.example", "--config", _config(first, port), state=str(first.state), listeners=1
    )

    stub.live()

    assert stub.stop() == "was stopped"
    again.stop(signal.SIGKILL)


def _config(node: NodeProcess, port: int) -> str:
    path = node.directory / "again.toml"
    path.write_text(f'[[listen.web]]\nendpoint = "tcp:{port}:interface=127.0.0.1"\n')
    return str(path)
