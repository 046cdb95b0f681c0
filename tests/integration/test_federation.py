"""
Nodes of several domains, as real processes with certificates of their own: what their clients see.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .federated import PATIENCE, Domains
from .process import Lines

ANN, BOB, CARL = "runtime://a.example/ann", "runtime://b.example/bob", "runtime://c.example/carl"


@pytest.fixture
def chain() -> Iterator[Domains]:
    found = Domains(3)
    found.chain()
    found.start()
    yield found
    found.stop()


def ask_until(
    client: Lines, request: dict[str, Any], is_good: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """
    Ask again until the answer is good: routes take a few seconds after the links are up, and the other domain
    may take longer to answer than the node waits.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = client.ask(request)
        if is_good(answer) or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)
        request = request | {"id": request["id"] + 1}


def test_conversation_through_a_third_domain(chain: Domains) -> None:
    """
    A request and its answers, a subscription and a publication pass from domain to domain, over one between;
    and an address that nobody has is answered.
    """
    a, _, c = chain.all
    ann, carl = Lines(a.lines, ANN), Lines(c.lines, CARL)
    request = {"id": 10, "type": "read", "from": ANN, "to": CARL + "/nobody/here", "transaction": "t-1"}

    carl.send({"id": 2, "type": "subscribe", "from": CARL, "to": "domain://msg-node.c.example/sm",
               "body": {"resources": ["comm://c.example/o/subscription"]}})  # fmt: skip
    assert carl.receive()["body"]["code"] == 200  # type: ignore[index]
    unknown = request | {"to": "runtime://c.example/nobody"}
    assert ask_until(ann, unknown, lambda answer: answer["body"]["code"] == 404)["body"]["code"] == 404

    ann.send(request | {"id": 50, "to": CARL})
    came = carl.receive()
    assert came is not None
    assert (came["from"], came["id"], came["transaction"]) == (ANN, 50, "t-1")
    for code in (100, 180, 200):
        carl.send({"id": 50, "type": "response", "from": CARL, "to": ANN, "body": {"code": code}})
    assert [ann.receive()["body"]["code"] for _ in range(3)] == [100, 180, 200]  # type: ignore[index]

    update = {"id": 55, "type": "update", "from": ANN, "to": CARL, "receipt": True}
    receipt = ann.ask(update)["body"]
    assert carl.receive()["id"] == 55  # type: ignore[index]
    assert (receipt["code"], receipt["final"]) == (202, True)
    assert [hop["node"] for hop in receipt["path"]] == [
        "mn://a.example/n1",
        "mn://b.example/n1",
        "mn://c.example/n1",
    ]

    topic = "comm://c.example/o/changes"
    subscribe = {"id": 600, "type": "subscribe", "from": ANN, "to": "domain://msg-node.a.example/sm"}
    subscribe |= {"body": {"resources": [topic]}}
    assert ask_until(ann, subscribe, lambda answer: answer["body"]["code"] != 504)["body"]["code"] == 200
    carl.send({"id": 61, "type": "update", "from": "comm://c.example/o", "to": topic, "body": {"value": 7}})
    published = ann.receive()
    assert published is not None and published["body"]["value"] == 7

    ann.close()
    carl.close()
    c.stop()  # the log is written by then
    hops = [line["hops"] for line in c.log() if line["kind"] == "message" and line.get("source")]
    assert set(hops) == {2}
