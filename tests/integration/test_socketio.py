"""
Socket.IO as npm's clients speak it: 1.7.4, which the NodejsProtoStub is built with, 2 and today's.
"""

import json
import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.process import PATIENCE, Lines, NodeProcess
from tests.support.examples import sections

HERE = Path(__file__).parent
MODULES = Path(os.environ.get("MSGNODE_NODE", HERE.parent.parent / ".node")) / "node_modules"
SM = "domain://msg-node.localhost/sm"
ME, LAMP = "runtime://localhost/page", "runtime://localhost/lamp"

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not (MODULES / "socket.io-client-1").exists(),
    reason="tools/test installs the clients, with Debian's nodejs and npm",
)


class Client:
    """
    One of npm's clients in a process of its own.
    """

    def __init__(self, version: str, port: int, transport: str = "") -> None:
        module, url = MODULES / f"socket.io-client-{version}", f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            ["node", HERE / "socketio.js", module, url, *([transport] if transport else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ways: list[str] = []  # the transports it changed to
        self._seen: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._seen.put(json.loads(line))

    def next(self, *names: str) -> Any:
        """
        The value of the next event with one of these names.
        """
        while True:
            name, value = self._seen.get(timeout=PATIENCE)
            if name == "way":
                self.ways.append(value)
            if name in names:
                return value

    def send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message, ensure_ascii=False) + "\n")
        self.process.stdin.flush()

    def ask(self, **message: Any) -> Any:
        self.send(**{"from": ME, **message})
        return self.next("message")

    def open(self) -> None:
        self.next("connect")
        reply = self.ask(id=1, type="open", to="mn:/session")
        assert (200, "mn:/session") == (reply["body"]["code"], reply["from"])

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def node() -> Iterator[NodeProcess]:
    process = NodeProcess()
    yield process
    process.stop(signal.SIGKILL)


@pytest.fixture
def connect(node: NodeProcess) -> Iterator[Any]:
    clients = []

    def one(version: str, transport: str = "", port: int = 0) -> Client:
        clients.append(Client(version, port or node.ports["web"], transport))
        return clients[-1]

    yield one
    for client in clients:
        client.end()


@pytest.mark.parametrize("transport", ["", "polling", "websocket"])
@pytest.mark.parametrize("version", ["1", "2", "4"])
def test_page_and_a_device_talk_in_whatever_alphabet(node, connect, version, transport):
    """
    A page and a device talk, in whatever alphabet and in order, while the page changes its transport.
    """
    client, lamp = connect(version, transport), Lines(node.ports["line"], LAMP)
    client.open()
    subscribe = {
        "id": 2,
        "type": "subscribe",
        "to": SM,
        "body": {"resources": ["comm://localhost/1/changes"]},
    }
    assert {"code": 200} == client.ask(**subscribe)["body"]
    update = {
        "type": "update",
        "from": LAMP,
        "to": "comm://localhost/1/changes",
        "body": {"v": 'żółw 😀 日本 "é"'},
    }

    for n in range(200):
        lamp.send({"id": n, **update})
    assert [{"id": n, **update} for n in range(200)] == [client.next("message") for _ in range(200)]
    for n in range(200):
        client.send(id=n, **{**update, "from": ME, "to": LAMP})
    assert [{"id": n, **update, "from": ME, "to": LAMP} for n in range(200)] == [
        lamp.receive() for _ in range(200)
    ]

    if not transport:
        assert (client.ways or [client.next("way")]) == ["websocket"]
        lamp.send({"id": 300, **update})
        assert client.next("message")["id"] == 300
    client.send(id=9, type="close", **{"from": ME, "to": "mn:/session"})
    assert {"code": 1000, "reason": "closed"} == client.next("close")
    assert client.next("disconnect") == "io server disconnect"
    lamp.close()


@pytest.mark.parametrize("transport", ["polling", "websocket"])
@pytest.mark.parametrize("version", ["1", "4"])
def test_node_restarts(connect, version, transport, tmp_path):
    """
    When the node stops, the client's library comes back by itself, and what waited comes after `open`.
    """
    state = str(tmp_path / "state")
    node = NodeProcess(state=state)
    port = node.ports["web"]
    client = connect(version, transport, port)
    client.open()
    client.ask(id=2, type="subscribe", to=SM, body={"resources": ["comm://localhost/1"]})

    node.stop()
    if transport == "websocket":  # between two polls nobody is there to be told
        assert {"code": 1001, "reason": "going away"}.items() <= client.next("close").items()
    again = NodeProcess("--web", f"tcp:{port}:interface=127.0.0.1", state=state, listeners=4)
    try:
        lamp = Lines(again.ports["line"], LAMP)
        lamp.send({"id": 5, "type": "update", "from": LAMP, "to": "comm://localhost/1"})
        client.open()
        while client.next("message")["id"] != 5:
            pass  # what no poll followed comes again
        lamp.close()
    finally:
        again.stop()


@pytest.mark.parametrize("version", ["1", "2", "4"])
def test_ten_pages_each_changing_its_transport_while(node, connect, version):
    """
    Ten pages, each changing its transport while messages come, miss none and see none twice.
    """
    lamp = Lines(node.ports["line"], LAMP)
    pages = [connect(version) for _ in range(10)]
    for number, page in enumerate(pages):
        page.next("connect")
        own = f"runtime://localhost/many{version}/{number}"
        page.send(id=1, type="open", **{"from": own, "to": "mn:/session"})
    for page in pages:
        page.next("message")

    for n in range(100):
        for number in range(10):
            to = f"runtime://localhost/many{version}/{number}"
            lamp.send({"id": n, "type": "update", "from": LAMP, "to": to})

    for page in pages:
        assert list(range(100)) == [page.next("message")["id"] for _ in range(100)]
    lamp.close()


@pytest.mark.parametrize("version", ["1", "2", "4"])
def test_documented(node, version, tmp_path):
    """
    The client in docs/protocol.md prints what is shown there.
    """
    code, shown = (block.text for block in sections("docs/protocol.md")["Socket.IO"][:2])
    code = code.replace("9090", str(node.ports["web"]))
    script = tmp_path / "page.js"
    script.write_text(
        code.replace('"socket.io-client"', json.dumps(str(MODULES / f"socket.io-client-{version}")))
    )
    page = subprocess.Popen(["node", script], stdout=subprocess.PIPE, text=True)
    assert page.stdout is not None
    try:
        assert shown.splitlines() == [page.stdout.readline().rstrip() for _ in shown.splitlines()]
    finally:
        page.kill()
        page.communicate()
