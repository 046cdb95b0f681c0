"""
A domain of two real nodes that reach another domain by its protostub: sessions move while they talk by it.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from soaking.peers.ports import free_port

from tests.support.nats_server import NatsServer

from .clustered import MANAGER, Member, until
from .process import PATIENCE, Lines, NodeProcess, fetched
from .resuming import ResumingClient

# A session that moves, in any direction.
MOVING = re.compile(r"^msgnode_cluster_moving\{[^}]*\} (?!0\.0$)", re.M)
A, B = "runtime://a.example/ann", "runtime://b.example/bob"
OBJECT = "comm://b.example/room"
FAR = """
domain = "b.example"
web = ["tcp:{port}:interface=127.0.0.1"]
lines = ["tcp:0:interface=127.0.0.1"]
[admin]
listen = "tcp:0:interface=127.0.0.1"
"""
STUB = """
[foreign]
accept = "listed"
[[foreign.stub]]
domain = "b.example"
url = "http://127.0.0.1:{port}/.well-known/protocolstub/default.ps.js"
hosts = ["127.0.0.1:{port}"]
"""


class Domains:
    """
    Two nodes of a.example, each with a stub of its own, and the node of b.example with the client Bob. Ann is
    at the first node.
    """

    def __init__(self, directory: Path) -> None:
        port, config = free_port(), directory / "b.toml"
        config.write_text(FAR.format(port=port))
        self.far = NodeProcess("--config", str(config))
        self.nats = NatsServer(client=free_port())
        self.nodes = [Member(directory, name, self.nats.url, STUB.format(port=port)) for name in ("n1", "n2")]
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            until(lambda node=node: list(node.members().values()) == ["up"])  # type: ignore[misc]
        self.known: set[int] = set()
        self.ann = ResumingClient(A)
        self.ann.connect(self.nodes[0].lines)
        self.bob = Lines(self.far.ports["line"], B)
        self.bob.socket.settimeout(PATIENCE)

    def move(self, number: int) -> None:
        self.ann.connect(self.nodes[number].lines)
        assert self.ann.told["recovered"]

    def asked(self, id: int) -> None:
        """
        Ann sends a request, which Bob gets.
        """
        self.ann.send(id=id, type="create", to=f"{B}/x", body={"n": -id})
        found = self.bob.receive()
        assert found is not None and (found["id"], found["from"]) == (id, A)

    def answer(self, id: int, code: int = 200) -> None:
        self.bob.send({"id": id, "type": "response", "from": f"{B}/x", "to": A, "body": {"code": code}})

    def publish(self, *numbers: int) -> None:
        for n in numbers:
            body = {"n": n}
            self.bob.send(
                {"id": n, "type": "update", "from": OBJECT, "to": f"{OBJECT}/changes", "body": body}
            )

    def settle(self) -> None:
        """
        Wait until no session is moving.
        """
        until(lambda: not any(map(_is_moving, self.nodes)))

    def heard(self, *numbers: int) -> None:
        """
        Ann has got these numbers since the last call, each once.
        """
        before, self.known = self.known, self.known | set(numbers)
        self.ann.read_until(lambda: set(numbers) <= set(self.ann.numbers()))
        self.ann.read(0.5)
        assert sorted(n for n in self.ann.numbers() if n not in before) == sorted(numbers)

    def close(self) -> None:
        self.ann.drop()
        self.bob.close()
        for node in self.nodes:
            if node.process is not None:
                node.kill()
        self.far.stop()
        self.nats.stop()


@pytest.fixture
def domains(tmp_path: Path) -> Iterator[Domains]:
    made = Domains(tmp_path)
    yield made
    made.close()


def test_answer_follows_a_session_that_moves(domains: Domains) -> None:
    """
    A request leaves by the stub of one node; its answers come when the client is at the other, and the
    client goes on there. Each answer comes once.
    """
    domains.asked(7)
    domains.answer(7, 100)
    domains.ann.read_until(lambda: 7 in domains.ann.answers)

    domains.move(1)
    domains.answer(7)
    domains.ann.read_until(lambda: domains.ann.answers[7]["body"]["code"] == 200)
    domains.bob.send({"id": 1, "type": "update", "from": f"{B}/x", "to": A, "body": {"n": 1}})
    domains.heard(1)

    domains.asked(8)  # it has left by the stub here: the other one gives the address up
    domains.ann.read(0.5)
    domains.answer(8, 202)
    domains.ann.read_until(lambda: 8 in domains.ann.answers)
    domains.ann.read(0.5)
    assert [each["body"]["code"] for each in domains.ann.got if each["type"] == "response"] == [100, 200, 202]


def test_publications_follow_a_session_that_moves(domains: Domains) -> None:
    """
    What is published in the other domain comes at each node where the client is: nothing is lost while it
    moves, and once that is over, each comes once.
    """
    body: dict[str, Any] = {"resources": [f"{OBJECT}/changes"]}
    answer = domains.ann.ask(id=5, type="subscribe", to=f"{MANAGER}/sm", body=body)
    assert answer["body"]["code"] == 200
    domains.publish(1, 2)
    domains.heard(1, 2)

    for node, first in ((1, 3), (0, 7)):
        domains.move(node)
        domains.publish(first, first + 1)
        domains.ann.read_until(lambda first=first: {first, first + 1} <= set(domains.ann.numbers()))
        domains.settle()
        domains.ann.read(0.5)
        domains.known |= {first, first + 1}  # these may have come by both nodes
        domains.publish(first + 2, first + 3)
        domains.heard(first + 2, first + 3)


def _is_moving(node: Member) -> bool:
    assert node.process is not None
    return MOVING.search(fetched(node.process, "admin", "/metrics")) is not None
