"""
What waits for a foreign domain while its stub starts, when the node stops or is killed.
"""

import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.integration.process import Lines, NodeProcess
from tests.integration.sandboxed import SAY_LIVE, activating, is_gone
from tests.integration.test_foreign_domains import ADMIN, children, wait_until

ANN, THERE = "runtime://a.example/ann", "hyperty://b.example/bob"
CONFIG = """
domain = "a.example"
web = ["tcp:0:interface=127.0.0.1"]
lines = ["tcp:0:interface=127.0.0.1"]
[foreign]
accept = "listed"
live_seconds = 600.0
hang_seconds = 600.0
[[foreign.stub]]
domain = "b.example"
url = "http://127.0.0.1:{port}/b.ps.js"
hosts = ["127.0.0.1:{port}"]
"""
# It is live once the domain says so, and answers each request then.
STUB = f"""
const live = () => fetch(config.url).then(() => {{ {SAY_LIVE} }}, () => setTimeout(live, 50));
bus.addListener('*', (m) => bus.postMessage(
  {{id: m.id, type: 'response', from: m.to, to: m.from, body: {{code: 200, value: m.body}}}}));
live();
"""


class Domain(BaseHTTPRequestHandler):
    """
    The web server of the foreign domain, which has its stub, and lets it be live.
    """

    is_up = threading.Event()

    def do_GET(self) -> None:
        url = f"http://{self.headers['Host']}/live"
        found = {"/b.ps.js": activating(STUB), "/b.ps.json": f'{{"configuration": {{"url": "{url}"}}}}'}
        if self.path == "/live" and not self.is_up.is_set():
            self.close_connection = True  # as one that is away
            return
        body = found.get(self.path, "").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    Domain.is_up.clear()
    site = ThreadingHTTPServer(("127.0.0.1", 0), Domain)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    path = tmp_path / "a.toml"
    path.write_text(CONFIG.format(port=site.server_address[1]) + ADMIN)
    yield path
    site.shutdown()
    site.server_close()


def waiting(config: Path) -> tuple[NodeProcess, Lines, int]:
    """
    A node with the process of a stub that is not live, and a client that has sent a request.
    """
    node = NodeProcess("--config", str(config))
    ann = Lines(node.ports["line"], ANN)
    ann.send({"id": 1, "type": "read", "from": f"{ANN}/x", "to": THERE, "receipt": True, "body": {"n": 1}})
    receipt = ann.receive()
    assert receipt and (receipt["type"], receipt["body"]["code"]) == ("receipt", 202)
    assert receipt["body"]["final"] is False
    wait_until(lambda: bool(children(node.process.pid)))
    return node, ann, children(node.process.pid)[0]


def test_a_node_that_stops_answers_what_waits(config: Path) -> None:
    """
    The receipt and the response say that no path leads there; the process of the stub ends with the node.
    """
    node, ann, pid = waiting(config)
    node.process.send_signal(signal.SIGTERM)

    said = [ann.receive(), ann.receive()]

    assert [(each["type"], each["body"]["code"], each["body"]["reason"]) for each in said if each] == [
        ("receipt", 502, "no-path"),
        ("response", 502, "no-path"),
    ]
    assert node.wait() == -signal.SIGTERM
    assert is_gone(pid)


def test_a_node_that_is_killed_loses_what_waits(config: Path) -> None:
    """
    Its clients hear no more of it; they open their sessions again, and what they send then arrives once.
    """
    node, ann, pid = waiting(config)
    node.stop(signal.SIGKILL)
    assert ann.receive() is None
    assert is_gone(pid)

    again = NodeProcess("--config", str(config), state=str(node.state))
    ann = Lines(again.ports["line"])
    opened = ann.ask({"id": 2, "type": "re-open", "from": ANN, "to": "mn:/session"})
    ann.send({"id": 3, "type": "read", "from": f"{ANN}/x", "to": THERE, "body": {"n": 3}})
    Domain.is_up.set()
    answer = ann.receive()

    assert opened["body"]["code"] == 200
    assert answer and (answer["id"], answer["body"]) == (3, {"code": 200, "value": {"n": 3}})
    again.stop(signal.SIGKILL)
