"""
A domain that is reached by the protostub it publishes: two nodes, the stub in its sandbox, and kills.
"""

import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from soaking.peers.ports import free_port

from tests.integration.process import PATIENCE, Lines, NodeProcess, fetched

A, B = "runtime://a.example/ann", "runtime://b.example/bob"
NEXT, OTHER = "runtime://a.example/next", "runtime://a.example/other"
OBJECT = "comm://b.example/room"
FIXED = (
    'domain = "b.example"\nweb = ["tcp:{port}:interface=127.0.0.1"]\nlines = ["tcp:0:interface=127.0.0.1"]\n'
)
ADMIN = '[admin]\nlisten = "tcp:0:interface=127.0.0.1"\n'
STUB = """
domain = "a.example"
node = "na"
web = ["tcp:0:interface=127.0.0.1"]
lines = ["tcp:0:interface=127.0.0.1"]
[admin]
listen = "tcp:0:interface=127.0.0.1"
[foreign]
accept = "listed"
[[foreign.stub]]
domain = "b.example"
url = "http://127.0.0.1:{port}/.well-known/protocolstub/default.ps.js"
hosts = ["127.0.0.1:{port}"]
"""


class Domains:
    """
    The node of a.example, which reaches b.example by its stub, and the node of b.example.
    """

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.far_config, near = directory / "b.toml", directory / "a.toml"
        self.far_config.write_text(FIXED.format(port=self.port) + ADMIN)
        near.write_text(STUB.format(port=self.port))
        self.far = NodeProcess("--config", str(self.far_config))
        self.near = NodeProcess("--config", str(near))

    def restart_far(self) -> None:
        state = str(self.far.state)
        self.far.stop(signal.SIGKILL)
        self.far = NodeProcess("--config", str(self.far_config), state=state)

    def stub(self) -> dict[str, Any]:
        """
        The entry of the stub, as an operator sees it.
        """
        request = urllib.request.Request(f"http://127.0.0.1:{self.near.ports['admin']}/api/v1/stubs")
        request.add_header("Authorization", f"Bearer {(self.near.state / 'admin-token').read_text().strip()}")
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            found: dict[str, Any] = json.load(answer)["stubs"][0]
        return found

    def state(self) -> str:
        """
        The only state in which there is a stub, by `/live`.
        """
        return next(iter(json.loads(fetched(self.near, "admin", "/live"))["stubs"]))

    def processes(self) -> list[int]:
        """
        The processes of stubs.
        """
        return children(self.near.process.pid)

    def close(self) -> None:
        for node in (self.near, self.far):
            node.stop()


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(scope="module")
def domains(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Domains]:
    made = Domains(tmp_path_factory.mktemp("domains"))
    yield made
    made.close()


def subscribe(client: Lines, domain: str, *addresses: str) -> None:
    answer = client.ask(
        {
            "id": 5,
            "type": "subscribe",
            "from": f"runtime://{domain}/sm",
            "to": f"domain://msg-node.{domain}/sm",
            "body": {"resources": list(addresses)},
        }
    )
    assert answer["body"]["code"] == 200, answer


def test_two_domains_talk_by_the_stub_of_one(domains: Domains) -> None:
    """
    A client at one node sends to one at the other and is answered, hears what is published there, and is sent
    to; its receipt says that the foreign node has it. A stub that is killed comes back by the next message.
    """
    ann, bob = Lines(domains.near.ports["line"], A), Lines(domains.far.ports["line"], B)
    ann.send({"id": 7, "type": "create", "from": f"{A}/x", "to": f"{B}/x", "receipt": True, "body": {"n": 1}})
    asked = bob.receive()
    assert asked is not None and (asked["id"], asked["from"], asked["body"]["n"]) == (7, f"{A}/x", 1)
    for code in (100, 180, 200):
        bob.send({"id": 7, "type": "response", "from": f"{B}/x", "to": f"{A}/x", "body": {"code": code}})

    got = [ann.receive() for _ in range(5)]
    assert [(each["type"], each["body"]["code"]) for each in got if each] == [
        *(("receipt", 202), ("receipt", 202)),
        *(("response", 100), ("response", 180), ("response", 200)),
    ]
    assert got[1] and got[1]["body"]["description"] == "handed to a foreign node"

    subscribe(ann, "a.example", f"{OBJECT}/changes")
    bob.send({"id": 8, "type": "update", "from": OBJECT, "to": f"{OBJECT}/changes", "body": {"value": 5}})
    heard = ann.receive()
    assert heard and heard["body"] == {"value": 5}
    bob.send({"id": 9, "type": "create", "from": f"{B}/y", "to": f"{A}/x", "body": {}})
    heard = ann.receive()
    assert heard and (heard["id"], heard["from"]) == (9, f"{B}/y")

    entry = domains.stub()
    assert (entry["name"], entry["state"], entry["figures"]["sent"]) == ("b.example", "live", 1)
    [before] = domains.processes()
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: domains.processes() not in ([before], []))
    ann.send({"id": 10, "type": "create", "from": f"{A}/x", "to": f"{B}/x", "body": {"n": 2}})
    asked = bob.receive()
    assert asked and asked["id"] == 10
    bob.send({"id": 10, "type": "response", "from": f"{B}/x", "to": f"{A}/x", "body": {"code": 200}})
    heard = ann.receive()
    assert heard and heard["id"] == 10


def test_a_client_has_an_address_of_the_foreign_domain(domains: Domains) -> None:
    """
    It is allocated there, is sent to and sends, survives a kill of the stub, and is free when the client has
    left.
    """
    ann, bob = Lines(domains.near.ports["line"], OTHER), Lines(domains.far.ports["line"], f"{B}2")
    service = "domain://msg-node.b.example/address-allocation"
    asked = {"id": 1, "type": "create", "from": f"{OTHER}/x", "to": service, "body": {"value": {"number": 1}}}
    given = ann.ask(asked)
    [address] = given["body"]["value"]["allocated"]
    [process] = domains.processes()
    for id in (2, 3):
        bob.send({"id": id, "type": "read", "from": f"{B}2/x", "to": address, "body": {}})
        request = ann.receive()
        assert request and (request["id"], request["to"]) == (id, address)
        ann.send({"id": id, "type": "response", "from": address, "to": f"{B}2/x", "body": {"code": 200}})
        answer = bob.receive()
        assert answer and (answer["id"], answer["from"], answer["body"]["code"]) == (id, address, 200)
        if id == 2:
            os.kill(process, signal.SIGKILL)
            wait_until(lambda: domains.processes() not in ([process], []))
            wait_until(lambda: domains.state() == "live")
    ann.send({"id": 4, "type": "close", "from": OTHER, "to": "mn:/session"})

    def is_free() -> bool:
        bob.send({"id": 5, "type": "update", "from": f"{B}2/x", "to": address, "receipt": True, "body": {}})
        receipt = bob.receive()
        assert receipt is not None
        return bool(receipt["body"]["code"] == 404)

    wait_until(is_free)


def test_foreign_node_that_was_killed_is_reached_again(domains: Domains) -> None:
    """
    What is sent while the foreign node is away waits, and arrives when it is back; observers hear again. A
    request whose time has ended is answered 404. The stub's process ends with its node.
    """
    ann = Lines(domains.near.ports["line"], NEXT)
    subscribe(ann, "a.example", f"{OBJECT}/changes")
    domains.far.stop(signal.SIGKILL)
    wait_until(lambda: domains.state() == "disconnected")
    ann.send({"id": 1, "type": "create", "from": f"{NEXT}/x", "to": f"{B}/x", "ttl": 0.5, "body": {}})
    late = ann.receive()
    assert late and (late["id"], late["body"]["code"], late["body"]["reason"]) == (1, 404, "stale")
    ann.send({"id": 2, "type": "update", "from": f"{NEXT}/x", "to": f"{B}/x", "body": {"kept": True}})

    domains.restart_far()
    bob = Lines(domains.far.ports["line"], B)
    wait_until(lambda: domains.state() == "live")

    # The first message may be earlier than bob: the foreign node then has no session for it.
    ann.send({"id": 3, "type": "update", "from": f"{NEXT}/x", "to": f"{B}/x", "body": {}})
    heard = bob.receive()
    assert heard and heard["id"] in (2, 3)
    bob.send({"id": 4, "type": "update", "from": OBJECT, "to": f"{OBJECT}/changes", "body": {}})
    heard = ann.receive()
    assert heard and heard["id"] == 4
    [stub] = domains.processes()
    domains.near.stop(signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{stub}").exists())
