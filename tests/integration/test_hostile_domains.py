"""
Foreign domains with malicious stubs at a real node: only they suffer, and the registry of stubs shows it.
"""

import json
import signal
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.integration.hostile_stubs import HOSTILE, STATES, code_of, crash
from tests.integration.process import PATIENCE, Lines, NodeProcess
from tests.integration.sandboxed import SAY_LIVE, activating
from tests.integration.test_foreign_domains import ADMIN, wait_until

CONFIG = """
domain = "a.example"
web = ["tcp:0:interface=127.0.0.1"]
lines = ["tcp:0:interface=127.0.0.1"]
[foreign]
accept = "listed"
live_seconds = 10.0
hang_seconds = 10.0
memory_bytes = 100_663_296
restarts = 1
"""
STUB = '[[foreign.stub]]\ndomain = "{domain}"\nurl = "http://127.0.0.1:{port}/{domain}.ps.js"\n'
GOOD = f"""{SAY_LIVE} bus.addListener('*', (m) => bus.postMessage(
  {{id: m.id, type: 'response', from: m.to, to: m.from, body: {{code: 200}}}}));"""
KINDS = {**HOSTILE, **{f"a crash when {state or 'it starts'}": crash(state) for state in STATES}}
DOMAINS = {name: f"k{number}.example" for number, name in enumerate(KINDS)}
# What its entry says: a limit or a figure that is counted, and a part of `last_error`.
SHOWN = {
    "an endless loop": ("hang", "did not answer within 10 s"),
    "memory without end": ("memory", "ran out of memory; the limit is 96 MiB"),
    "1 GB of output": ("rate", ""),
    "other hosts": ("hosts", ""),
    "messages in another name": ("peer", ""),
    "silence": ("live", "not live"),
}
REFUSED = ("reading files", "other hosts", "the environment", "other processes")


class Site(BaseHTTPRequestHandler):
    """
    The server of all these domains.
    """

    def do_GET(self) -> None:
        domain, _, kind = self.path[1:].rpartition(".ps.")
        name = next((name for name in DOMAINS if DOMAINS[name] == domain), "")
        code = code_of(KINDS[name], domain) if name else activating(GOOD)
        body = (code if kind == "js" else "{}").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class Node:
    """
    The node of a.example with two clients, which reaches all these domains, and one that is well.
    """

    def __init__(self, directory: Path) -> None:
        self._site = ThreadingHTTPServer(("127.0.0.1", 0), Site)
        threading.Thread(target=self._site.serve_forever, daemon=True).start()
        port = self._site.server_address[1]
        path = directory / "a.toml"
        domains = (*DOMAINS.values(), "good.example")
        path.write_text(CONFIG + "".join(STUB.format(domain=each, port=port) for each in domains) + ADMIN)
        self.process = NodeProcess("--config", str(path))
        self.ann, self._bob = (
            Lines(self.process.ports["line"], f"runtime://a.example/{name}") for name in ("ann", "bob")
        )
        self._bob.socket.settimeout(None)  # it may hear nothing for long
        self.heard: list[dict[str, Any]] = []
        self._ids = count(1)
        threading.Thread(target=self._read, daemon=True).start()
        for domain in domains:
            self.tell(f"hyperty://{domain}/x", "update")
        for name, domain in DOMAINS.items():
            if "crash" in name:  # so that it is started again
                self.tell(
                    "domain://msg-node.a.example/sm", "subscribe", resources=[f"comm://{domain}/x/changes"]
                )

    def _read(self) -> None:
        """
        Keeps what bob is sent, and answers what wants an answer.
        """
        while (message := self._bob.receive()) is not None:
            self.heard.append(message)
            if message["type"] == "read":
                answer = {"id": message["id"], "type": "response", "body": {"code": 200}}
                self._bob.send({**answer, "from": message["to"], "to": message["from"]})

    def tell(self, to: str, type: str, **body: Any) -> int:
        id = next(self._ids)
        self.ann.send({"id": id, "type": type, "from": "runtime://a.example/ann/x", "to": to, "body": body})
        return id

    def answers(self, to: str) -> bool:
        """
        Does the client at this address answer ann?
        """
        id = self.tell(to, "read")
        while (answer := self.ann.receive()) is not None:
            if answer["id"] == id:
                return bool(answer["body"]["code"] == 200)
        return False

    def entry(self, domain: str) -> dict[str, Any]:
        """
        The entry of a stub in the registry, as an operator sees it.
        """
        url = f"http://127.0.0.1:{self.process.ports['admin']}/api/v1/stubs"
        token = (self.process.state / "admin-token").read_text().strip()
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            found: dict[str, Any] = next(
                each for each in json.load(answer)["stubs"] if each["name"] == domain
            )
        return found

    def close(self) -> None:
        self.process.stop(signal.SIGKILL)
        self._site.shutdown()
        self._site.server_close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    made = Node(tmp_path_factory.mktemp("hostile"))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def others_are_well(node: Node) -> Iterator[None]:
    """
    After each of them a client here answers another, and so does one of another foreign domain.
    """
    yield
    assert node.answers("runtime://a.example/bob/x")
    assert node.answers("hyperty://good.example/x")
    assert node.entry("good.example")["failures"] == 0


@pytest.mark.parametrize("name", SHOWN)
def test_the_registry_shows_a_hostile_stub(node: Node, name: str) -> None:
    """
    Its entry counts what it was refused, and says why it was ended.
    """
    word, why = SHOWN[name]

    def is_shown() -> bool:
        entry = node.entry(DOMAINS[name])
        return {**entry["figures"], **entry["limits"]}.get(word, 0) > 0 and why in entry["last_error"]

    wait_until(is_shown)
    assert not any("bank.example" in message["from"] for message in node.heard)


@pytest.mark.parametrize("name", REFUSED)
def test_a_stub_reaches_nothing(node: Node, name: str) -> None:
    """
    Files, hosts, environment, processes: it says itself that it was refused, and lives.
    """
    own = f"hyperty://{DOMAINS[name]}/1"
    wait_until(lambda: any(message["from"] == own for message in node.heard))

    said = next(message["body"]["value"] for message in node.heard if message["from"] == own)
    assert said.startswith("refused: "), said
    assert node.entry(DOMAINS[name])["state"] == "live"


def test_games_forge_no_status(node: Node) -> None:
    """
    A stub that plays with prototypes changes its own messages only.
    """
    domain = DOMAINS["games with prototypes"]
    wait_until(lambda: node.entry(domain)["figures"].get("malformed", 0) > 0)

    entry = node.entry(domain)
    assert (entry["state"], entry["last_error"], entry["failures"]) == ("live", "", 0)


@pytest.mark.parametrize("state", STATES)
def test_a_crash_is_shown_at_each_state(node: Node, state: str) -> None:
    """
    It is started again, and has failed after it ended too often.
    """
    domain = DOMAINS[f"a crash when {state or 'it starts'}"]
    wait_until(lambda: node.entry(domain)["state"] == "failed")

    entry = node.entry(domain)
    assert ("ran out of memory" if state else "no stub today") in entry["last_error"]
    assert (entry["failures"], entry["figures"]["start"]) == (2, 2)
