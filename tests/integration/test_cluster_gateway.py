"""
A domain of two real nodes, of which one has links: clients of the other one reach another domain.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from soaking.peers.ports import free_port

from tests.support.nats_server import NatsServer

from .clustered import Member, until
from .federated import PATIENCE, Domain, Domains
from .process import Lines

ANN, BOB = "runtime://a.example/ann", "runtime://b.example/bob"
TOPIC = "comm://b.example/room/changes"
SUBSCRIBE = {"type": "subscribe", "from": ANN, "to": "domain://msg-node.a.example/sm"}


@pytest.fixture
def nodes() -> Iterator[tuple[Domain, Lines, Lines]]:
    """
    The gateway, a client of the node without links, and one of the other domain.
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
        yield a, ann, bob
        ann.close()
        bob.close()
    finally:
        if plain.process is not None:
            plain.process.stop()
        domains.stop()
        nats.stop()


@pytest.fixture
def clients(nodes: tuple[Domain, Lines, Lines]) -> tuple[Lines, Lines]:
    return nodes[1:]


def received(client: Lines) -> dict[str, Any]:
    found = client.receive()
    assert found is not None
    return found


def subscribe_when_reached(ann: Lines) -> None:
    """
    Subscribe the topic; the other domain may be out of reach yet.
    """
    deadline, number = time.monotonic() + PATIENCE, 200
    ask = {**SUBSCRIBE, "body": {"resources": [TOPIC]}}
    while (body := ann.ask({**ask, "id": number})["body"])["code"] in (502, 504):
        assert time.monotonic() < deadline, body
        number += 1
    assert 200 == body["code"], body


def publish(bob: Lines, value: int) -> None:
    bob.send({"id": value, "type": "update", "from": f"{BOB}/y", "to": TOPIC, "body": {"value": value}})


def values(ann: Lines) -> list[int]:
    """
    What has been published to the client by now, after a moment.
    """
    time.sleep(0.2)
    nothing = "comm://a.example/nothing"
    ann.send({**SUBSCRIBE, "id": 400, "type": "unsubscribe", "body": {"resource": nothing}})
    found = []
    while (message := received(ann))["type"] != "response":
        found.append(message["body"]["value"])
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
    subscribe_when_reached(ann)

    for value in (1, 2, 3):
        publish(bob, value)
    came = [received(ann) for _ in range(3)]
    gone = ann.ask({**SUBSCRIBE, "id": 300, "type": "unsubscribe", "body": {"resource": TOPIC}})

    assert [1, 2, 3] == [each["body"]["value"] for each in came]
    assert 200 == gone["body"]["code"]


def test_gateway_is_killed(nodes: tuple[Domain, Lines, Lines]) -> None:
    """
    A gateway that is killed and comes back is asked again: publications after that come, once each.
    """
    gateway, ann, bob = nodes
    subscribe_when_reached(ann)
    gateway.kill()
    gateway.start()
    deadline = time.monotonic() + 2 * PATIENCE
    came: list[int] = []
    value = 0
    while not came:
        assert time.monotonic() < deadline, value
        value += 1
        publish(bob, value)
        came += values(ann)

    for last in (value + 1, value + 2):
        publish(bob, last)
    while came[-1] != value + 2:
        assert time.monotonic() < deadline, came
        came += values(ann)

    assert sorted(set(came)) == came
    assert [value + 1, value + 2] == came[-2:]
