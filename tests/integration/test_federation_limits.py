"""
Limits of another domain on real nodes: they change at a reload, senders are told, operators see it.
"""

import json
import signal
import time
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest

from .federated import PATIENCE, Domain, Domains
from .process import Lines
from .test_federation import ANN, ask_until

NOBODY = {"id": 1, "type": "read", "from": ANN, "to": "runtime://b.example/nobody"}


@pytest.fixture
def two() -> Iterator[Domains]:
    found = Domains(2)
    found.chain()
    found.start()
    yield found
    found.stop()


def reload(domain: Domain, table: str, line: str) -> None:
    """
    Add a line to a table of the domain's file, and let its node read it again.
    """
    file = domain.directory / f"{domain.name}.toml"
    file.write_text(file.read_text().replace(f"{table}\n", f"{table}\n{line}\n", 1))
    assert domain.process is not None and domain.process.process is not None
    domain.process.process.send_signal(signal.SIGHUP)
    domain.process.read_until("reloaded the configuration")


def metrics(domain: Domain, start: str) -> dict[str, float]:
    with urlopen(f"http://127.0.0.1:{domain.admin}/metrics", timeout=PATIENCE) as answer:
        lines = answer.read().decode().splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line.startswith(start)
    }


def is_reachable(domain: Domain, peer: str) -> bool:
    with urlopen(f"http://127.0.0.1:{domain.admin}/live", timeout=PATIENCE) as answer:
        return bool(json.load(answer)["peers"][peer]["reachable"])


def body_of(client: Lines, request: dict[str, Any], code: int) -> dict[str, Any]:
    """
    The answer with that code, of several requests in a row.
    """
    body: dict[str, Any] = ask_until(client, request, lambda answer: answer["body"]["code"] == code)["body"]
    return body


def test_limits_change_at_a_reload(two: Domains) -> None:
    """
    A rate for one peer, and the length of the queue for a destination, count from the reload on.
    """
    a, b = two.all
    ann = Lines(a.lines, ANN)
    assert body_of(ann, NOBODY, 404)["code"] == 404

    reload(b, "[[peer]]", "rate_messages = 1")
    refused = body_of(ann, {**NOBODY, "id": 1000}, 429)
    seen = metrics(b, "msgnode_exchange_total")
    reload(a, "[federation]", "queue_messages = 2")
    b.kill()
    while is_reachable(a, "b.example"):  # what is sent before that is told of when the node is back
        time.sleep(0.05)
    full = body_of(ann, {**NOBODY, "id": 2000, "type": "update", "receipt": True}, 507)

    assert (refused["code"], refused["reason"]) == (429, "rate")
    assert seen['msgnode_exchange_total{event="rate",peer="a.example"}'] >= 1
    assert (full["code"], full["reason"], full["final"]) == (507, "overflow", True)
    ann.close()


def test_grants_are_seen_by_operators(two: Domains) -> None:
    """
    Both nodes show how many subscriptions there are; one too many is refused.
    """
    a, b = two.all
    ann = Lines(a.lines, ANN)
    assert body_of(ann, NOBODY, 404)["code"] == 404
    reload(b, "[[peer]]", "max_grants = 1")
    subscribe = {"id": 1000, "type": "subscribe", "from": ANN, "to": "domain://msg-node.a.example/sm"}

    codes = []
    for number in range(2):
        request = {**subscribe, "body": {"resources": [f"comm://b.example/{number}/changes"]}}
        answer = ask_until(ann, request, lambda answer: answer["body"]["code"] != 504)
        codes.append(answer["body"]["code"])

    assert codes == [200, 429]
    assert metrics(b, "msgnode_grants") == {
        'msgnode_grants{peer="a.example"}': 1,
        'msgnode_grants{peer="other"}': 0,
    }
    deadline = time.monotonic() + PATIENCE
    name = 'msgnode_upstream_subscriptions{peer="b.example"}'
    while metrics(a, "msgnode_upstream")[name] != 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert metrics(a, "msgnode_upstream")[name] == 1
    ann.close()


def test_encryption_is_switched_on_at_a_reload() -> None:
    """
    A node that encrypted nothing offers a key to peers that encrypt by RSA only, without a restart.
    """
    found = Domains(1)
    [a] = found.all
    a.configure({})
    file = a.directory / f"{a.name}.toml"
    text = file.read_text()
    file.write_text(text.replace("[federation]", '[federation]\nencrypt = "never"'))
    a.start()
    try:
        file.write_text(text)
        assert a.process is not None
        a.process.process.send_signal(signal.SIGHUP)
        a.process.read_until("this node offers an RSA key of 3072 bits")
    finally:
        found.stop()
