"""
A protostub of each generation at a node: messages in both directions, before and after kills of either side.
"""

import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from soaking.peers.ports import free_port

from tests.integration.process import Lines, NodeProcess
from tests.integration.sandboxed import STUBS, TOP
from tests.integration.test_foreign_domains import ADMIN, FIXED, children, wait_until

BOB = "runtime://b.example/bob"
CONFIG = """
domain = "{name}.example"
web = ["tcp:0:interface=127.0.0.1"]
lines = ["tcp:0:interface=127.0.0.1"]
[foreign]
accept = "listed"
[[foreign.stub]]
domain = "b.example"
url = "http://127.0.0.1:{port}/.well-known/protocolstub/{name}.ps.js"
hosts = ["127.0.0.1:{port}"]
"""
OWN = TOP / "msgnode" / "stub"
# The code, the key of its URL, and the path there.
GENERATIONS = {
    "activate": (STUBS / "vertx_activate.js", "url", "/ws"),
    "systemjs": (STUBS / "vertx_systemjs.js", "url", "/ws"),
    "matrix": (STUBS / "matrix.js", "messagingnode", "/stub/connect"),
    "own-activate": (OWN / "activate.js", "url", "/ws"),
}
ids = count(1)


class Domains:
    """
    The node of b.example, and one node for each generation of its stub.
    """

    def __init__(self, directory: Path) -> None:
        port = free_port()
        stubs = directory / "stubs"
        stubs.mkdir()
        for name, (code, key, path) in GENERATIONS.items():
            (stubs / f"{name}.ps.js").write_text(code.read_text())
            (stubs / f"{name}.ps.json").write_text(
                f'{{"configuration": {{"{key}": "ws://127.0.0.1:{port}{path}"}}}}'
            )
        self._config = directory / "b.toml"
        self._config.write_text(f'stubs = "{stubs}"\n' + FIXED.format(port=port) + ADMIN)
        self._far = NodeProcess("--config", str(self._config))
        self.near: dict[str, NodeProcess] = {}
        for name in GENERATIONS:
            config = directory / f"{name}.toml"
            config.write_text(CONFIG.format(name=name, port=port) + ADMIN)
            self.near[name] = NodeProcess("--config", str(config))
        self.anns = {
            name: Lines(node.ports["line"], f"runtime://{name}.example/ann")
            for name, node in self.near.items()
        }
        self.bob = Lines(self._far.ports["line"], BOB)

    def kill_far(self) -> None:
        """
        Kills the foreign node, and starts it again.
        """
        state = str(self._far.state)
        self._far.stop(signal.SIGKILL)
        self._far = NodeProcess("--config", str(self._config), state=state)
        self.bob = Lines(self._far.ports["line"], BOB)

    def kill_stub(self, name: str) -> None:
        """
        Kills the process of a stub; the next message starts another one.
        """
        [pid] = children(self.near[name].process.pid)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: pid not in children(self.near[name].process.pid))

    def close(self) -> None:
        for node in (self._far, *self.near.values()):
            node.stop(signal.SIGKILL)


@pytest.fixture(scope="module")
def domains(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Domains]:
    made = Domains(tmp_path_factory.mktemp("generations"))
    yield made
    made.close()


def received(client: Lines, id: int) -> dict[str, Any]:
    """
    The next message with that id. One that a stub had not acknowledged when it was killed comes again.
    """
    while True:
        message = client.receive()
        assert message is not None
        if message["id"] == id:
            return message


def talk(domains: Domains, name: str) -> None:
    """
    A request from the client there and its answer, then one to it and its answer.
    """
    ann, bob, here = domains.anns[name], domains.bob, f"runtime://{name}.example/ann/x"
    for asker, asked, from_, to in ((ann, bob, here, f"{BOB}/x"), (bob, ann, f"{BOB}/x", here)):
        id = next(ids)
        asker.send({"id": id, "type": "read", "from": from_, "to": to, "body": {"n": id}})
        request = received(asked, id)
        assert (request["from"], request["body"]["n"]) == (from_, id)
        asked.send(
            {"id": id, "type": "response", "from": to, "to": from_, "body": {"code": 200, "value": "ä"}}
        )
        answer = received(asker, id)
        assert answer["from"] == to
        assert (answer["body"]["code"], answer["body"]["value"]) == (200, "ä")


@pytest.mark.parametrize("name", GENERATIONS)
def test_messages_travel_both_ways_also_after_a_kill_of_the_stub(domains: Domains, name: str) -> None:
    """
    The node starts it again, and the foreign node knows the way back to the client as before.
    """
    talk(domains, name)
    domains.kill_stub(name)
    talk(domains, name)


def test_each_generation_comes_back_to_a_node_that_was_killed(domains: Domains) -> None:
    """
    What is sent while the foreign node is away arrives when it is there again.
    """
    domains.kill_far()

    for name in GENERATIONS:
        talk(domains, name)
