"""
Protostubs of each generation in the real sandbox, at real nodes.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.integration.process import Lines, NodeProcess
from tests.integration.sandboxed import STUBS, TOP, Sandboxed, Sandboxes, is_gone
from tests.support.authority import Authority

numbers = count(1)
SM = "domain://msg-node.b.example/sm"
FAR = "hyperty://b.example/far"
MODULES = Path(os.environ.get("MSGNODE_NODE", TOP / ".node")) / "node_modules"


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
    name = f"{generation}-{next(numbers)}"
    stub = sandboxes.start(name, text, {key: url.format(place)}, [place], **limits)
    stub.live()
    return stub


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_stub_of_each_generation_carries_messages_both_ways(
    sandboxes: Sandboxes, node: NodeProcess, generation: str
) -> None:
    """
    A request of ours without a body, its answer, and a request of theirs to an address that is subscribed.
    """
    far = Lines(node.ports["line"], FAR)
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


def test_the_certificate_of_a_foreign_node_is_checked(sandboxes: Sandboxes, tmp_path: Path) -> None:
    """
    Over wss: live if an authority that is trusted signed it for the name, closed with the reason otherwise.
    """
    authority = Authority(tmp_path)
    files = {name: authority.issue(name) for name in ("localhost", "other.example")}
    endpoints = [f"ssl:0:privateKey={file}:certKey={file}:interface=127.0.0.1" for file in files.values()]
    node = NodeProcess(
        "--domain", "b.example", "--web", endpoints[0], "--web", endpoints[1], "--config", _nothing(tmp_path),
        listeners=2,
    )  # fmt: skip
    ports = [found.rpartition(":")[2] for found in re.findall(r"web: listening on (\S+)", node.said)]
    trusting = Sandboxes(authority.path)
    text, key, _ = GENERATIONS["own"]

    def connecting(where: Sandboxes, port: str) -> Sandboxed:
        place = f"localhost:{port}"
        name = f"tls-{next(numbers)}"
        return where.start(name, text, {key: f"wss://{place}/ws"}, [place])

    good = connecting(trusting, ports[0])
    bad = [connecting(sandboxes, ports[0]), connecting(trusting, ports[1])]
    good.live()
    good.stop()
    for stub in bad:
        assert "certificate" in str(stub.wait("status", "disconnected")) + str(stub.seen)
        stub.stop()
    trusting.close()
    node.stop(signal.SIGKILL)


def _nothing(directory: Path) -> str:
    path = directory / "msgnode.toml"
    path.write_text('lines = []\n[admin]\nlisten = "none"\n')
    return str(path)


class SocketIOServer:
    """
    A node of NodeJS with npm's Socket.IO.
    """

    def __init__(self, port: int = 0) -> None:
        script = TOP / "tests" / "integration" / "socketio_server.js"
        self._process = subprocess.Popen(
            ["node", script, MODULES / "socket.io-2", str(port)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.mark.skipif(
    shutil.which("node") is None or not (MODULES / "socket.io-2").exists(), reason="tools/test installs it"
)
def test_the_stub_of_nodejs_speaks_with_the_server_of_npm(sandboxes: Sandboxes) -> None:
    """
    Both directions. After a loss this stub is dead, so its process ends, and the next one is live.
    """
    server = SocketIOServer()
    stub = started(sandboxes, "nodejs", server.port, live_seconds=10.0)
    near = f"hyperty://a.example/{stub.name}"
    request = {"id": 1, "type": "read", "from": near, "to": FAR, "body": {"a": "ä"}}
    unasked = {"id": 2, "type": "update", "from": FAR, "to": near, "body": {}}

    stub.post(request)
    answer = stub.posted()
    stub.post({"id": 3, "type": "say", "from": near, "to": FAR, "body": {"what": unasked}})
    update = stub.posted()
    server.kill()
    stub.wait("status", "disconnected")
    why = stub.ended()
    server = SocketIOServer(server.port)
    started(sandboxes, "nodejs", server.port).stop()
    server.kill()

    assert answer["body"] == {"code": 200, "value": request}
    assert update == unasked
    assert why == "was not live within 10 s"


class Site(BaseHTTPRequestHandler):
    """
    A domain with a protocol of its own over HTTP.
    """

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        message = json.loads(data)
        said = f"{message['to']} by {self.headers['X-Runtime']}, {self.headers['Content-Type']}"
        self.send_response(201)
        self.send_header("X-Said", said)
        self.end_headers()
        answer = {"id": message["id"], "type": "response", "from": message["to"], "to": message["from"]}
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: Any) -> None:
        pass


def test_a_stub_may_speak_http(sandboxes: Sandboxes) -> None:
    """
    A class with `_start` in an ES module, whose protocol is requests.
    """
    site = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    place = f"127.0.0.1:{site.server_address[1]}"
    stub = sandboxes.start("http", code("start_class.mjs"), {"url": f"http://{place}/in"}, [place])
    stub.live()

    stub.post({"id": 7, "type": "read", "from": "hyperty://a.example/1", "to": FAR})
    answer = stub.posted()
    site.shutdown()

    said = f"{FAR} by {stub.runtime}, application/json"
    assert answer["body"] == {"code": 201, "value": said}
    assert (answer["id"], answer["to"]) == (7, "hyperty://a.example/1")
    assert stub.stop() == "was stopped"
