"""
A domain of two real nodes, of which one has links: clients of the other one reach another domain.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.nats_server import NatsServer

from .clustered import Member, until
from .federated import Domains, free_port
from .process import PATIENCE, Lines

ANN, BOB = "runtime://a.example/ann", "runtime://b.example/bob"


@pytest.fixture
def clients() -> Iterator[tuple[Lines, Lines]]:
    """
    A client of the node without links, and one of the other domain.
    """
    nats = NatsServer(client=free_port())
    domains = Domains(2)
    a, b = domains.all
    a.configure({b: []}, more=f'[cluster]\nurl = ["{nats.url}"]')
    b.configure({a: []})
    domains.start()
    plain = Member(a.directory, "n2", nats.url)
    plain.start()
    try:
        until(lambda: list(plain.members().values()) == ["up"])
        ann, bob = plain.client("ann"), Lines(b.lines, BOB)
        bob.socket.settimeout(PATIENCE)
        yield ann, bob
        ann.close()
        bob.close()
    finally:
        if plain.process is not None:
            plain.process.stop()
        domains.stop()
        nats.stop()


def received(client: Lines) -> dict[str, Any]:
    found = client.receive()
    assert found is not None
    return found


def test_conversation_with_another_domain(clients: tuple[Lines, Lines]) -> None:
    """
    A client of a node without links or certificate asks a client of another domain and is asked by it, with
    answers and receipts, once each.
    """
    ann, bob = clients
    ask = {"type": "read", "from": f"{ANN}/x", "to": f"{BOB}/nobody"}
    deadline = time.monotonic() + PATIENCE
    number = 100
    while (answer := ann.ask({**ask, "id": number, "to": "runtime://b.example/nobody"}))["body"][
        "code"
    ] != 404:
        assert time.monotonic() < deadline, answer
        number += 1

    ann.send(
        {"id": 7, "type": "create", "from": f"{ANN}/x", "to": f"{BOB}/y", "body": {"n": 1}, "receipt": True}
    )
    came = received(bob)
    bob.send({"id": 7, "type": "response", "from": f"{BOB}/y", "to": f"{ANN}/x", "body": {"code": 200}})
    back = sorted((received(ann) for _ in range(2)), key=lambda message: message["type"])
    bob.send({"id": 8, "type": "create", "from": f"{BOB}/y", "to": f"{ANN}/x", "body": {}, "receipt": True})
    asked = received(ann)
    ann.send({"id": 8, "type": "response", "from": f"{ANN}/x", "to": f"{BOB}/y", "body": {"code": 200}})
    there = sorted((received(bob) for _ in range(2)), key=lambda message: message["type"])

    assert (7, f"{ANN}/x") == (came["id"], came["from"])
    assert [("receipt", 202), ("response", 200)] == [(each["type"], each["body"]["code"]) for each in back]
    assert (8, f"{BOB}/y") == (asked["id"], asked["from"])
    assert [("receipt", 202), ("response", 200)] == [(each["type"], each["body"]["code"]) for each in there]


def test_subscription_in_another_domain(clients: tuple[Lines, Lines]) -> None:
    """
    A client of a node without links subscribes in another domain, and hears each publication once.
    """
    ann, bob = clients
    topic = "comm://b.example/room/changes"
    subscribe = {"type": "subscribe", "from": ANN, "to": "domain://msg-node.a.example/sm"}
    deadline = time.monotonic() + PATIENCE
    number = 200
    while (answer := ann.ask({**subscribe, "id": number, "body": {"resources": [topic]}})["body"]) and answer[
        "code"
    ] in (502, 504):
        assert time.monotonic() < deadline, answer
        number += 1
    assert 200 == answer["code"], answer

    for value in (1, 2, 3):
        bob.send({"id": value, "type": "update", "from": f"{BOB}/y", "to": topic, "body": {"value": value}})
    came = [received(ann) for _ in range(3)]
    gone = ann.ask({**subscribe, "id": 300, "type": "unsubscribe", "body": {"resource": topic}})

    assert [1, 2, 3] == [each["body"]["value"] for each in came]
    assert 200 == gone["body"]["code"]
